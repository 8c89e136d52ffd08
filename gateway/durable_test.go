package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/cluster"
	"reseat/gateway/events"
	"reseat/gateway/internal/test/clustertest"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
	"reseat/tokens"
)

// Takers implements gateway.Cluster: all nodes that can be reached.
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

// HandOver implements gateway.Cluster.
func (m member) HandOver(_ context.Context, node string, h *gateway.Handoff) error {
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
			w.gw.ServeHandoff(rec, httptest.NewRequest(http.MethodPost, gateway.HandoffPath+h.Session, strings.NewReader(string(b))))
			if lost {
				return errors.New("the answer was lost")
			}
			return gateway.HandoffError(rec.Result())
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
	p := testPolicy()
	p.Durable, p.Redeliver = true, true
	return p
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
		seats := cluster.NewSeats(func() string { return nodeID(i) }, link, keys.Derive, slog.New(slog.NewTextHandler(io.Discard, nil)))
		d.keepers = append(d.keepers, seats)
		c.Seats, c.Driver = seats, transport.Net // a session without connections would begin on an event loop
	})
	for i, link := range d.links {
		d.keepContact(i, link)
	}
	t.Cleanup(func() { // their seats are written before the gateways close
		for _, w := range d.of {
			list, _ := w.gw.Sessions(registry.Filter{Limit: 100})
			for _, e := range list {
				w.gw.End(e.ID, wire.CodeNormal, "")
			}
		}
		time.Sleep(20 * time.Second) // fake: all have ended
	})
	return d
}

// inCluster runs f in a bubble of synctest, with nodes of its own.
func inCluster(t *testing.T, n int, p policy.Policy, f func(*testing.T, *durableNodes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newDurableNodes(t, n, p)) })
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

// takeSeat writes node 1 into the seat of a session.
func (d *durableNodes) takeSeat(session string) {
	d.t.Helper()
	synctest.Wait() // its owner writes no more
	seat, err := d.keepers[1].Get(d.t.Context(), session)
	if err == nil {
		seat.Owner, seat.Epoch = nodeID(1), seat.Epoch+1
		_, err = d.keepers[1].Put(d.t.Context(), seat)
	}
	if err != nil {
		d.t.Fatal(err)
	}
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
	m := q.WantControl(wire.VerbHello)
	q.Hello = wire.Hello{}
	if err := json.Unmarshal([]byte(m.Data), &q.Hello); err != nil {
		d.t.Fatal(err)
	}
	return q
}

func TestDurableSessionGoesOnAtAnotherNode(t *testing.T) {
	inCluster(t, 3, durablePolicy(), func(t *testing.T, d *durableNodes) {
		p, game := d.beginDurable()
		if e := game.Req.Header.Get("Reseat-Epoch"); e != "1" {
			t.Errorf("first epoch %q", e)
		}
		p.Pass(game, "a", "b")
		game.Pass(p, "s1")
		p.Ack(1)
		time.Sleep(2 * time.Second)
		d.lose(0, gateway.NodeVerdict{State: gateway.NodeGone, Evidence: "test"})
		p.Drop()
		q := d.resumeAt(p, 1, 1, 2, 3)
		if h := q.Hello; h.Moved != wire.MovedFailover || !h.Durable || h.Received != 2 || h.Replay != 0 || !h.Resumed {
			t.Errorf("hello %+v", h)
		}
		again := d.of[1].game.Next()
		for name, want := range map[string]string{
			"Reseat-Resumed": "failover", "Reseat-Session": p.Hello.Session, "Reseat-Up-From": "3", "Reseat-Down-From": "2", "Reseat-Epoch": "1002",
		} {
			if got := again.Req.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		goesOn(q, again)
		q.Ack(2)
		q.Sync()
		// The next resume is an ordinary one, also through another node.
		q.Drop()
		again.Text("s3")
		synctest.Wait()
		r := d.resumeAt(q, 2, 2, 3, 3)
		r.Want("s3")
		if r.Hello.Moved != "" || d.of[2].game.Joined() != 0 {
			t.Errorf("hello %+v, %d dials", r.Hello, d.of[2].game.Joined())
		}
	})
}

func TestOwnerLetsGoOfAClaimedSession(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes) {
		p, game := d.beginDurable()
		d.detach(p)
		d.lose(0, gateway.NodeVerdict{State: gateway.NodeSilent, Evidence: "test", Heard: time.Now()})
		q := d.resumeAt(p, 1, 0, 0, 0)
		d.of[1].game.Next()
		q.Sync()
		d.of[0].gw.Fenced(p.Hello.Session, 1)
		game.WantReason(wire.CodeGoingAway, "moved")
		synctest.Wait()
		if _, ok := d.of[0].gw.Session(p.Hello.Session); ok {
			t.Error("the older node still has the session")
		}
	})
}

