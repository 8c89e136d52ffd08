// Package interop has a WebSocket library at both ends of a gateway, over real connections on loopback:
// a plain client, and the game server.
package interop

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"reseat/gateway"
	"reseat/gateway/internal/test/leaks"
	"reseat/gateway/policy"
	"reseat/tokens"
	"reseat/upstream"
)

// patience is so generous that only a fault reaches it.
const patience = 2 * time.Minute

// An arena is a gateway before a game server, which passes each of its connections to the test.
type arena struct {
	*testing.T
	url      string
	compress bool
	joined   chan *websocket.Conn
}

// eachWay runs a test with compression, whose offer declines that messages refer to earlier ones, and without.
func eachWay(t *testing.T, run func(a *arena)) {
	for name, compress := range map[string]bool{"plain": false, "compressed": true} {
		t.Run(name, func(t *testing.T) { run(newArena(t, compress)) })
	}
}

func newArena(t *testing.T, compress bool) *arena {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaks.VerifyNone(t, before) }) // runs last
	a := &arena{T: t, compress: compress, joined: make(chan *websocket.Conn, 100)}
	up := websocket.Upgrader{Subprotocols: []string{"chat.v2"}}
	game := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		a.joined <- c
	}))
	t.Cleanup(game.Close)
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(strings.Replace(game.URL, "http", "ws", 1))
	if err != nil {
		t.Fatal(err)
	}
	pol := policy.Policy{
		Grace: 30 * time.Second, Heartbeat: 15 * time.Second, DialTimeout: time.Minute,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20, Compression: policy.Compression{On: true, Window: 4 << 10},
	}
	gw, err := gateway.New(gateway.Config{
		Routes: []policy.Route{{Pattern: "/*", Upstream: upstream.Target{URL: target}, Policy: pol}}, Default: pol, Keys: keys, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(gw)
	t.Cleanup(front.Close)
	t.Cleanup(gw.Close)
	a.url = strings.Replace(front.URL, "http", "ws", 1)
	return a
}

// join connects a client and returns both its ends.
func (a *arena) join() (client, game *websocket.Conn) {
	a.Helper()
	d := websocket.Dialer{Subprotocols: []string{"chat.v1", "chat.v2"}, EnableCompression: a.compress, WriteBufferSize: 2000}
	client, answer, err := d.Dial(a.url+"/match/7", nil)
	if err != nil {
		a.Fatal(err)
	}
	want := ""
	if a.compress {
		want = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	}
	if got := answer.Header.Get("Sec-WebSocket-Extensions"); got != want {
		a.Errorf("extensions %q are agreed on, want %q", got, want)
	}
	select {
	case game = <-a.joined:
	case <-time.After(patience):
		a.Fatal("the game server got no connection")
	}
	for _, c := range []*websocket.Conn{client, game} {
		c.NetConn().SetDeadline(time.Now().Add(patience))
		a.Cleanup(func() { c.Close() })
	}
	return client, game
}

// patternOf returns n bytes that depend on n and on their position.
func patternOf(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + (i*7+n)%26)
	}
	return b
}

// passes sends a message from one end, in frames of at most about 2,000 bytes from a client, and checks that it
// arrives unchanged at the other.
func passes(from, to *websocket.Conn, op int, msg []byte) error {
	sent := make(chan error, 1)
	go func() { sent <- from.WriteMessage(op, msg) }()
	gotOp, got, err := to.ReadMessage()
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if gotOp != op || !bytes.Equal(got, msg) {
		return fmt.Errorf("got opcode %d, %d bytes %.20q, want %d, %d bytes %.20q", gotOp, len(got), got, op, len(msg), msg)
	}
	return nil
}

func TestLibraryExchangesMessagesOfEverySize(t *testing.T) {
	eachWay(t, func(a *arena) {
		client, game := a.join()
		if c, g := client.Subprotocol(), game.Subprotocol(); c != "chat.v2" || g != "chat.v2" {
			a.Errorf("the client has subprotocol %q, the game %q, want chat.v2", c, g)
		}
		for _, size := range []int{0, 1, 2, 125, 126, 127, 4096, 65535, 65536, 300001, 1 << 20} {
			for _, op := range []int{websocket.TextMessage, websocket.BinaryMessage} {
				if err := errors.Join(passes(client, game, op, patternOf(size)), passes(game, client, op, patternOf(size))); err != nil {
					a.Fatalf("%d bytes, opcode %d: %v", size, op, err)
				}
			}
		}
	})
}

// A last message and the Close arrive at the other side as they were sent; 1006 stands for a disconnect.
func TestCloseReachesTheOtherSideOfTheLibrary(t *testing.T) {
	eachWay(t, func(a *arena) {
		for _, c := range []struct {
			code   int
			reason string
		}{
			{1000, ""}, {1000, "done"}, {1001, "away"}, {1003, "no"}, {1008, "policy"}, {1011, "oops"}, {1012, ""}, {1013, ""},
			{3000, "registered"}, {4000, ""}, {4999, string(patternOf(123))}, {1005, ""}, {1006, ""},
		} {
			client, game := a.join()
			a.closes("client", client, game, c.code, c.reason)
			client, game = a.join()
			a.closes("game server", game, client, c.code, c.reason)
		}
	})
}

// closes closes one side, and checks what the other receives.
func (a *arena) closes(who string, from, to *websocket.Conn, code int, reason string) {
	a.Helper()
	if err := from.WriteMessage(websocket.TextMessage, []byte("last")); err != nil {
		a.Fatalf("%s: %v", who, err)
	}
	if code != 1006 {
		if err := from.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(patience)); err != nil {
			a.Errorf("the %s closes with %d: %v", who, code, err)
		}
	} else {
		from.Close()
	}
	_, p, err := to.ReadMessage()
	if err == nil && string(p) == "last" {
		_, _, err = to.ReadMessage()
	}
	var got *websocket.CloseError
	switch {
	case !errors.As(err, &got):
		a.Errorf("the %s closes with %d: the other side saw %v", who, code, err)
	case got.Code != code || code != 1006 && got.Text != reason:
		a.Errorf("the %s closes with %d %q: the other side saw %d %q", who, code, reason, got.Code, got.Text)
	}
	if code == 1006 {
		return
	}
	if _, _, err := from.ReadMessage(); !websocket.IsCloseError(err, code) {
		a.Errorf("the %s closed with %d, and was answered by %v", who, code, err)
	}
}

// A pong has what its ping had. Reading is what answers.
func TestPingsOfTheLibraryAreAnswered(t *testing.T) {
	eachWay(t, func(a *arena) {
		client, game := a.join()
		var all sync.WaitGroup
		for who, c := range map[string]*websocket.Conn{"client": client, "game server": game} {
			pongs := make(chan string, 100)
			c.SetPongHandler(func(data string) error {
				pongs <- data
				return nil
			})
			go c.ReadMessage()
			all.Go(func() {
				for i := range 20 {
					ping := fmt.Sprint("ping ", i)
					if err := c.WriteControl(websocket.PingMessage, []byte(ping), time.Now().Add(patience)); err != nil {
						a.Errorf("the %s: %v", who, err)
						return
					}
					select {
					case pong := <-pongs:
						if pong != ping {
							a.Errorf("the %s pinged with %q, and got %q", who, ping, pong)
						}
					case <-time.After(patience):
						a.Errorf("the %s: no pong for %q", who, ping)
					}
				}
			})
		}
		all.Wait()
	})
}
