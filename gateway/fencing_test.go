package gateway_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/events"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// Two nodes that both believe to have a durable session: who may claim it, who says hello, and who lets go.

// inLostNode is inCluster with a client that has said "a", when its node is lost to the others, and with it the client.
func inLostNode(t *testing.T, n int, f func(*testing.T, *durableNodes, *wstest.Player, *wstest.Peer)) {
	t.Helper()
	inCluster(t, n, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
		p.Text("a")
		p.Sync()
		d.lose(0, lostNode)
		p.Drop()
		synctest.Wait()
		f(t, d, p, game)
	})
}

// found lets the other nodes reach node i again.
func (d *durableNodes) found(i int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.cut, nodeID(i))
}

// duringDial has f run while node i dials the game server the next time.
func (d *durableNodes) duringDial(i int, f func()) {
	d.of[i].game.Refuse = func(net.Conn, *http.Request) bool {
		if f != nil {
			f()
		}
		f = nil
		return false
	}
}

// goesOnAtFirstNode checks that node 0 has the session of inLostNode as if nothing had happened.
func (d *durableNodes) goesOnAtFirstNode(p *wstest.Player, game *wstest.Peer) {
	d.t.Helper()
	d.found(0)
	q := d.resumeAt(p, 1, 0, 1, 1)
	cameBy(d.t, q, "", 1)
	q.Text("b")
	game.Want("a", "b")
}

// Of two nodes that claim a session, the one that loses the write passes its client on.
func TestLostClaimIsNone(t *testing.T) {
	inLostNode(t, 3, func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		d.links[1].SetBefore(func() {
			d.links[1].SetBefore(nil)
			d.resumeAt(p, 2, 0, 1, 1)
		})
		before := d.of[1].metrics()
		q := d.resumeAt(p, 1, 0, 1, 1)
		cameBy(t, q, wire.MovedFailover, 1)
		wstest.Equal(t, "the loser has the session", d.has(1, p), false)
		d.of[1].wantNoDial()
		q.Pass(d.of[2].game.Next(), "b")
		d.of[1].wantSince(before, "reseat_claims_total", map[string]float64{"lost": 1})
		d.of[1].wantSince(before, "reseat_sessions_fenced_total", map[string]float64{})
	})
}

// While a node takes a session in, the seat names it a moment before it has the session. Its denial counts if the
// seat stays as it is.
func TestOwnerThatDeniesOnceKeepsItsSession(t *testing.T) {
	inLostNode(t, 3, func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		d.claimFor(2, p.Hello.Session)
		time.AfterFunc(50*time.Millisecond, func() {
			seat, err := d.keepers[2].Get(context.Background(), p.Hello.Session)
			seat.Ended, seat.Reason = wire.CodeEnded, "kicked"
			if err == nil {
				_, err = d.keepers[2].Put(context.Background(), seat)
			}
			if err != nil {
				t.Error(err)
			}
		})
		wstest.Equal(t, "close reason", d.settledAt(p, 1, 0, 1, 1).WantFinal(wire.CodeEnded).Reason, "kicked")
		wstest.Equal(t, "the node has the session", d.has(1, p), false)
	})
}

// A claim is read again before its hello: of two that both seem to have succeeded the later one counts.
func TestClaimIsReadAgainBeforeHello(t *testing.T) {
	inLostNode(t, 3, func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		d.duringDial(1, func() { d.claimFor(2, p.Hello.Session) })
		d.settledAt(p, 1, 0, 1, 1).WantRetry(wire.CodeNodeUnreachable)
		d.of[1].game.Next().WantReason(wire.CodeGoingAway, "moved")
		wstest.Equal(t, "the node has the session", d.has(1, p), false)
	})
}

// A claim that cannot be written is none: the older node, if it is there after all, goes on.
func TestClaimThatIsNotWrittenChangesNothing(t *testing.T) {
	inLostNode(t, 2, func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
		d.links[1].SetBefore(func() { d.links[1].SetCut(true) })
		d.settledAt(p, 1, 0, 1, 1).WantRetry(wire.CodeNodeUnreachable)
		wstest.Equal(t, "the node has the session", d.has(1, p), false)
		d.of[1].wantNoDial()
		d.goesOnAtFirstNode(p, game)
	})
}

