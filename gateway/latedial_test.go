package gateway_test

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/events"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// A lateDial is a durable session whose client waits at node 0 for its game server to be dialled again, while
// node 1 takes node 0 for silent and claims the session.
type lateDial struct {
	*durableNodes
	p       *wstest.Player
	waiting *wstest.Peer   // the client at node 0,
	winner  *wstest.Player // and at node 1
	game    *wstest.Peer   // of node 1
	events  listener       // of node 0

	answer chan struct{} // closed: the game server answers node 0's dial
	gate   chan struct{} // closed: node 0 takes the answer
}

// inLateDial runs f with a lateDial whose client waits at node 0 if waits says so.
func inLateDial(t *testing.T, waits bool, f func(*testing.T, *lateDial)) {
	t.Helper()
	inCluster(t, 2, hardDurable(), func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
		l := &lateDial{durableNodes: d, p: p, answer: make(chan struct{}), gate: make(chan struct{})}
		l.detach(p)
		game.WantClose(wire.CodeGoingAway)
		game.Close(wire.CodeGoingAway, "")
		synctest.Wait()
		l.events = l.of[0].listen()
		if waits {
			l.of[0].game.Refuse = func(net.Conn, *http.Request) bool { <-l.answer; return false }
			l.waiting = p.At(l.of[0].gatedDoor(l.gate)).TryResume(p.Hello.Token+", reseat.settled.0.0", "0")
			synctest.Wait()
		}
		l.lose(0, silentNode())
		l.winner = l.resumeAt(p, 1, 0, 0, 0)
		l.game = l.of[1].game.Next()
		f(t, l)
	})
}

// wantGivenUp checks that node 0 has nothing left of the session, has not said that it ended, and that it goes on
// at node 1.
func (l *lateDial) wantGivenUp(t *testing.T, published ...string) {
	t.Helper()
	l.events.want(l.p.Hello.Session, published...)
	wantNothingLeft(t, l.of[0])
	l.of[0].wantNoDial()
	for i, want := range []bool{false, true} {
		if l.has(i, l.p) != want {
			t.Errorf("node %d has the session: %v, want %v", i, !want, want)
		}
	}
	cameBy(t, l.winner, wire.MovedFailover, 0)
	goesOn(l.winner, l.game)
}

// comesAgain checks that a client is refused, and resumes.
func comesAgain(p *wstest.Peer) {
	p.WantRetry(wire.CodeNodeUnreachable)
	p.WantEnd()
}

func TestDialThatIsUnderWayAtFenceIsGivenUp(t *testing.T) {
	inLateDial(t, true, func(t *testing.T, l *lateDial) {
		close(l.gate)
		l.of[0].gw.Fenced(l.p.Hello.Session, 1)
		comesAgain(l.waiting)
		close(l.answer)
		l.of[0].game.Next().WantEnd()
		l.wantGivenUp(t)
	})
}

// The game server has answered, but its connection is not yet the session's.
func TestConnectionThatIsDialledAtFenceIsClosed(t *testing.T) {
	inLateDial(t, true, func(t *testing.T, l *lateDial) {
		close(l.answer)
		game := l.of[0].game.Next()
		synctest.Wait()
		l.of[0].gw.Fenced(l.p.Hello.Session, 1)
		synctest.Wait()
		close(l.gate)
		comesAgain(l.waiting)
		game.WantEnd()
		l.wantGivenUp(t)
	})
}

// Nobody tells node 0. It attaches the client, and learns from its next write of the seat who has the session.
func TestOlderOwnerThatFinishesItsDialLetsGoAtItsNextWrite(t *testing.T) {
	inLateDial(t, true, func(t *testing.T, l *lateDial) {
		close(l.gate)
		close(l.answer)
		l.waiting.WantControl(wire.VerbHello)
		l.waiting.Control("ping 1") // confirms its generation, which the seat is to have
		l.waiting.WantReason(wire.CodeServiceRestart, "moved")
		l.waiting.Close(wire.CodeServiceRestart, "")
		game := l.of[0].game.Next()
		game.WantReason(wire.CodeGoingAway, "moved")
		game.Close(wire.CodeGoingAway, "")
		l.wantGivenUp(t, events.Resumed)
	})
}

// The claim was before the resume: node 0 writes the seat before it dials, and is refused.
func TestOlderOwnerThatWritesItsSeatDoesNotDial(t *testing.T) {
	inLateDial(t, false, func(t *testing.T, l *lateDial) {
		comesAgain(l.settledAt(l.p, 0, 0, 0, 0))
		l.wantGivenUp(t)
	})
}

// The grace period of a session ends while its node cannot find out whether it has the session.
func TestSessionThatEndsInSilenceIsNoVerdict(t *testing.T) {
	for _, claimed := range []bool{false, true} {
		inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
			d.detach(p)
			d.links[0].SetCut(true)
			time.Sleep(40 * time.Second)
			game.WantEnd()
			d.of[0].wantState(p, session.Ended)
			d.settledAt(p, 0, 0, 0, 0).WantRetry(wire.CodeNodeUnreachable)
			d.links[0].SetCut(false)
			if claimed {
				d.lose(0, silentNode())
				d.resumeAt(p, 1, 0, 0, 0).Drop() // it has not accepted anything there
			}
			d.resumeAt(p, 0, 0, 0, 0).Sync()
		})
	}
}
