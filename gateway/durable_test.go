package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/cluster"
	"reseat/gateway/control"
	"reseat/gateway/events"
	"reseat/gateway/internal/test/clustertest"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/owner"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
	"reseat/tokens"
)

// Takers implements owner.Cluster: all nodes that can be reached.
func (m member) Takers(string) (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.of {
		if id := nodeID(i); id != m.id {
			if _, down := m.cut[id]; !down {
				list = append(list, id)
			}
		}
	}
	return list
}

// HandOff implements owner.Cluster.
func (m member) HandOff(_ context.Context, node string, h *owner.Handoff) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	m.mu.Lock()
	_, down := m.cut[node]
	lost, meanwhile := m.lostAnswers, m.handingOver
	m.mu.Unlock()
	if meanwhile != nil {
		meanwhile()
	}
	if down {
		return errors.New("no answer")
	}
	for i, w := range m.of {
		if nodeID(i) == node {
			rec := httptest.NewRecorder()
			w.gw.Owner().ServeHandoff(rec, httptest.NewRequest(http.MethodPost, owner.HandoffPath+h.Session, strings.NewReader(string(b))))
			if lost {
				return errors.New("the answer was lost")
			}
			return owner.HandoffError(rec.Result())
		}
	}
	return errors.New("no such node")
}

// durableNodes are nodes whose sessions outlive them, with their engine.
type durableNodes struct {
	*nodes
	seats *clustertest.Seats

	// Of each node.
	links   []*clustertest.Link
	keepers []*cluster.Seats
}

func durablePolicy() policy.Policy {
	return changed(testPolicy(), func(p *policy.Policy) { p.Durable, p.Redeliver = true, true })
}

// hardDurable is durablePolicy with --disconnect hard.
func hardDurable() policy.Policy {
	return changed(durablePolicy(), func(p *policy.Policy) { p.Hard = true })
}

// What the nodes know of one that has vanished, or is silent from now on.
var lostNode = cluster.Judgement{Verdict: cluster.Gone, Evidence: "test"}

func silentNode() cluster.Judgement {
	return cluster.Judgement{Verdict: cluster.Silent, Evidence: "test", Heard: time.Now()}
}

func newDurableNodes(t *testing.T, n int, p policy.Policy) *durableNodes {
	t.Helper()
	d := &durableNodes{seats: clustertest.NewSeats()}
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d.nodes = newNodes(t, n, p, func(c *gateway.Config) {
		i := len(d.links)
		link := d.seats.Link()
		d.links = append(d.links, link)
		seats := cluster.NewSeats(func() string { return nodeID(i) }, link, keys.Derive, slog.New(slog.DiscardHandler))
		d.keepers = append(d.keepers, seats)
		c.Seats, c.Driver = seats, transport.Net // a session without connections would begin on an event loop
	})
	for i, link := range d.links {
		d.keepContact(i, link)
	}
	t.Cleanup(func() { // their seats are written before the gateways close
		for _, w := range d.of {
			list, _ := w.gw.Control().Sessions(registry.Filter{Limit: 100})
			for _, e := range list {
				w.gw.Control().End("", e.ID, wire.CodeNormal, "")
			}
		}
		time.Sleep(20 * time.Second) // fake: all have ended
	})
	return d
}

// inCluster runs f in a bubble of synctest, with nodes of its own, and a durable session at node 0.
func inCluster(t *testing.T, n int, p policy.Policy, f func(*testing.T, *durableNodes, *wstest.Player, *wstest.Peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDurableNodes(t, n, p)
		player, game := d.beginDurable()
		f(t, d, player, game)
	})
}

// detach disconnects p once everything that it said has been processed.
func (n *nodes) detach(p *wstest.Player) {
	n.t.Helper()
	p.Sync()
	p.Drop()
	synctest.Wait()
}

// keepContact writes every 3 seconds, as a node writes its own record.
func (d *durableNodes) keepContact(i int, link *clustertest.Link) {
	ctx, cancel := context.WithCancel(context.Background())
	d.t.Cleanup(cancel)
	var revision uint64
	write := func() {
		if r, err := link.PutSeat(ctx, fmt.Sprintf("%x", 0xfeed0+i), nil, revision); err == nil {
			revision = r
		}
	}
	write()
	go func() {
		for tick := time.NewTicker(3 * time.Second); ctx.Err() == nil; {
			select {
			case <-tick.C:
				write()
			case <-ctx.Done():
				tick.Stop()
			}
		}
	}()
}

// claimFor takes a session for node i, as far as its seat is concerned.
func (d *durableNodes) claimFor(i int, session string) {
	d.t.Helper()
	seat, err := d.keepers[i].Get(context.Background(), session)
	if err == nil {
		seat.Owner, seat.Epoch = nodeID(i), seat.Epoch+1
		_, err = d.keepers[i].Put(context.Background(), seat)
	}
	if err != nil {
		d.t.Error(err)
	}
}

// has reports whether node i has the session.
func (d *durableNodes) has(i int, p *wstest.Player) bool {
	synctest.Wait()
	_, ok := d.of[i].gw.Control().Session(p.Hello.Session)
	return ok
}

