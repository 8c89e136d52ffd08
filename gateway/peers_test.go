package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/hop"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
	"reseat/tokens"
)

// nodes are gateways of one cluster, in memory. Each has a game server.
type nodes struct {
	t  *testing.T
	of []*world

	mu       sync.Mutex
	links    map[string]*wstest.Listener // node listeners, by id
	dials    int
	cut      map[string]gateway.NodeVerdict // of nodes that cannot be reached
	mute     map[string]bool                // of nodes that accept, and don't answer
	requests []http.Header                  // what came to node listeners

	dialling    chan struct{} // not nil: dials fail once it is closed
	lostAnswers bool          // to hand-offs
	handingOver func()        // called when a node hands a session over
}

// A member is the cluster as one node sees it.
type member struct {
	*nodes
	id string
}

func (m member) ID() string { return m.id }

func (m member) Dial(_ context.Context, node string) (net.Conn, error) {
	m.mu.Lock()
	ln, mute := m.links[node], m.mute[node]
	m.dials++
	_, down := m.cut[node]
	failing := m.dialling
	m.mu.Unlock()
	if failing != nil {
		<-failing
	}
	if failing != nil || down || ln == nil {
		return nil, errors.New("no answer")
	}
	if mute {
		client, server := wstest.Pipe(64 << 10)
		m.t.Cleanup(func() { server.Close() })
		return client, nil
	}
	return ln.Dial()
}

func (m member) Judge(_ context.Context, node string) gateway.NodeVerdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cut[node]
}

// nodeID is the id of node i.
func nodeID(i int) string { return fmt.Sprintf("%08x", 0xa0+i) }

func newNodes(t *testing.T, n int, p policy.Policy, change ...func(*gateway.Config)) *nodes {
	t.Helper()
	all := &nodes{t: t, links: make(map[string]*wstest.Listener), cut: make(map[string]gateway.NodeVerdict), mute: make(map[string]bool)}
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		w := newWorld(t, p, append(change, func(c *gateway.Config) {
			c.Keys, c.Cluster = keys, member{all, nodeID(i)}
		})...)
		ln := wstest.NewListener(64 << 10)
		server := &http.Server{Handler: http.HandlerFunc(func(wr http.ResponseWriter, r *http.Request) {
			all.mu.Lock()
			all.requests = append(all.requests, r.Header.Clone())
			all.mu.Unlock()
			w.gw.ServeNode(wr, r)
		})}
		go server.Serve(ln)
		t.Cleanup(func() { server.Close() })
		all.links[nodeID(i)] = ln
		all.of = append(all.of, w)
	}
	return all
}

// lose makes node i unreachable.
func (n *nodes) lose(i int, v gateway.NodeVerdict) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[nodeID(i)] = v
}

func (n *nodes) dialled() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

// begin begins a session at node 0.
func (n *nodes) begin() (*wstest.Player, *wstest.Peer) {
	n.t.Helper()
	p := n.of[0].Player("/match/7")
	return p, n.of[0].game.Next()
}

