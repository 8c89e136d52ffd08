package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/registry"
	"reseat/gateway/wire"
)

// A peer that stops reading, at any point of a resume, delays nobody: no other session, not
// the list of sessions, and not the next resume of its own session. None of that takes any
// time on the fake clock; waiting for the peer would take forever.
func TestSlowPeerDuringResumeDelaysNobody(t *testing.T) {
	for name, slow := range map[string]func(w *world, p *wstest.Player, game *wstest.Peer){
		"before its 101":   (*world).resumeUnread,
		"before its hello": func(w *world, p *wstest.Player, _ *wstest.Peer) { w.resumeRead(p, 150) },
		"in its replay":    func(w *world, p *wstest.Player, _ *wstest.Peer) { w.resumeRead(p, 10000) },
		"as the older connection": func(w *world, p *wstest.Player, game *wstest.Peer) {
			p.Hold(true)
			for i := range 200 {
				game.Text(fmt.Sprint(i, strings.Repeat("x", 2000)))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, other *wstest.Player, otherGame *wstest.Peer) {
				p, game := w.play()
				p.Sync()
				for i := range 20 {
					game.Text(fmt.Sprint("early ", i, strings.Repeat("x", 2000)))
				}
				slow(w, p, game)
				synctest.Wait()
				began := time.Now()
				w.wantOthersAtEase(other, otherGame)
				q := p.Resume(0)
				for i := range 20 {
					q.Want(fmt.Sprint("early ", i, strings.Repeat("x", 2000)))
				}
				if d := time.Since(began); d > 0 {
					t.Errorf("others were delayed by %v", d)
				}
			})
		})
	}
}

// wantOthersAtEase checks that another session resumes and exchanges messages, that a new
// one begins, and that all are listed.
func (w *world) wantOthersAtEase(other *wstest.Player, game *wstest.Peer) {
	w.t.Helper()
	other.Drop()
	other = other.Resume(0)
	game.Pass(other, "down")
	other.Pass(game, "up")
	w.play()
	if list, _ := w.gw.Sessions(registry.Filter{Limit: 10}); len(list) != 3 {
		w.t.Errorf("%d sessions are listed, want 3", len(list))
	}
	w.gw.Session(other.Hello.Session)
}

// resumeUnread sends a resume of p on a connection that accepts 16 bytes of an answer that is
// never read.
func (w *world) resumeUnread(p *wstest.Player, _ *wstest.Peer) {
	w.resumeRead(p, 0)
}

// resumeRead sends a resume of p on a connection that accepts 16 bytes more than the first n
// of its answer, which are read.
func (w *world) resumeRead(p *wstest.Player, n int) {
	door := wstest.Open(w.t, w.gw, 16)
	offer := strings.Join([]string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}, ", ")
	c, _ := door.Request("GET /resume HTTP/1.1\r\nHost: game.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: " + offer + "\r\n\r\n")
	for got := 0; got < n; {
		k, err := c.Read(make([]byte, n-got))
		if err != nil {
			w.t.Fatal(err)
		}
		got += k
	}
}