// beginDurable begins a durable session at node 0.
func (d *durableNodes) beginDurable() (*wstest.Player, *wstest.Peer) {
	d.t.Helper()
	p := d.of[0].PlayerWith("/match/7", "Reseat-Settled: 0 0\r\n")
	if !p.Hello.Durable {
		d.t.Fatalf("hello %+v, want durable", p.Hello)
	}
	return p, d.of[0].game.Next()
}

// settledAt is a resume of p at node i that also says what is settled. The caller checks the outcome.
func (d *durableNodes) settledAt(p *wstest.Player, i int, received, acked, sent int) *wstest.Peer {
	d.t.Helper()
	return p.At(d.of[i].Door).TryResume(fmt.Sprintf("%s, reseat.settled.%d.%d", p.Hello.Token, acked, sent), fmt.Sprint(received))
}

// resumeAt is settledAt for a resume that succeeds.
func (d *durableNodes) resumeAt(p *wstest.Player, i int, received, acked, sent int) *wstest.Player {
	d.t.Helper()
	q := p.At(d.of[i].Door)
	q.Peer = d.settledAt(p, i, received, acked, sent)
	q.Hello = wire.Hello{}
	if err := json.Unmarshal([]byte(q.WantControl(wire.VerbHello).Data), &q.Hello); err != nil {
		d.t.Fatal(err)
	}
	return q
}

// cameBy checks how a client's session came to the node that said hello, "" if it was there, and how many messages
// it had received.
func cameBy(t *testing.T, p *wstest.Player, moved string, received uint64) {
	t.Helper()
	if h := p.Hello; h.Moved != moved || h.Received != received {
		t.Errorf("hello %+v, want moved %q, received %d", h, moved, received)
	}
}

func (d *durableNodes) drain(i int) { go d.of[i].gw.Drain(context.Background()) }

func TestDurableSessionGoesOnAtAnotherNode(t *testing.T) {
	inCluster(t, 3, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
		wstest.Equal(t, "first epoch", game.Req.Header.Get("Reseat-Epoch"), "1")
		p.Pass(game, "a", "b")
		game.Pass(p, "s1")
		p.Ack(1)
		time.Sleep(2 * time.Second)
		d.lose(0, lostNode)
		p.Drop()
		q := d.resumeAt(p, 1, 1, 2, 3)
		cameBy(t, q, wire.MovedFailover, 2)
		if h := q.Hello; !h.Durable || h.Replay != 0 || !h.Resumed {
			t.Errorf("hello %+v, want durable, resumed, without replay", h)
		}
		again := d.of[1].game.Next()
		for name, want := range map[string]string{
			"Reseat-Resumed": "failover", "Reseat-Session": p.Hello.Session, "Reseat-Up-From": "3", "Reseat-Down-From": "2", "Reseat-Epoch": "1002",
		} {
			wstest.Equal(t, name, again.Req.Header.Get(name), want)
		}
		goesOn(q, again)
		q.Ack(2)
		// The next resume is an ordinary one, also through another node.
		q.Sync()
		q.Drop()
		again.Text("s3")
		synctest.Wait()
		r := d.resumeAt(q, 2, 2, 3, 3)
		r.Want("s3")
		cameBy(t, r, "", 3)
		d.of[2].wantNoDial()
	})
}

func TestDrainHandsDurableSessionsOverWhole(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
		away, awayGame := d.beginDurable()
		d.detach(away)
		awayGame.Text("missed")
		synctest.Wait()
		q := d.handsOver(p, game, func() {
			awayGame.WantReason(wire.CodeGoingAway, "moved")
			awayGame.Close(wire.CodeGoingAway, "")
		})
		next := d.of[1].game.Next()
		wstest.Equal(t, "Reseat-Resumed", next.Req.Header.Get("Reseat-Resumed"), "handoff")
		synctest.Wait() // the other session is there, too
		r := d.resumeAt(away, 1, 0, 0, 0)
		r.Want("missed")
		d.of[1].wantState(r, session.Attached)
		next.Pass(q, "on")
	})
}

// handsOver drains node 0, whose game server's connection ends at once, and returns p at node 1, which must have
// been handed everything. It calls meanwhile before that.
func (d *durableNodes) handsOver(p *wstest.Player, game *wstest.Peer, meanwhile func()) *wstest.Player {
	d.t.Helper()
	p.Pass(game, "a")
	d.drain(0)
	game.WantReason(wire.CodeGoingAway, "moved")
	meanwhile()
	game.Text("last words") // after the Close frame came, before its answer
	game.Close(wire.CodeGoingAway, "")
	p.Want("last words")
	p.WantRetry(wire.CodeDraining)
	q := d.resumeAt(p, 1, 0, 1, 1)
	q.Want("last words")
	cameBy(d.t, q, wire.MovedHandoff, 1)
	return q
}