// protocol section 5.1. What a client makes of it changes nothing.
func TestHelloHasTheNameOfTheSessionsNodeAsRoute(t *testing.T) {
	for name, want := range map[string]string{"n1": "n1", "eu-west.n1": "eu-west.n1", "": "", "käse": "", "rack:1": "", strings.Repeat("n", 33): ""} {
		synctest.Test(t, func(t *testing.T) {
			n := newNodes(t, 2, testPolicy(), func(c *gateway.Config) { c.NodeName = name })
			p := n.of[0].Player("/match/7", "reseat.route.n9", "reseat.route.")
			game := n.of[0].game.Next()
			if p.Hello.Route != want {
				t.Errorf("named %q: route %q, want %q", name, p.Hello.Route, want)
			}
			p.Sync()
			for _, at := range []int{1, 0} {
				p.Drop()
				p = p.At(n.of[at].Door).Resume(0)
				if p.Hello.Route != want {
					t.Errorf("named %q: route %q at node %d, want %q", name, p.Hello.Route, at, want)
				}
			}
			if g := game.Req.Header.Get("Sec-WebSocket-Protocol"); strings.Contains(g, "route") {
				t.Errorf("the game server sees %q", g)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy(), func(c *gateway.Config) { c.NodeName = "n1" })
		if p := w.Player("/match/7"); p.Hello.Route != "" {
			t.Errorf("without a cluster: route %q", p.Hello.Route)
		}
	})
}

func TestSessionIsResumedAtAnyNode(t *testing.T) {
	for name, p := range map[string]policy.Policy{"uncompressed": testPolicy(), "compressed": withTakeover()} {
		t.Run(name, func(t *testing.T) { testResumeAtAnyNode(t, p) })
	}
}

func testResumeAtAnyNode(t *testing.T, policy policy.Policy) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 3, policy)
		for _, w := range n.of {
			w.Offer = browserOffer
		}
		p, game := n.begin()
		if id := p.Hello.Session; len(id) != 40 || !strings.HasPrefix(id, nodeID(0)) {
			t.Errorf("id %q, want 40 digits that begin with the node's", id)
		}
		p.Sync()
		for i, at := range []int{1, 2, 0, 2} {
			p.Drop()
			game.Text(fmt.Sprint("missed ", i))
			synctest.Wait()
			p = p.At(n.of[at].Door).Resume(uint64(i))
			p.Want(fmt.Sprint("missed ", i))
			p.Text(fmt.Sprint("up ", i))
			game.Want(fmt.Sprint("up ", i))
			p.Ack(uint64(i + 1))
			p.Sync()
			if front, owner := n.of[0].gw.FrontOf(p.Hello.Session), n.of[at].gw.NodeOf(p.Hello.Session); front != nodeID(at) || owner != nodeID(0) {
				t.Errorf("at node %d: the session is of %q, the client at %q", at, owner, front)
			}
		}
		if got, _ := n.of[0].gw.Session(p.Hello.Session); got.State != session.Attached.String() {
			t.Errorf("the owner shows %+v", got)
		}
		if _, ok := n.of[2].gw.Session(p.Hello.Session); ok {
			t.Error("a front node has the session too")
		}
		if n.of[0].game.Joined() != 0 {
			t.Error("the game server was dialled again")
		}
	})
}

// The front node keeps nothing: when the connection to the owner ends, that of the client does,
// and the other way round.
func TestForwardedConnectionsEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, testPolicy())
		p, _ := n.begin()
		p.Drop()
		p = p.At(n.of[1].Door).Resume(0)
		synctest.Wait()
		if got := forwardedConnections(t, n.of[1], "out"); got != 1 {
			t.Errorf("%v connections are forwarded, want 1", got)
		}
		if got := forwardedConnections(t, n.of[0], "in"); got != 1 {
			t.Errorf("%v connections came from other nodes, want 1", got)
		}
		p.Drop()
		n.of[0].wantState(p, session.Detached)
		if out, in := forwardedConnections(t, n.of[1], "out"), forwardedConnections(t, n.of[0], "in"); out != 0 || in != 0 {
			t.Errorf("%v and %v connections are left", out, in)
		}
		p = p.At(n.of[1].Door).Resume(0)
		if o := n.of[0].gw.Disconnect(p.Hello.Session); o != gateway.Done {
			t.Fatal(o)
		}
		p.WantEnd()
	})
}

func forwardedConnections(t *testing.T, w *world, direction string) float64 {
	t.Helper()
	list, err := w.gw.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if f.GetName() != "reseat_forwarded_connections" {
			continue
		}
		for _, m := range f.Metric {
			if m.Label[0].GetValue() == direction {
				return m.Gauge.GetValue()
			}
		}
	}
	t.Fatal("no reseat_forwarded_connections")
	return 0
}

func TestNewSessionsAreNotForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, testPolicy())
		p := n.of[1].Player("/match/7")
		n.of[1].game.Next()
		if n.dialled() != 0 || !strings.HasPrefix(p.Hello.Session, nodeID(1)) {
			t.Errorf("%d dials, session %s", n.dialled(), p.Hello.Session)
		}
	})
}

// What becomes of a resume whose owner cannot be reached goes by what is known of that node.
func TestUnreachableOwner(t *testing.T) {
	grace := testPolicy().Grace
	const never = -1
	for name, try := range map[string]struct {
		verdict gateway.NodeVerdict
		heard   time.Duration // before the resume
		want    int
	}{
		"unclear":                             {gateway.NodeVerdict{State: gateway.NodeUnclear}, 0, wire.CodeNodeUnreachable},
		"up":                                  {gateway.NodeVerdict{State: gateway.NodeUp}, 0, wire.CodeNodeUnreachable},
		"silent, and its grace period":        {gateway.NodeVerdict{State: gateway.NodeSilent}, grace - time.Second, wire.CodeNodeUnreachable},
		"silent, and nobody knows since when": {gateway.NodeVerdict{State: gateway.NodeSilent}, never, wire.CodeNodeUnreachable},
		"silent for longer than a grace":      {gateway.NodeVerdict{State: gateway.NodeSilent}, grace + time.Second, wire.CodeNoSession},
		"gone":                                {gateway.NodeVerdict{State: gateway.NodeGone}, 0, wire.CodeNoSession},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNodes(t, 2, testPolicy())
				p, game := n.begin()
				p.Sync()
				if try.heard != never {
					try.verdict.Heard = time.Now().Add(-try.heard)
				}
				n.lose(0, try.verdict)
				c := p.At(n.of[1].Door).TryResume(p.Hello.Token, "0").WantClosing(try.want)
				if retry := try.want == wire.CodeNodeUnreachable; c.Retry != retry {
					t.Errorf("retry %v, want %v", c.Retry, retry)
				}
				if c.Retry && (c.RetryAfter < 300 || c.RetryAfter > 1500) {
					t.Errorf("retry_after_ms %d, want 300 to 1500", c.RetryAfter)
				}
				if try.want == wire.CodeNoSession && c.Reason != "no_session: its node was lost" {
					t.Errorf("reason %q", c.Reason)
				}
				n.of[0].wantState(p, session.Attached) // nothing has changed there
				game.Pass(p, "still")
			})
		})
	}
}

// A node that accepts and then says nothing is not waited for longer than five seconds.
func TestOwnerThatDoesNotAnswerIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, testPolicy())
		p, _ := n.begin()
		n.mute[nodeID(0)] = true
		began := time.Now()
		p.At(n.of[1].Door).TryResume(p.Hello.Token, "0").WantClosing(wire.CodeNodeUnreachable)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v, want 5s", took)
		}
	})
}

// A successor keeps what an older process passes on.
type successor struct{ came chan gateway.LateConn }

func (s successor) Conn(c gateway.LateConn) { s.came <- c }
func (s successor) Event(events.Event)      {}

// An upgrade takes a process out of the cluster, which ends its dials to other nodes. The clients that these
// are for are the successor's: they hear nothing of it.
func TestResumeThatAnUpgradeInterruptsIsTheSuccessors(t *testing.T) {
	for name, resume := range map[string]func(n *nodes) (secret string, try func()){
		"resumable": func(n *nodes) (string, func()) {
			p, _ := n.begin()
			p.Sync()
			token := p.Hello.Token
			return token, func() {
				n.of[1].Handshake("/match/7", []string{wire.Subprotocol, "reseat.token." + token, "reseat.received.0"}, "")
			}
		},
		"plain": func(n *nodes) (string, func()) {
			_, cookie := n.of[0].visit("")
			return cookie, func() { n.of[1].Handshake("/", nil, ownOrigin+"Cookie: "+cookie+"\r\n") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNodes(t, 2, keptPlain(), func(c *gateway.Config) { c.Driver = transport.Net }) // Freeze would start event loops
				secret, try := resume(n)
				n.dialling = make(chan struct{})
				go try()
				synctest.Wait()
				f, err := n.of[1].gw.Freeze(t.Context(), session.Formats[0], time.Second, func(gateway.FrozenSession) error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				to := successor{make(chan gateway.LateConn, 1)}
				f.Commit(to)
				close(n.dialling)
				synctest.Wait()
				select {
				case c := <-to.came:
					if c.Answered || !bytes.Contains(c.Request, []byte(secret)) {
						t.Errorf("answered %v, request %q", c.Answered, c.Request)
					}
					c.Conn.Close()
				default:
					t.Error("the successor got nothing")
				}
			})
		})
	}
}