func TestDrainHandsDurableSessionsOverWhole(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes) {
		p, game := d.beginDurable()
		away, awayGame := d.beginDurable()
		p.Pass(game, "a")
		away.Sync()
		away.Drop()
		awayGame.Text("missed")
		synctest.Wait()
		go d.of[0].gw.Drain(context.Background())
		for _, g := range []*wstest.Peer{game, awayGame} {
			g.WantReason(wire.CodeGoingAway, "moved")
		}
		game.Text("last words") // after the Close frame came, before its answer
		game.Close(wire.CodeGoingAway, "")
		awayGame.Close(wire.CodeGoingAway, "")
		p.Want("last words")
		p.WantRetry(wire.CodeDraining)
		q := d.resumeAt(p, 1, 1, 1, 1)
		if q.Hello.Moved != wire.MovedHandoff || q.Hello.Received != 1 {
			t.Errorf("hello %+v", q.Hello)
		}
		next := d.of[1].game.Next()
		if got := next.Req.Header.Get("Reseat-Resumed"); got != "handoff" {
			t.Errorf("Reseat-Resumed: %q", got)
		}
		r := d.resumeAt(away, 1, 0, 0, 0)
		r.Want("missed")
		d.of[1].wantState(r, session.Attached)
		next.Pass(q, "on")
	})
}

// A game server that writes to the sessions of a draining node moves none of them into nowhere.
func TestCallsForSessionThatIsHandedOverWait(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes) {
		p, game := d.beginDurable()
		outcomes := make(chan gateway.Outcome, 2)
		d.handingOver = func() {
			go func() {
				_, o := d.of[0].gw.SetData(p.Hello.Session, []byte("late"), nil)
				outcomes <- o
			}()
			go func() { outcomes <- d.of[0].gw.EndBy("", p.Hello.Session, wire.CodeNormal, "late") }()
			time.Sleep(100 * time.Millisecond)
		}
		go d.of[0].gw.Drain(context.Background())
		game.WantClose(wire.CodeGoingAway)
		if _, o := d.of[0].gw.SetData(p.Hello.Session, []byte("in time"), nil); o != gateway.Done {
			t.Errorf("outcome %v before the game server's answer", o)
		}
		game.Close(wire.CodeGoingAway, "")
		p.WantClosing(wire.CodeDraining)
		for range 2 {
			if o := <-outcomes; o == gateway.Done {
				t.Error("a call for a session that has gone was answered as done")
			}
		}
		if q := d.resumeAt(p, 1, 0, 0, 0); q.Hello.Moved != wire.MovedHandoff {
			t.Errorf("hello %+v", q.Hello)
		}
		if data, _, _ := d.of[1].gw.Data(p.Hello.Session); string(data) != "in time" {
			t.Errorf("data %q", data)
		}
	})
}

// A change is in the seat before the call is answered, so a crash right after the answer loses nothing.
func TestCallsAreAnsweredOnceTheSeatHasTheChange(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes) {
		p, _ := d.beginDurable()
		q, _ := d.beginDurable()
		p.Sync()
		q.Sync()
		synctest.Wait()
		d.links[0].Before = func() { time.Sleep(200 * time.Millisecond) }
		if _, o := d.of[0].gw.SetData(p.Hello.Session, []byte("score"), nil); o != gateway.Done {
			t.Fatalf("outcome %v", o)
		}
		if o := d.of[0].gw.EndBy("", q.Hello.Session, wire.CodeNormal, "kicked"); o != gateway.Done {
			t.Fatalf("outcome %v", o)
		}
		d.links[0].SetCut(true)
		d.lose(0, gateway.NodeVerdict{State: gateway.NodeGone, Evidence: "test"})
		d.resumeAt(p, 1, 0, 0, 0)
		if data, _, _ := d.of[1].gw.Data(p.Hello.Session); string(data) != "score" {
			t.Errorf("data %q", data)
		}
		d.settledAt(q, 1, 0, 0, 0).WantClosing(wire.CodeEnded)
	})
}

// A node that has let its session go, though nobody has taken it, keeps nobody out.
func TestSessionThatItsOwnerDoesNotHaveIsClaimed(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes) {
		p, game := d.beginDurable()
		p.Sync()
		synctest.Wait()
		own := d.seats.Records()[p.Hello.Session]
		d.takeSeat(p.Hello.Session)
		d.of[0].gw.Fenced(p.Hello.Session, 1)
		game.WantClose(wire.CodeGoingAway)
		d.seats.Set(p.Hello.Session, own.Value) // as if the write of node 1 had been lost
		synctest.Wait()                         // while the session ends, its client is asked to try again
		if q := d.resumeAt(p, 1, 0, 0, 0); q.Hello.Moved != wire.MovedFailover {
			t.Errorf("hello %+v", q.Hello)
		}
	})
}

