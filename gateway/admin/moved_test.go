package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/cluster"
	"reseat/gateway/internal/test/clustertest"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/owner"
	"reseat/gateway/transport"
	"reseat/tokens"
)

// inDurableTown is inTown with sessions that outlive their nodes.
func inDurableTown(t *testing.T, names []string, test func(t *testing.T, nodes []*place, seats *clustertest.Seats)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := newTown(t)
		all.seats = clustertest.NewSeats()
		var err error
		if all.keys, err = tokens.Load(nil, tokens.Options{}); err != nil {
			t.Fatal(err)
		}
		test(t, all.fill(names), all.seats)
	})
}

// withSeats makes a node's sessions durable.
func (p *place) withSeats() change {
	id, link := p.node.ID, p.town.seats.Link()
	p.seats = cluster.NewSeats(func() string { return id }, link, p.town.keys.Derive, slog.New(slog.DiscardHandler))
	if _, err := link.PutSeat(context.Background(), "feed"+id, nil, 0); err != nil { // contact
		p.town.Fatal(err)
	}
	return func(c *gateway.Config, _ *Options) {
		c.Keys, c.Seats, c.Driver = p.town.keys, p.seats, transport.Net
		c.Default.Durable, c.Default.Redeliver = true, true
		c.Routes[0].Policy = c.Default
		c.Cluster = neighbour{placeID(id), p.town}
	}
}

// A neighbour is a node as the gateway of another node sees it.
type neighbour struct {
	placeID
	town *town
}

// Judge implements owner.Cluster.
func (n neighbour) Judge(_ context.Context, node string) cluster.Judgement {
	v := cluster.Judgement{Verdict: cluster.Alive, Evidence: "test"}
	n.each(func(p *place) {
		if p.node.ID == node && p.gone {
			v.Verdict = cluster.Gone
		}
	})
	return v
}

// Takers implements owner.Cluster: all other nodes that live.
func (n neighbour) Takers(string) (list []string) {
	n.each(func(p *place) {
		if p.node.ID != n.ID() && !p.gone && !p.down {
			list = append(list, p.node.ID)
		}
	})
	return list
}

func (n neighbour) each(f func(*place)) {
	n.town.mu.Lock()
	defer n.town.mu.Unlock()
	for _, p := range n.town.nodes {
		f(p)
	}
}

// HandOff implements owner.Cluster.
func (n neighbour) HandOff(_ context.Context, node string, h *owner.Handoff) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	var to *place
	n.each(func(p *place) {
		if p.node.ID == node {
			to = p
		}
	})
	rec := httptest.NewRecorder()
	to.gw.Owner().ServeHandoff(rec, httptest.NewRequest(http.MethodPost, owner.HandoffPath+h.Session, strings.NewReader(string(b))))
	return owner.HandoffError(rec.Result())
}

// beginDurable begins a durable session.
func (p *place) beginDurable() (*wstest.Player, *wstest.Peer) {
	p.t.Helper()
	player := p.PlayerWith("/match/7", "Reseat-Settled: 0 0\r\n")
	if !player.Hello.Durable {
		p.t.Fatalf("hello %+v, want durable", player.Hello)
	}
	return player, p.game.Next()
}

// claim has a client whose node is lost resume here.
func (p *place) claim(c *wstest.Player) (*wstest.Player, *wstest.Peer) {
	p.t.Helper()
	q := c.At(p.Door)
	q.Peer = q.TryResume(c.Hello.Token+", reseat.settled.0.0", "0")
	m := q.WantControl("hello")
	q.Hello = c.Hello
	if err := json.Unmarshal([]byte(m.Data), &q.Hello); err != nil {
		p.t.Fatal(err)
	}
	return q, p.game.Next()
}

// lose ends a node without a word: its sessions are lost with it.
func (p *place) lose() {
	p.set(func(p *place) { p.gone = true })
}

// wantMoved checks what a node says of a session.
func (p *place) wantMoved(c *wstest.Player, node, durable, moved string, epoch float64) {
	p.t.Helper()
	p.wantDescribed(c, "node", node, "durable", durable, "moved", moved, "epoch", epoch)
}

func TestSessionSaysWhetherItIsDurable(t *testing.T) {
	inDurableTown(t, three[:2], func(t *testing.T, nodes []*place, seats *clustertest.Seats) {
		p, _ := nodes[0].beginDurable()
		nodes[1].wantMoved(p, "ann", "covered", "", 0)
		plain, _ := nodes[0].play("")
		nodes[1].wantMoved(plain, "ann", "no", "", 0)
		if got := nodes[1].object("GET", "/api/v1/overview", "", http.StatusOK)["totals"].(map[string]any)["durable"]; fmt.Sprint(got) != "map[covered:1 exposed:0]" {
			t.Errorf("the overview counts %v", got)
		}
		seats.SetAway(true)
		nodes[0].wantStatus("POST", path(p)+"/disconnect", http.StatusNoContent)
		nodes[0].object("PATCH", path(p), `{"grace":"5m"}`, http.StatusOK)
		time.Sleep(2 * time.Second)
		nodes[1].wantMoved(p, "ann", "exposed", "", 0)
		if got := nodes[1].object("GET", "/api/v1/overview", "", http.StatusOK)["totals"].(map[string]any)["durable"]; fmt.Sprint(got) != "map[covered:0 exposed:1]" {
			t.Errorf("the overview counts %v", got)
		}
		seats.SetAway(false)
		nodes[0].wantStatus("DELETE", path(plain), http.StatusNoContent)
		nodes[1].wantMoved(plain, "ann", "no", "", 0)
	})
}