// If it cannot be read again, the client is asked to come back, and nothing has changed.
func TestUnreadClaimChangesNothing(t *testing.T) {
	inLostNode(t, 2, func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		d.duringDial(1, func() { d.links[1].SetCut(true) })
		before := d.of[1].metrics()
		d.settledAt(p, 1, 0, 1, 1).WantRetry(wire.CodeNodeUnreachable)
		d.of[1].wantSince(before, "reseat_sessions_fenced_total", map[string]float64{})
		d.links[1].SetCut(false)
		q := d.resumeAt(p, 1, 0, 1, 1)
		cameBy(t, q, wire.MovedFailover, 1)
		q.Text("b")
		synctest.Wait()
		var got []string
		for d.of[1].game.Joined() > 0 { // the first was closed, since nobody waited for it any more
			game := d.of[1].game.Next()
			for m, ok := game.Come(); ok; m, ok = game.Come() {
				if m.Op == frame.Text {
					got = append(got, m.Data)
				}
			}
		}
		if !slices.Equal(got, []string{"b"}) {
			t.Errorf("the game server got %q, want b", got)
		}
	})
}

// Nobody claims a session from a node that may live, and a resume that is refused for it changes nothing.
func TestSessionOfLivingNodeIsNotClaimed(t *testing.T) {
	for _, state := range []cluster.Verdict{cluster.Alive, cluster.Unclear} {
		inLostNode(t, 2, func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
			time.Sleep(time.Second)
			before := d.seats.Records()[p.Hello.Session].Revision
			d.lose(0, cluster.Judgement{Verdict: state, Evidence: "test"})
			d.settledAt(p, 1, 0, 1, 1).WantRetry(wire.CodeNodeUnreachable)
			wstest.Equal(t, "revision of the seat", d.seats.Records()[p.Hello.Session].Revision, before)
			wstest.Equal(t, "the node has the session", d.has(1, p), false)
			d.goesOnAtFirstNode(p, game)
		})
	}
}

// A session is claimed only after all that can refuse its client: a refusal changes nothing.
func TestRefusedClientClaimsNothing(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
		game.Pass(p, "s")
		p.Ack(1)
		d.detach(p)
		time.Sleep(time.Second)
		p = d.resumeAt(p, 0, 1, 0, 0) // the seat has the ack then
		p.Sync()
		time.Sleep(time.Second)
		d.lose(0, lostNode)
		before := d.seats.Records()[p.Hello.Session].Revision
		p.Drop()
		d.settledAt(p, 1, 0, 0, 0).WantFinal(wire.CodeWindowExceeded)
		wstest.Equal(t, "revision of the seat", d.seats.Records()[p.Hello.Session].Revision, before)
		wstest.Equal(t, "the node has the session", d.has(1, p), false)
	})
}

// A claim has an epoch, and tokens, above all earlier ones; and it stands in the seat before its hello.
func TestTokensOfClaimAreNewerThanAllBefore(t *testing.T) {
	inCluster(t, 3, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		for i := 1; i <= 2; i++ {
			d.lose(i-1, lostNode)
			p.Drop()
			p = d.resumeAt(p, i, 0, 0, 0)
			d.of[i].game.Next()
			seat, err := d.keepers[i].Get(t.Context(), p.Hello.Session)
			if err != nil || seat.Epoch != uint64(i) || seat.Owner != nodeID(i) {
				t.Errorf("seat of epoch %d, owner %s, %v; want epoch %d, owner %s", seat.Epoch, seat.Owner, err, i, nodeID(i))
			}
			p.Sync()
			if s, _ := d.of[i].gw.Control().Session(p.Hello.Session); s.Epoch == 0 {
				t.Errorf("session %+v, want an epoch", s)
			}
		}
		// Whoever meets the newest token knows that an older owner is none.
		d.found(0)
		d.lose(1, lostNode)
		p.Drop()
		cameBy(t, d.resumeAt(p, 0, 0, 0, 0), "", 0)
		wstest.Equal(t, "node 0 has the session", d.has(0, p), false)
	})
}

// A node lets go of a session as soon as it learns that another one has it: by a token of a later epoch, by a
// write of its seat, or because it is notified.
func TestFormerOwnerLearnsOfClaim(t *testing.T) {
	eachInBubble(t, map[string]func(*durableNodes, *wstest.Player){
		"token": func(d *durableNodes, q *wstest.Player) {
			d.found(0)
			q.Drop()
			cameBy(d.t, d.resumeAt(q, 0, 0, 0, 0), "", 0)
		},
		"write": func(d *durableNodes, _ *wstest.Player) {
			d.links[0].SetCut(false)
			d.of[0].gw.Owner().RenewSeats()
		},
		"message": func(d *durableNodes, q *wstest.Player) {
			d.links[0].SetCut(false)
			d.of[0].gw.Owner().Fenced(q.Hello.Session, 1)
		},
	}, func(t *testing.T, learn func(*durableNodes, *wstest.Player)) {
		d := newDurableNodes(t, 2, durablePolicy())
		p, game := d.beginDurable()
		d.detach(p)
		d.lose(0, silentNode())
		d.links[0].SetCut(true) // it does not hear that it is fenced
		q := d.resumeAt(p, 1, 0, 0, 0)
		d.of[1].game.Next()
		q.Sync()
		if !d.has(0, p) {
			t.Fatal("the older node has let the session go too early")
		}
		learn(d, q)
		game.WantReason(wire.CodeGoingAway, "moved")
		wstest.Equal(t, "the older node has the session", d.has(0, p), false)
	})
}