// A spent token is refused and reported by a node that does not have the session, too.
func TestSpentTokenAtClaimIsReported(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes) {
		p, _ := d.beginDurable()
		d.detach(p)
		q := d.resumeAt(p, 0, 0, 0, 0)
		q.Sync()
		q.Drop()
		synctest.Wait()
		heard := d.of[1].listen()
		d.lose(0, gateway.NodeVerdict{State: gateway.NodeGone, Evidence: "test"})
		d.settledAt(p, 1, 0, 0, 0).WantClosing(wire.CodeBadToken)
		heard.want(p.Hello.Session, events.Replayed)
	})
}

func TestImpossibleCountsClaimNothing(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes) {
		p, _ := d.beginDurable()
		d.detach(p)
		d.lose(0, gateway.NodeVerdict{State: gateway.NodeGone, Evidence: "test"})
		d.settledAt(p, 1, 9007199254740000, 0, 0).WantClosing(wire.CodeProtocolViolation)
		d.settledAt(p, 1, 0, 9007199254740000, 9007199254740000).WantClosing(wire.CodeProtocolViolation)
		if q := d.resumeAt(p, 1, 0, 0, 0); q.Hello.Moved != wire.MovedFailover {
			t.Errorf("hello %+v", q.Hello)
		}
	})
}

// Without another node that takes them, durable sessions stay claimable: by this node's next process, say.
func TestDurableSessionCanBeClaimedAfterDrain(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes) {
		p, game := d.beginDurable()
		p.Pass(game, "a")
		d.lose(1, gateway.NodeVerdict{State: gateway.NodeUnclear}) // nobody to take it
		go d.of[0].gw.Drain(context.Background())
		game.WantReason(wire.CodeGoingAway, "moved")
		p.WantRetry(wire.CodeDraining)
		d.lose(0, gateway.NodeVerdict{State: gateway.NodeGone, Evidence: "it has left"})
		if q := d.resumeAt(p, 1, 0, 1, 1); q.Hello.Moved != wire.MovedFailover || q.Hello.Received != 1 {
			t.Errorf("hello %+v", q.Hello)
		}
	})
}

// The client waits for the game server when another node takes the session.
func TestClientThatWaitsForDialOfSessionThatMovesComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hard := durablePolicy()
		hard.Hard = true
		d := newDurableNodes(t, 2, hard)
		p, game := d.beginDurable()
		d.detach(p)
		game.WantClose(wire.CodeGoingAway)
		game.Close(wire.CodeGoingAway, "")
		synctest.Wait()
		d.of[0].game.Refuse = func(net.Conn, *http.Request) bool { time.Sleep(3 * time.Second); return false }
		waiting := d.settledAt(p, 0, 0, 0, 0)
		time.Sleep(time.Second)
		d.takeSeat(p.Hello.Session)
		d.of[0].gw.Fenced(p.Hello.Session, 1)
		waiting.WantRetry(wire.CodeNodeUnreachable)
	})
}

// handsOver drains node 0, whose game server's connection ends at once, and returns p at node 1, which must have
// been handed everything.
func (d *durableNodes) handsOver(p *wstest.Player, game *wstest.Peer) *wstest.Player {
	d.t.Helper()
	p.Pass(game, "a")
	go d.of[0].gw.Drain(context.Background())
	game.WantClose(wire.CodeGoingAway)
	game.Text("last words")
	game.Close(wire.CodeGoingAway, "")
	p.Want("last words")
	p.WantRetry(wire.CodeDraining)
	q := d.resumeAt(p, 1, 0, 1, 1)
	q.Want("last words")
	if q.Hello.Moved != wire.MovedHandoff || q.Hello.Received != 1 {
		d.t.Errorf("hello %+v", q.Hello)
	}
	return q
}

func TestHandOffWhoseAnswerIsLostIsWhole(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes) {
		p, game := d.beginDurable()
		d.lostAnswers = true
		d.handsOver(p, game)
	})
}

// A write of the seat was under way when the session was frozen.
func TestHandOffWhoseSeatIsWrittenMeanwhileIsWhole(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(t *testing.T, d *durableNodes) {
		p, game := d.beginDurable()
		p.Sync()
		synctest.Wait()
		var written atomic.Bool
		d.handingOver = func() {
			if written.CompareAndSwap(false, true) {
				d.seats.Set(p.Hello.Session, d.seats.Records()[p.Hello.Session].Value)
			}
		}
		d.handsOver(p, game)
	})
}