func TestCallsReachSessionThatAnotherNodeHasClaimed(t *testing.T) {
	inDurableTown(t, three, func(t *testing.T, nodes []*place, _ *clustertest.Seats) {
		p, _ := nodes[0].beginDurable()
		nodes[0].send("PUT", path(p)+"/data", "seat=3")
		nodes[0].object("PATCH", path(p), `{"group":"red"}`, http.StatusOK)
		synctest.Wait()
		nodes[0].lose()
		for _, at := range nodes[1:] { // nobody has it yet
			at.wantProblem("GET", path(p), http.StatusBadGateway, "until its client comes back")
		}
		q, game := nodes[1].claim(p)
		q.Sync()
		for _, at := range nodes[1:] {
			at.wantMoved(q, "bob", "covered", "failover", 1)
		}
		at := nodes[2]
		at.wantList("?group=red", q)
		if got := at.list("").Sessions[0]; got["node"] != "bob" || got["moved"] != "failover" || got["durable"] != "covered" {
			t.Errorf("listed as %v", got)
		}
		if got := at.call("GET", path(q)+"/data"); got.Body.String() != "seat=3" {
			t.Errorf("data %q", got.Body)
		}
		var history []string
		for _, e := range at.object("GET", path(q)+"/history", "", http.StatusOK)["events"].([]any) {
			history = append(history, fmt.Sprint(e.(map[string]any)["type"], " ", e.(map[string]any)["reason"]))
		}
		if got := strings.Join(history, ","); got != "session.created ,session.moved failover,session.resumed " {
			t.Errorf("history %q", got)
		}
		at.wantObject("PATCH", path(q), `{"grace":"5m"}`, "grace", "5m", "node", "bob")
		at.wantStatus("POST", path(q)+"/disconnect", http.StatusNoContent)
		at.wantStatus("DELETE", path(q)+"?code=4001&reason=kicked", http.StatusNoContent)
		if got := game.WantClose(4001); got != "kicked" {
			t.Errorf("the game server got %q", got)
		}
		synctest.Wait()
		at.wantMoved(q, "bob", "covered", "failover", 1)
		at.wantProblem("DELETE", path(q), http.StatusConflict, "ended")
		time.Sleep(6 * time.Minute) // forgotten, and its seat says only that it has ended
		at.wantProblem("GET", path(q), http.StatusNotFound, "no such session")
	})
}

// The node that a session's id names knows where it has handed it off, and else the seat does.
func TestCallsReachSessionThatWasHandedOff(t *testing.T) {
	inDurableTown(t, three, func(t *testing.T, nodes []*place, seats *clustertest.Seats) {
		p, game := nodes[0].beginDurable()
		p.Sync()
		nodes[0].object("POST", "/api/v1/drain?node=self", "", http.StatusOK)
		game.WantClose(1001)
		game.Close(1001, "")
		synctest.Wait()
		to := nodes[1]
		if _, ok := to.gw.Control().Session(p.Hello.Session); !ok {
			to = nodes[2]
		}
		for _, at := range nodes {
			at.wantMoved(p, to.node.Name, "covered", "handoff", 1)
		}
		nodes[0].lose()
		for _, at := range nodes[1:] {
			at.wantMoved(p, to.node.Name, "covered", "handoff", 1)
		}
		seats.SetAway(true)
		other := nodes[1]
		if to == other {
			other = nodes[2]
		}
		other.wantProblem("GET", path(p), http.StatusBadGateway, "NATS cannot say")
		to.wantMoved(p, to.node.Name, "covered", "handoff", 1)
	})
}

// The event that a session has moved comes before that of its resume, at every node.
func TestStreamShowsMoveBeforeResume(t *testing.T) {
	inDurableTown(t, three, func(t *testing.T, nodes []*place, _ *clustertest.Seats) {
		l := nodes[2].serve().listen("")
		p, _ := nodes[0].beginDurable()
		p.Sync()
		p.Drop()
		synctest.Wait()
		nodes[0].lose()
		q, _ := nodes[1].claim(p)
		q.Sync()
		l.wantFrom("session.created ann", "session.detached ann", "session.moved bob", "session.resumed bob")
	})
}

// A seat may name a node a moment before the session is there, or although it never gets there.
func TestSessionThatNoNodeHasIsNotUnknown(t *testing.T) {
	inDurableTown(t, three, func(t *testing.T, nodes []*place, _ *clustertest.Seats) {
		p, _ := nodes[0].beginDurable()
		nodes[0].lose()
		seat, err := nodes[1].seats.Get(t.Context(), p.Hello.Session)
		if err != nil {
			t.Fatal(err)
		}
		seat.Owner, seat.Epoch = nodes[1].node.ID, 1
		if _, err := nodes[1].seats.Put(t.Context(), seat); err != nil {
			t.Fatal(err)
		}
		for _, at := range nodes[1:] {
			for _, c := range []string{"GET ", "PATCH ", "DELETE ", "GET /history", "POST /disconnect", "GET /data", "PUT /data"} {
				method, end, _ := strings.Cut(c, " ")
				body := map[string]string{"PATCH": `{}`, "PUT": "x"}[method]
				began := time.Now()
				at.wantRefused(method, path(p)+end, body, http.StatusBadGateway, "no node has it now")
				if d := time.Since(began); d > time.Second {
					t.Errorf("%s at %s: given up after %v", c, at.node.Name, d)
				}
			}
			at.wantProblem("GET", path(p)+"?node=self", http.StatusNotFound, "no such session")
		}
	})
}