// Only the owner's verdict counts: what it refuses is refused as it does.
func TestOwnersRefusalReachesTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, testPolicy())
		p, _ := n.begin()
		first := p.Hello.Token
		p.Drop()
		p = p.At(n.of[1].Door).Resume(0)
		p.Drop()
		p = p.At(n.of[1].Door).Resume(0)
		p.Sync() // it has used the second token
		p.TryResume(first, "0").WantClosing(wire.CodeBadToken)
		p.TryResume(p.Hello.Token, "99").WantClosing(wire.CodeProtocolViolation)
		n.of[0].gw.EndBy("test", p.Hello.Session, 1000, "over")
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeEnded)
	})
}

func TestForgedTokensReachNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, testPolicy())
		p, _ := n.begin()
		token := p.Hello.Token
		p.At(n.of[1].Door).TryResume(token[:len(token)-8]+"AAAAAAAA", "0").WantClosing(wire.CodeBadToken)
		if n.dialled() != 0 {
			t.Errorf("%d dials", n.dialled())
		}
	})
}

// A client cannot describe itself as another node would, and the owner sees the client's own
// address.
func TestOwnerSeesTheClientAsTheFrontNodeDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, testPolicy())
		p, _ := n.begin()
		p.Drop()
		header := "Reseat-Node-Peer: 203.0.113.66:1\r\nReseat-Node-Hop: 1\r\nReseat-Node-Proto: https\r\nX-Forwarded-For: 203.0.113.66\r\n"
		c, br, resp, err := n.of[1].Handshake("/resume", []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}, header)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", resp, err)
		}
		defer c.Close()
		br.ReadByte()
		synctest.Wait()
		if len(n.requests) != 1 {
			t.Fatalf("%d requests at node listeners", len(n.requests))
		}
		h := n.requests[0]
		for name, want := range map[string]string{
			"Reseat-Node-Peer": "127.0.0.1:50000", "Reseat-Node-Hop": "1", "Reseat-Node-From": nodeID(1), "Reseat-Node-Host": "game.example",
			"Reseat-Node-Proto": "http", "Reseat-Node-Tls": "none",
		} {
			if got := h[name]; len(got) != 1 || got[0] != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if h["X-Forwarded-For"] != nil {
			t.Errorf("X-Forwarded-For %q reached the owner", h["X-Forwarded-For"])
		}
		if s, _ := n.of[0].gw.Session(p.Hello.Session); s.Peer != "127.0.0.1" {
			t.Errorf("peer %q", s.Peer)
		}
	})
}

// describedBy are the headers of a client that a node passes on.
func describedBy(c hop.Client) http.Header {
	h := make(http.Header)
	c.Set(h)
	return h
}

// What a client says of itself in the words of nodes is not believed at the client address: its
// resume is passed on.
func TestClientsOwnDescriptionChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, testPolicy())
		p, _ := n.begin()
		p.Drop()
		var header strings.Builder
		describedBy(hop.Client{From: nodeID(0), Peer: "203.0.113.66:1", TLS: "none", Host: "game.example"}).Write(&header)
		c, br, resp, err := n.of[1].Handshake("/resume", []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}, header.String())
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", resp, err)
		}
		defer c.Close()
		br.ReadByte()
		synctest.Wait()
		if s, _ := n.of[0].gw.Session(p.Hello.Session); s.State != "attached" || s.Peer != "127.0.0.1" {
			t.Errorf("%s from %s", s.State, s.Peer)
		}
	})
}

