//go:build linux

package epoll

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// A table is some sessions of plain clients on one loop.
type table struct {
	t    *testing.T
	loop *Loop
	all  []*rig
	then func() // called at the end of a turn, on the loop
}

func newTable(t *testing.T, sessions int) *table {
	clock := new(handClock)
	tb := &table{t: t, loop: newLoop(t, clock), then: func() {}}
	for range sessions {
		ours, client := socketPair(t)
		tb.all = append(tb.all, newRigOn(t, tb.loop, clock, ours, client, func(c *session.Config) { c.Resumable = false }))
	}
	return tb
}

// turn has the loop serve, in one turn, what write has sent.
func (tb *table) turn(write func(), legs func(r *rig) []*leg) {
	l := tb.loop
	l.call(func() {
		write()
		defer tb.then()
		var events []unix.EpollEvent
		for _, r := range tb.all {
			for _, g := range legs(r) {
				if g == nil { // it has been closed
					continue
				}
				events = append(events, unix.EpollEvent{Fd: int32(g.fd), Events: unix.EPOLLIN})
			}
		}
		l.collect(events)
		l.serve()
	})
}

func upLeg(r *rig) []*leg   { return []*leg{r.up} }
func downLeg(r *rig) []*leg { return []*leg{r.down} }
func bothLegs(r *rig) []*leg {
	return []*leg{r.down, r.up}
}

func (tb *table) send(conn net.Conn, b []byte) {
	tb.t.Helper()
	if _, err := conn.Write(b); err != nil {
		tb.t.Error(err)
	}
}

func (tb *table) wants(conn net.Conn, want []byte) {
	tb.t.Helper()
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
		tb.t.Errorf("got %.60q, %v; want %.60q", got, err, want)
	}
}

var key = [4]byte{1, 2, 3, 4}

// fromClient is a client's message, and what the game server gets of it: the rig masks with zeros.
func fromClient(text string) (sent, got []byte) {
	return frame.AppendMasked(nil, frame.Text, key, []byte(text)), frame.AppendMasked(nil, frame.Text, [4]byte{}, []byte(text))
}

func fromGame(text string) []byte { return frame.Append(nil, frame.Text, []byte(text)) }

// exchange has clients, game servers or both send something in one turn, and reads it at the other side.
func (tb *table) exchange(legs func(r *rig) []*leg, up, down string) {
	tb.t.Helper()
	text := func(s string, i int) string { return fmt.Sprint(s, " of ", i) }
	tb.turn(func() {
		for i, r := range tb.all {
			if sent, _ := fromClient(text(up, i)); up != "" {
				tb.send(r.client, sent)
			}
			if down != "" {
				tb.send(r.game, fromGame(text(down, i)))
			}
		}
	}, legs)
	for i, r := range tb.all {
		if _, got := fromClient(text(up, i)); up != "" {
			tb.wants(r.game, got)
		}
		if down != "" {
			tb.wants(r.client, fromGame(text(down, i)))
		}
	}
}

func TestTurnOfManySessionsReachesEverybody(t *testing.T) {
	large := strings.Repeat("long", 4<<10)
	tb := newTable(t, 20)
	for round, c := range []struct {
		legs     func(*rig) []*leg
		up, down string
	}{
		{downLeg, "up", ""}, {upLeg, "", "down"}, {bothLegs, "both up", "both down"}, {bothLegs, large, large}, {bothLegs, "short", "short"},
	} {
		tb.exchange(c.legs, c.up, c.down)
		if t.Failed() {
			t.Fatal("in round ", round)
		}
	}
}

// A message that is longer than a piece, an end behind a message, a reset, nothing at all: each
// session has its own.
func TestSessionsOfATurnDoNotShareTheirFate(t *testing.T) {
	tb := newTable(t, 7)
	long := string(bytes.Repeat([]byte("long "), 3<<10))
	all := tb.all
	tb.then = func() {
		if all[6].down != nil {
			t.Error("the end of a client's connection has not been noticed")
		}
	}
	tb.turn(func() {
		for i, text := range []string{long, "last", "", "short", "ping", "then", ""} {
			if sent, _ := fromClient(text); text != "" {
				tb.send(all[i].client, sent)
			}
		}
		all[1].client.Close()
		all[6].client.Close()
		all[3].game.Close() // its socket takes nothing
	}, downLeg)
	tb.then = func() {
		if all[1].down != nil {
			t.Error("the end behind a client's message has not been noticed")
		}
	}
	tb.turn(func() {}, downLeg)
	_, got := fromClient(long)
	tb.wants(all[0].game, got)
	_, got = fromClient("last")
	tb.wants(all[1].game, got)
	for i, text := range map[int]string{4: "ping", 5: "then"} {
		_, got := fromClient(text)
		tb.wants(all[i].game, got)
	}
	sent, got := fromClient("later")
	tb.send(all[2].client, sent)
	tb.wants(all[2].game, got)
	sent, got = fromClient("after a long one")
	tb.send(all[0].client, sent)
	tb.wants(all[0].game, got)
	for _, r := range []*rig{all[1], all[3], all[6]} {
		r.after(time.Minute)
		<-r.closed
	}
}

// What a game server does not take now lies in the loop's buffer, which the next read reuses.
func TestMessagesToAFullSocketAreKept(t *testing.T) {
	tb := newTable(t, 4)
	body := func(turn, i int) string {
		return fmt.Sprint(turn, i, string(bytes.Repeat([]byte{byte('a' + i)}, 3000)))
	}
	const turns = 80 // more than one socket holds, less than two
	for turn := range turns {
		tb.turn(func() {
			for i, r := range tb.all {
				sent, _ := fromClient(body(turn, i))
				tb.send(r.client, sent)
			}
		}, downLeg)
		for i, r := range tb.all[1:] { // the first one's game server reads nothing
			_, got := fromClient(body(turn, i+1))
			tb.wants(r.game, got)
		}
	}
	for turn := range turns {
		_, got := fromClient(body(turn, 0))
		tb.wants(tb.all[0].game, got)
	}
}

// A panic of one session ends that one.
func TestPanicInATurnEndsOnlyItsSession(t *testing.T) {
	tb := newTable(t, 5)
	bad := tb.all[2]
	tb.turn(func() {
		for i, r := range tb.all {
			tb.send(r.game, fromGame(fmt.Sprint("down", i)))
		}
		bad.up.leg = panicking{bad.up.leg}
	}, upLeg)
	for i, r := range tb.all {
		if r != bad {
			tb.wants(r.client, fromGame(fmt.Sprint("down", i)))
		}
	}
	bad.after(time.Minute)
	<-bad.closed
}

// A panicking leg is one whose reads panic.
type panicking struct{ session.Leg }

func (panicking) Direct() bool { panic("injected") }
