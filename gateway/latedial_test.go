package gateway_test

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// A lateDial is a durable session whose client waits at node 0 for its game server to be dialled again, while
// node 1 takes node 0 for silent and claims the session.
type lateDial struct {
	*durableNodes
	session string
	waiting *wstest.Peer   // the client at node 0,
	winner  *wstest.Player // and at node 1
	game    *wstest.Peer   // of node 1
	events  listener       // of node 0

	answer chan struct{} // closed: the game server answers node 0's dial
	gate   chan struct{} // closed: node 0 takes the answer
}

func newLateDial(t *testing.T) *lateDial {
	t.Helper()
	hard := durablePolicy()
	hard.Hard = true
	l := &lateDial{durableNodes: newDurableNodes(t, 2, hard), answer: make(chan struct{}), gate: make(chan struct{})}
	p, game := l.beginDurable()
	l.detach(p)
	game.WantClose(wire.CodeGoingAway)
	game.Close(wire.CodeGoingAway, "")
	synctest.Wait()
	l.session, l.events = p.Hello.Session, l.of[0].listen()
	l.of[0].game.Refuse = func(net.Conn, *http.Request) bool { <-l.answer; return false }
	door := wstest.Open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.of[0].gw.ServeHTTP(gatedAnswer{w, l.gate}, r)
	}), 64<<10)
	l.waiting = p.At(door).TryResume(p.Hello.Token+", reseat.settled.0.0", "0")
	synctest.Wait()
	l.lose(0, gateway.NodeVerdict{State: gateway.NodeSilent, Evidence: "test", Heard: time.Now()})
	l.winner = l.resumeAt(p, 1, 0, 0, 0)
	l.game = l.of[1].game.Next()
	return l
}

// wantGivenUp checks that node 0 has nothing left of the session, has not said that it ended, and that it goes on
// at node 1.
func (l *lateDial) wantGivenUp(t *testing.T, published ...string) {
	t.Helper()
	l.events.want(l.session, published...)
	wantNothingLeft(t, l.of[0])
	if n := l.of[0].game.Joined(); n != 0 {
		t.Errorf("node 0 has dialled %d times more", n)
	}
	for i, want := range []bool{false, true} {
		if _, ok := l.of[i].gw.Session(l.session); ok != want {
			t.Errorf("node %d has the session: %v", i, ok)
		}
	}
	if h := l.winner.Hello; h.Moved != wire.MovedFailover {
		t.Errorf("hello of node 1: %+v", h)
	}
	l.winner.Text("on")
	l.game.Want("on")
	l.game.Text("and on")
	l.winner.Want("and on")
}

// comesAgain checks that a client is refused, and resumes.
func comesAgain(t *testing.T, p *wstest.Peer) {
	t.Helper()
	p.WantRetry(wire.CodeNodeUnreachable)
	p.WantEnd()
}

func TestDialThatIsUnderWayAtFenceIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLateDial(t)
		close(l.gate)
		l.of[0].gw.Fenced(l.session, 1)
		comesAgain(t, l.waiting)
		close(l.answer)
		l.of[0].game.Next().WantEnd()
		l.wantGivenUp(t)
	})
}

// The game server has answered, but its connection is not yet the session's.
func TestConnectionThatIsDialledAtFenceIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLateDial(t)
		close(l.answer)
		game := l.of[0].game.Next()
		synctest.Wait()
		l.of[0].gw.Fenced(l.session, 1)
		synctest.Wait()
		close(l.gate)
		comesAgain(t, l.waiting)
		game.WantEnd()
		l.wantGivenUp(t)
	})
}

// Nobody tells node 0. It attaches the client, and learns from its next write of the seat who has the session.
func TestOlderOwnerThatFinishesItsDialLetsGoAtItsNextWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLateDial(t)
		close(l.gate)
		close(l.answer)
		l.waiting.WantControl(wire.VerbHello)
		l.waiting.Control("ping 1") // confirms its generation, which the seat is to have
		if reason := l.waiting.WantClose(wire.CodeServiceRestart); reason != "moved" {
			t.Errorf("reason %q", reason)
		}
		l.waiting.Close(wire.CodeServiceRestart, "")
		game := l.of[0].game.Next()
		game.WantReason(wire.CodeGoingAway, "moved")
		game.Close(wire.CodeGoingAway, "")
		l.wantGivenUp(t, events.Resumed)
	})
}

// The claim was before the resume: node 0 writes the seat before it dials, and is refused.
func TestOlderOwnerThatWritesItsSeatDoesNotDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hard := durablePolicy()
		hard.Hard = true
		d := newDurableNodes(t, 2, hard)
		p, game := d.beginDurable()
		d.detach(p)
		game.WantClose(wire.CodeGoingAway)
		game.Close(wire.CodeGoingAway, "")
		synctest.Wait()
		l := &lateDial{durableNodes: d, session: p.Hello.Session, events: d.of[0].listen()}
		d.lose(0, gateway.NodeVerdict{State: gateway.NodeSilent, Evidence: "test", Heard: time.Now()})
		l.winner = d.resumeAt(p, 1, 0, 0, 0)
		l.game = d.of[1].game.Next()
		comesAgain(t, d.settledAt(p, 0, 0, 0, 0))
		l.wantGivenUp(t)
	})
}

// endsInSilence has the grace period of a session at node 0 end while node 0 cannot find out whether it has the session.
func endsInSilence(t *testing.T, d *durableNodes) *wstest.Player {
	t.Helper()
	p, game := d.beginDurable()
	d.detach(p)
	synctest.Wait()
	d.links[0].SetCut(true)
	time.Sleep(40 * time.Second)
	game.WantEnd()
	if s := d.of[0].state(p); s != session.Ended.String() {
		t.Fatalf("the session is %q", s)
	}
	return p
}

func TestSessionThatEndsInSilenceIsNoVerdict(t *testing.T) {
	for name, back := range map[string]func(d *durableNodes, p *wstest.Player) *wstest.Player{
		"nobody has it": func(d *durableNodes, p *wstest.Player) *wstest.Player { return d.resumeAt(p, 0, 0, 0, 0) },
		"another node has claimed it": func(d *durableNodes, p *wstest.Player) *wstest.Player {
			d.lose(0, gateway.NodeVerdict{State: gateway.NodeSilent, Evidence: "test", Heard: time.Now()})
			d.resumeAt(p, 1, 0, 0, 0).Drop() // it has not accepted anything there
			return d.resumeAt(p, 0, 0, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes) {
				p := endsInSilence(t, d)
				d.settledAt(p, 0, 0, 0, 0).WantRetry(wire.CodeNodeUnreachable)
				d.links[0].SetCut(false)
				back(d, p).Sync()
			})
		})
	}
}