func TestHandOffThatMeetsTroubleIsWhole(t *testing.T) {
	eachInBubble(t, map[string]func(d *durableNodes, session string){
		"its answer is lost": func(d *durableNodes, _ string) { d.lostAnswers = true },
		"a write of the seat was under way when the session was frozen": func(d *durableNodes, session string) {
			var written atomic.Bool
			d.handingOver = func() {
				if written.CompareAndSwap(false, true) {
					d.seats.Set(session, d.seats.Records()[session].Value)
				}
			}
		},
	}, func(t *testing.T, trouble func(*durableNodes, string)) {
		d := newDurableNodes(t, 2, durablePolicy())
		p, game := d.beginDurable()
		p.Sync()
		synctest.Wait()
		trouble(d, p.Hello.Session)
		d.handsOver(p, game, func() {})
	})
}

// A game server that writes to the sessions of a draining node moves none of them into nowhere.
func TestCallsForSessionThatIsHandedOffWait(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
		outcomes := make(chan control.Outcome, 2)
		d.handingOver = func() {
			go func() {
				_, o := d.of[0].gw.Control().SetData(p.Hello.Session, []byte("late"), nil)
				outcomes <- o
			}()
			go func() { outcomes <- d.of[0].gw.Control().End("", p.Hello.Session, wire.CodeNormal, "late") }()
			time.Sleep(100 * time.Millisecond)
		}
		d.drain(0)
		game.WantClose(wire.CodeGoingAway)
		_, o := d.of[0].gw.Control().SetData(p.Hello.Session, []byte("in time"), nil)
		wstest.Equal(t, "outcome before the game server's answer", o, control.Done)
		game.Close(wire.CodeGoingAway, "")
		p.WantClosing(wire.CodeDraining)
		for range 2 {
			if o := <-outcomes; o == control.Done {
				t.Error("a call for a session that has gone was answered as done")
			}
		}
		cameBy(t, d.resumeAt(p, 1, 0, 0, 0), wire.MovedHandoff, 0)
		data, _, _ := d.of[1].gw.Control().Data(p.Hello.Session)
		wstest.Equal(t, "data", string(data), "in time")
	})
}

// A change is in the seat before the call is answered, so a crash right after the answer loses nothing.
func TestCallsAreAnsweredOnceTheSeatHasTheChange(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		q, _ := d.beginDurable()
		p.Sync()
		q.Sync()
		synctest.Wait()
		d.links[0].SetBefore(func() { time.Sleep(200 * time.Millisecond) })
		_, o := d.of[0].gw.Control().SetData(p.Hello.Session, []byte("score"), nil)
		wstest.Equal(t, "SetData", o, control.Done)
		wstest.Equal(t, "End", d.of[0].gw.Control().End("", q.Hello.Session, wire.CodeNormal, "kicked"), control.Done)
		d.links[0].SetCut(true)
		d.lose(0, lostNode)
		d.resumeAt(p, 1, 0, 0, 0)
		data, _, _ := d.of[1].gw.Control().Data(p.Hello.Session)
		wstest.Equal(t, "data", string(data), "score")
		d.settledAt(q, 1, 0, 0, 0).WantClosing(wire.CodeEnded)
	})
}

// A node that has let its session go, though nobody has taken it, keeps nobody out.
func TestSessionThatItsOwnerDoesNotHaveIsClaimed(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		synctest.Wait()
		own := d.seats.Records()[p.Hello.Session]
		d.claimFor(1, p.Hello.Session)
		d.of[0].gw.Owner().Fenced(p.Hello.Session, 1)
		game.WantClose(wire.CodeGoingAway)
		d.seats.Set(p.Hello.Session, own.Value) // as if the write of node 1 had been lost
		synctest.Wait()                         // while the session ends, its client is asked to try again
		cameBy(t, d.resumeAt(p, 1, 0, 0, 0), wire.MovedFailover, 0)
	})
}

// A spent token is refused and reported by a node that does not have the session, too.
func TestSpentTokenAtClaimIsReported(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		d.detach(p)
		d.detach(d.resumeAt(p, 0, 0, 0, 0))
		heard := d.of[1].listen()
		d.lose(0, lostNode)
		d.settledAt(p, 1, 0, 0, 0).WantClosing(wire.CodeBadToken)
		heard.want(p.Hello.Session, events.Replayed)
	})
}

func TestImpossibleCountsClaimNothing(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		const impossible = 9007199254740000
		d.detach(p)
		d.lose(0, lostNode)
		d.settledAt(p, 1, impossible, 0, 0).WantClosing(wire.CodeProtocolViolation)
		d.settledAt(p, 1, 0, impossible, impossible).WantClosing(wire.CodeProtocolViolation)
		cameBy(t, d.resumeAt(p, 1, 0, 0, 0), wire.MovedFailover, 0)
	})
}

// Without another node that takes them, durable sessions stay claimable: by this node's next process, say.
func TestDurableSessionCanBeClaimedAfterDrain(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, game *wstest.Peer) {
		p.Pass(game, "a")
		d.lose(1, cluster.Judgement{Verdict: cluster.Unclear}) // nobody to take it
		d.drain(0)
		game.WantReason(wire.CodeGoingAway, "moved")
		p.WantRetry(wire.CodeDraining)
		d.lose(0, lostNode)
		cameBy(t, d.resumeAt(p, 1, 0, 1, 1), wire.MovedFailover, 1)
	})
}