// The owner knows the client by what the node says that has passed it on.
func TestPassedOnClientIsKnownByItsOwnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 1, testPolicy())
		r := httptest.NewRequest("GET", "/match/7", nil)
		r.Header = describedBy(hop.Client{From: nodeID(1), Peer: "203.0.113.66:1", TLS: "none", Host: "game.example"})
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "https://evil.example",
		} {
			r.Header.Set(name, value)
		}
		r.RemoteAddr = "10.0.0.2:1"
		rec := httptest.NewRecorder()
		n.of[0].gw.ServeNode(rec, r)
		if list := n.of[0].gw.Refusals(); rec.Code != http.StatusForbidden || len(list) != 1 || list[0].Peer != "203.0.113.66" {
			t.Errorf("%d, refusals %+v", rec.Code, list)
		}
	})
}

// A node never passes on what was passed on to it: there are no loops.
func TestForwardedResumeIsNotForwardedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 3, testPolicy())
		p, _ := n.begin()
		p.Drop()
		n.links[nodeID(0)] = n.links[nodeID(2)] // node 2 answers in node 0's place
		p.At(n.of[1].Door).TryResume(p.Hello.Token, "0").WantClosing(wire.CodeNoSession)
		if n.dialled() != 1 {
			t.Errorf("%d dials, want 1", n.dialled())
		}
	})
}

func TestPlainClientResumesByCookieAtAnyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, keptPlain())
		p, cookie := n.of[0].visit("")
		game := n.of[0].game.Next()
		p.Drop()
		game.Text("missed")
		synctest.Wait()
		p, _ = n.of[1].visit(cookie)
		p.Want("missed")
		p.Pass(game, "up")
		n.of[0].onlySession()

		// Its session has ended: the front node begins a new one by itself.
		n.of[0].gw.EndBy("test", n.of[0].onlySession().ID, 1000, "over")
		p.WantClose(1000)
		synctest.Wait()
		_, another := n.of[1].visit(cookie)
		if another == cookie {
			t.Error("no new session")
		}
		n.of[1].onlySession()
	})
}

// A plain client whose node cannot be reached is told to come again, not given a second seat;
// once the node is known to be lost it gets a new one.
func TestPlainClientOfUnreachableNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, keptPlain())
		_, cookie := n.of[0].visit("")
		n.lose(0, gateway.NodeVerdict{State: gateway.NodeUnclear})
		_, _, resp, err := n.of[1].Handshake("/", nil, ownOrigin+"Cookie: "+cookie+"\r\n")
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" {
			t.Fatalf("%v, %v", resp, err)
		}
		n.lose(0, gateway.NodeVerdict{State: gateway.NodeGone})
		n.of[1].visit(cookie)
		n.of[1].onlySession()
	})
}

// Without a cluster nothing is different from before.
func TestSessionIDsWithoutClusterHave32Digits(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		if len(p.Hello.Session) != 32 {
			t.Errorf("id %q", p.Hello.Session)
		}
	})
}

func TestForwardsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, testPolicy())
		p, _ := n.begin()
		p.Drop()
		p = p.At(n.of[1].Door).Resume(0)
		p.Drop()
		n.lose(0, gateway.NodeVerdict{State: gateway.NodeUnclear})
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeNodeUnreachable)
		n.lose(0, gateway.NodeVerdict{State: gateway.NodeGone})
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeNoSession)
		const head = "# HELP reseat_forwards_total Resumes that a node has passed on to the session's node (out), or has received from another (in), by result.\n# TYPE reseat_forwards_total counter\n"
		want := head + `
reseat_forwards_total{direction="in",result="ok"} 0
reseat_forwards_total{direction="out",result="gone"} 1
reseat_forwards_total{direction="out",result="not_there"} 0
reseat_forwards_total{direction="out",result="ok"} 1
reseat_forwards_total{direction="out",result="unreachable"} 1
`
		if err := testutil.GatherAndCompare(n.of[1].gw.Metrics(), strings.NewReader(want), "reseat_forwards_total"); err != nil {
			t.Error(err)
		}
	})
}

