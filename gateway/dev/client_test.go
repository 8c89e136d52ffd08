package dev_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"reseat/gateway"
	"reseat/gateway/client"
	"reseat/gateway/dev"
	"reseat/gateway/faults"
	"reseat/gateway/listen"
	"reseat/gateway/policy"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
	"reseat/tokens"
	"reseat/upstream"
)

// A game counts its messages, 100 a second.
func game(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	ctx := c.CloseRead(r.Context())
	for n := 1; ctx.Err() == nil; n++ {
		c.Write(ctx, websocket.MessageText, fmt.Append(nil, n))
		time.Sleep(10 * time.Millisecond)
	}
}

// serveDev serves a gateway as the command does with --dev, on a real socket.
func serveDev(t *testing.T) (address string) {
	t.Helper()
	back := httptest.NewServer(http.HandlerFunc(game))
	t.Cleanup(back.Close)
	to, _ := url.Parse(back.URL)
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rules := policy.Policy{
		Grace: 30 * time.Second, Heartbeat: 15 * time.Second, AnswerTimeout: 5 * time.Second, DialTimeout: 10 * time.Second,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
	}
	log := slog.New(slog.DiscardHandler)
	g, err := gateway.New(gateway.Config{Keys: keys, Log: log, Driver: transport.Net, Default: rules, Routes: []policy.Route{{Pattern: "/*", Upstream: upstream.Target{URL: to}, Policy: rules}}})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines := faults.NewLines()
	lines.Serve(faults.Options{
		Client: func(id string) net.Conn { return rawconn.Lowest(g.Control().ClientConn(id)) },
		Close:  func(net.Conn) bool { return false },
	})
	o := dev.Options{Gateway: g, Lines: lines, Keys: keys, Log: log}
	dev.Serve(o)
	server := &http.Server{Handler: dev.Front(o, g), ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return faults.ConnContext(listen.ConnContext(ctx, c), rawconn.Lowest(c))
	}}
	go server.Serve(lines.Listener(ln))
	t.Cleanup(func() {
		server.Close()
		g.Close()
		lines.Stop()
	})
	return "ws://" + ln.Addr().String()
}

// All of it, on real sockets: no message is missed or repeated, whatever is cut.
func TestFaultsCostTheClientTimeAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	resumed := make(chan client.Resumed, 9)
	c, err := client.Dial(ctx, serveDev(t)+"/play?seat=1", &client.Options{OnResume: func(r client.Resumed) { resumed <- r }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	read := make(chan error, 1)
	go func() {
		for n := 1; ; n++ {
			_, data, err := c.Read(ctx)
			if err == nil && string(data) != fmt.Sprint(n) {
				err = fmt.Errorf("message %s, want %d", data, n)
			}
			if err != nil {
				read <- err
				return
			}
		}
	}()
	for _, fault := range []string{`{"fault":"reset"}`, `{"fault":"airplane","for":"1s"}`, `{"fault":"close"}`, `{"fault":"slow","for":"1s","latency":"20ms"}`, `{"fault":"reset"}`} {
		if err := c.Fault(ctx, fault); err != nil {
			t.Fatalf("%s: %v", fault, err)
		}
		if strings.Contains(fault, "slow") {
			continue
		}
		select {
		case r := <-resumed:
			if airplane := strings.Contains(fault, "airplane"); airplane && (r.Away < time.Second || r.Replay == 0) {
				t.Errorf("%s: %+v", fault, r)
			}
		case err := <-read:
			t.Fatalf("%s: %v", fault, err)
		}
	}
	if err := c.Fault(ctx, ""); err != nil {
		t.Error(err)
	}
	if err := c.Fault(ctx, `{"fault":"earthquake"}`); err == nil || !strings.Contains(err.Error(), "want one of silence") {
		t.Errorf("%v", err)
	}
}