// Whoever may publish in NATS can say that a session is another node's, and write what they like into its seat.
func TestOnlyASealedSeatEndsASession(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		synctest.Wait() // its owner writes no more
		own := d.seats.Records()[p.Hello.Session].Value
		d.claimFor(1, p.Hello.Session)
		taken := d.seats.Records()[p.Hello.Session].Value
		forged, otherKey := bytes.Clone(taken), bytes.Clone(taken)
		forged[len(forged)-1] ^= 1
		otherKey[5] ^= 1 // of the key's id
		for name, seat := range map[string][]byte{"as it was": own, "changed": forged, "of an unknown key": otherKey, "no seat": []byte("{}"), "empty": nil} {
			d.seats.Set(p.Hello.Session, seat)
			for range 3 {
				d.of[0].gw.Owner().Fenced(p.Hello.Session, 7)
			}
			d.of[0].gw.Owner().RenewSeats()
			synctest.Wait()
			if p.Sync(); !d.has(0, p) {
				t.Fatalf("a message ended the session, with its seat %s", name)
			}
		}
	})
}

// An owner that was away while its session went on and ended elsewhere does not bring the session back.
func TestSessionThatHasEndedElsewhereStaysEnded(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		d.lose(0, silentNode())
		d.links[0].SetCut(true)
		q := d.resumeAt(p, 1, 0, 0, 0)
		q.Sync()
		q.Drop()
		time.Sleep(durablePolicy().Grace + 15*time.Second)
		d.of[1].wantState(q, session.Ended)
		d.of[0].wantState(p, session.Attached)
		d.links[0].SetCut(false)
		d.of[0].gw.Owner().RenewSeats()
		wstest.Equal(t, "node 0 has the session", d.has(0, p), false)
		d.settledAt(q, 1, 0, 0, 0).WantClosing(wire.CodeNoSession)
	})
}

// A session that ends while the engine is away is not claimed once it is back, nor is its end reported again.
func TestEndIsWrittenOnceTheEngineIsBack(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		q, _ := d.beginDurable()
		p.Sync()
		q.Sync()
		synctest.Wait()
		d.seats.SetAway(true)
		d.of[0].gw.Control().End("", p.Hello.Session, wire.CodeNormal, "kicked")
		q.Control("bye")
		time.Sleep(10 * time.Second)
		d.seats.SetAway(false)
		time.Sleep(5 * time.Second)
		d.lose(0, lostNode)
		d.settledAt(p, 1, 0, 0, 0).WantClosing(wire.CodeEnded)
		d.settledAt(q, 1, 0, 0, 0).WantClosing(wire.CodeNoSession)
	})
}

// Without an answer of the engine a node ends an absent player's session without a word to the game server.
func TestOwnerWithoutEngineSaysNothing(t *testing.T) {
	for _, away := range []bool{false, true} {
		inCluster(t, 1, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
			p.Sync()
			d.seats.SetAway(away)
			p.Drop()
			if away {
				game.WantEnd()
				return
			}
			game.WantReason(wire.CodeGoingAway, "grace period over")
		})
	}
}

// What an attached client and its game server say goes through without the engine, and new sessions wait for none.
func TestAttachedClientNeedsNoEngine(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		d.seats.SetAway(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		over := make(chan struct{})
		t.Cleanup(func() { close(over) })
		for _, link := range d.links { // nor does it answer at once
			link.SetBefore(func() {
				select {
				case <-time.After(time.Minute):
				case <-over:
				}
			})
		}
		goesOn(p, game)
		p.Drop()
		begun := time.Now()
		q := d.resumeAt(p, 1, 1, 1, 1)
		cameBy(t, q, "", 1)
		n := d.of[0].PlayerWith("/match/8", "Reseat-Settled: 0 0\r\n")
		wstest.Equal(t, "a session without a seat is said to be durable", n.Hello.Durable, false)
		wstest.Equal(t, "it took", time.Since(begun), 0)
		q.Pass(game, "b")
	})
}

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
		l.of[0].gw.Owner().Fenced(l.p.Hello.Session, 1)
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
		l.of[0].gw.Owner().Fenced(l.p.Hello.Session, 1)
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