// An older process of an upgrade forwards on, until no client is left that it passes on.
func TestPassedIsClosedWhenNoClientIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, testPolicy())
		<-n.of[1].gw.Passed()
		p, _ := n.begin()
		p.Drop()
		p = p.At(n.of[1].Door).Resume(0)
		synctest.Wait()
		passed := n.of[1].gw.Passed()
		select {
		case <-passed:
			t.Error("closed, with a client that is passed on")
		default:
		}
		p.Drop()
		<-passed
	})
}

// A directory holds one session of each player for all nodes of a test, as the cluster does.
type directory struct {
	mu sync.Mutex
	of map[gateway.Player]string // session
	n  *nodes
}

func (d *directory) node(session string) *world {
	for i, w := range d.n.of {
		if strings.HasPrefix(session, nodeID(i)) {
			return w
		}
	}
	return nil
}

func (d *directory) Hold(ctx context.Context, p gateway.Player, session string, oldestWins bool) bool {
	d.mu.Lock()
	other := d.of[p]
	d.mu.Unlock()
	if other != "" && d.node(other) != d.node(session) {
		if oldestWins && d.node(other).gw.Answers(ctx, other) {
			return false
		}
		defer d.node(other).gw.Supersede(other)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of[p] = session
	return true
}

func (d *directory) Keep(p gateway.Player, session string, _ time.Time, _ bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of[p] = session
}

func (d *directory) Release(p gateway.Player, session string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of[p] == session {
		delete(d.of, p)
	}
}

func newNodesWithPlayers(t *testing.T, duplicate policy.Duplicate) (*nodes, *directory) {
	d := &directory{of: make(map[gateway.Player]string)}
	n := newNodes(t, 2, loggedIn(duplicate), func(c *gateway.Config) { c.Players = d })
	d.n = n
	return n, d
}

func TestDuplicateAtAnotherNode(t *testing.T) {
	t.Run("takeover", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n, d := newNodesWithPlayers(t, policy.Takeover)
			first := n.of[0].Player("/?player=ada")
			game := n.of[0].game.Next()
			n.of[1].Player("/?player=ada")
			first.WantClosing(wire.CodeSuperseded)
			game.WantClose(wire.CodeGoingAway)
			if len(d.of) != 1 {
				t.Errorf("%d records", len(d.of))
			}
		})
	})
	t.Run("reject", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n, d := newNodesWithPlayers(t, policy.Reject)
			first := n.of[0].Player("/?player=ada")
			n.of[0].game.Next()
			_, _, resp, err := n.of[1].Handshake("/?player=ada", []string{wire.Subprotocol}, "")
			if err != nil || resp.StatusCode != http.StatusConflict {
				t.Fatalf("%v, %v, want 409", resp, err)
			}
			n.of[1].game.Next().WantClose(wire.CodeGoingAway)
			first.Sync()
			first.Conn.Silence() // it does not answer any more
			n.of[1].Player("/?player=ada")
			n.of[1].game.Next()
			if len(d.of) != 1 {
				t.Errorf("%d records", len(d.of))
			}
		})
	})
}

func TestEndedSessionReleasesItsPlayer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d := newNodesWithPlayers(t, policy.Takeover)
		p := n.of[0].Player("/?player=ada")
		n.of[0].game.Next()
		n.of[0].gw.EndBy("test", p.Hello.Session, 1000, "")
		synctest.Wait()
		if len(d.of) != 0 {
			t.Errorf("%d players are held", len(d.of))
		}
	})
}
