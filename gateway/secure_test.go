package gateway_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/listen"
	"reseat/gateway/policy"
	"reseat/gateway/secure"
)

// overHTTP2 returns a client that asks w by HTTP/2 alone.
func (w *world) overHTTP2() *http.Client {
	w.t.Helper()
	ln, pair := wstest.NewListener(64<<10), testcert.New(w.t, "game.example")
	cert, key := pair.Write(w.t.TempDir())
	certs, err := secure.Open(secure.Config{CertFile: cert, KeyFile: key})
	if err != nil {
		w.t.Fatal(err)
	}
	server := &http.Server{Handler: w.gw, ConnContext: listen.ConnContext}
	go server.Serve(certs.Listen(ln))
	tr := &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		raw, err := ln.Dial()
		if err != nil {
			return nil, err
		}
		c := tls.Client(raw, pair.Client("h2"))
		return c, c.HandshakeContext(ctx)
	}}
	w.t.Cleanup(func() {
		tr.CloseIdleConnections()
		server.Close()
	})
	return &http.Client{Transport: tr}
}

func TestOrdinaryRequestsOverHTTP2ReachTheGame(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			body, _ := io.ReadAll(r.Body)
			text := r.Method + " " + r.RequestURI + " " + r.Host + " " + r.Header.Get("X-Forwarded-Proto") + " " + string(body)
			resp := http.Response{ProtoMajor: 1, ProtoMinor: 1, StatusCode: http.StatusCreated, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text))}
			resp.Write(c)
			return true
		}
		resp, err := w.overHTTP2().Post("https://game.example/matchmaking?size=2", "text/plain", strings.NewReader("me"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if want := "POST /matchmaking?size=2 game.example https me"; resp.ProtoMajor != 2 || resp.StatusCode != http.StatusCreated || string(body) != want || err != nil {
			t.Errorf("%s %s %q, %v; want HTTP/2, 201 and %q", resp.Proto, resp.Status, body, err, want)
		}
	})
}

func TestUpgradeRequiredOverHTTP2OmitsConnectionFields(t *testing.T) {
	for _, off := range []bool{true, false} {
		inWorld(t, changed(testPolicy(), func(p *policy.Policy) { p.HTTPOff = off }), func(t *testing.T, w *world) {
			w.game.Refuse = answering("426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade")
			resp, err := w.overHTTP2().Get("https://game.example/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusUpgradeRequired || resp.Header["Upgrade"] != nil || resp.Header["Connection"] != nil {
				t.Errorf("--http off %t: %s with %v, want 426 without connection-specific fields (RFC 9113 section 8.2.2)", off, resp.Status, resp.Header)
			}
		})
	}
}
