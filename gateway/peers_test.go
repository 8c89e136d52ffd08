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

	"reseat/gateway"
	"reseat/gateway/cluster"
	"reseat/gateway/control"
	"reseat/gateway/events"
	"reseat/gateway/hop"
	"reseat/gateway/internal/test/wstest"
	nodelink "reseat/gateway/link"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/upgrade"
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
	cut      map[string]cluster.Judgement // of nodes that cannot be reached
	mute     map[string]bool              // of nodes that accept, and don't answer
	requests []http.Header                // what came to node listeners

	dialling    chan struct{} // not nil: dials fail once it is closed
	refusals    int           // so many connections are refused by their link
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
	if m.refuses() {
		return refusedStream{}, nil
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

func (n *nodes) refuses() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusals--
	return n.refusals >= 0
}

// A refusedStream is one that the other node has not accepted.
type refusedStream struct{ net.Conn }

func (refusedStream) Write(p []byte) (int, error) { return len(p), nil }
func (refusedStream) Read([]byte) (int, error)    { return 0, nodelink.ErrRefused }
func (refusedStream) SetDeadline(time.Time) error { return nil }
func (refusedStream) Close() error                { return nil }

func (m member) Judge(_ context.Context, node string) cluster.Judgement {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cut[node]
}

// nodeID is the id of node i.
func nodeID(i int) string { return fmt.Sprintf("%08x", 0xa0+i) }

func newNodes(t *testing.T, n int, p policy.Policy, change ...func(*gateway.Config)) *nodes {
	t.Helper()
	all := &nodes{t: t, links: make(map[string]*wstest.Listener), cut: make(map[string]cluster.Judgement), mute: make(map[string]bool)}
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
			w.gw.Owner().ServeNode(wr, r, w.gw)
		})}
		go server.Serve(ln)
		t.Cleanup(func() { server.Close() })
		all.links[nodeID(i)] = ln
		all.of = append(all.of, w)
	}
	return all
}

// lose makes node i unreachable.
func (n *nodes) lose(i int, v cluster.Judgement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[nodeID(i)] = v
}

func (n *nodes) dialled() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

// A successor keeps what an older process passes on.
type successor struct{ came chan upgrade.LateConn }

func (s successor) Conn(c upgrade.LateConn) { s.came <- c }
func (s successor) Event(events.Event)      {}

// An upgrade takes a process out of the cluster, which ends its dials to other nodes. The clients that these
// are for are the successor's: they hear nothing of it.
func TestResumeThatAnUpgradeInterruptsIsTheSuccessors(t *testing.T) {
	for _, plain := range []bool{false, true} {
		inNodes(t, 2, keptPlain(), func(s *scene) {
			s.play(`sync`)
			n, secret, offer, header := s.nodes, s.client.Hello.Token, resumeOffer(s.client), ""
			if plain {
				_, secret = s.visit("")
				offer, header = nil, ownOrigin+"Cookie: "+secret+"\r\n"
			}
			n.dialling = make(chan struct{})
			go n.of[1].Handshake("/match/7", offer, header)
			synctest.Wait()
			f, err := n.of[1].gw.Upgrade().Freeze(s.t.Context(), session.Formats[0], time.Second, func(upgrade.FrozenSession) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			to := successor{make(chan upgrade.LateConn, 1)}
			f.Commit(to)
			close(n.dialling)
			synctest.Wait()
			select {
			case c := <-to.came:
				if c.Answered || !bytes.Contains(c.Request, []byte(secret)) {
					t.Errorf("answered %v, request %q; want it unanswered, with %s", c.Answered, c.Request, secret)
				}
				c.Conn.Close()
			default:
				t.Error("the successor got nothing")
			}
		}, func(c *gateway.Config) { c.Driver = transport.Net }) // Freeze would start event loops
	}
}

// describedBy are the headers of a client that a node passes on.
func describedBy(c hop.Client) http.Header {
	h := make(http.Header)
	c.Set(h)
	return h
}

// The owner knows the client by what the node says that has passed it on.
func TestPassedOnClientIsKnownByItsOwnAddress(t *testing.T) {
	inNodes(t, 1, testPolicy(), func(s *scene) {
		r := httptest.NewRequest("GET", "/match/7", nil)
		r.Header = describedBy(hop.Client{From: nodeID(1), Peer: "203.0.113.66:1", TLS: "none", Host: "game.example"})
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "https://evil.example",
		} {
			r.Header.Set(name, value)
		}
		r.RemoteAddr = "10.0.0.2:1"
		rec := httptest.NewRecorder()
		s.gw.Owner().ServeNode(rec, r, s.gw)
		if list := s.gw.Watch().Refusals(); rec.Code != http.StatusForbidden || len(list) != 1 || list[0].Peer != "203.0.113.66" {
			t.Errorf("%d, refusals %+v; want 403, and one of 203.0.113.66", rec.Code, list)
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

		// Its session has ended: the front node begins a new one by itself.
		n.of[0].gw.Control().End("test", n.of[0].onlySession().ID, 1000, "over")
		p.WantClose(1000)
		synctest.Wait()
		if _, another := n.of[1].visit(cookie); another == cookie {
			t.Error("no new session")
		}
		n.of[1].onlySession()
	})
}

// A plain client whose node cannot be reached gets a Retry-After, not a second seat;
// once the node is known to be lost it gets a new one.
func TestPlainClientOfUnreachableNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t, 2, keptPlain())
		_, cookie := n.of[0].visit("")
		n.lose(0, cluster.Judgement{Verdict: cluster.Unclear})
		_, _, resp, err := n.of[1].Handshake("/", nil, ownOrigin+"Cookie: "+cookie+"\r\n")
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" {
			t.Fatalf("%v, %v; want 503, and retry after 1 s", resp, err)
		}
		n.lose(0, cluster.Judgement{Verdict: cluster.Gone})
		n.of[1].visit(cookie)
		n.of[1].onlySession()
	})
}

// A directory holds one session of each player for all nodes of a test, as the cluster does.
type directory struct {
	mu sync.Mutex
	of map[cluster.Player]string // session
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

func (d *directory) Hold(ctx context.Context, p cluster.Player, session string, oldestWins bool) bool {
	d.mu.Lock()
	other := d.of[p]
	d.mu.Unlock()
	if other != "" && d.node(other) != d.node(session) {
		if oldestWins && d.node(other).gw.Owner().Answers(ctx, other) {
			return false
		}
		defer d.node(other).gw.Owner().Supersede(other)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of[p] = session
	return true
}

func (d *directory) Keep(p cluster.Player, session string, _ time.Time, _ bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of[p] = session
}

func (d *directory) Release(p cluster.Player, session string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of[p] == session {
		delete(d.of, p)
	}
}

// inNodesWithPlayers runs f in a bubble of synctest with two nodes, and a session of ann at the first.
func inNodesWithPlayers(t *testing.T, duplicate policy.Duplicate, f func(*scene, *directory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &directory{of: make(map[cluster.Player]string)}
		d.n = newNodes(t, 2, loggedIn(duplicate), func(c *gateway.Config) { c.Players = d })
		s := &scene{world: d.n.of[0], nodes: d.n}
		s.play(`begin /?player=ann`)
		f(s, d)
	})
}

func TestNewestLoginAtAnotherNodeTakesOver(t *testing.T) {
	inNodesWithPlayers(t, policy.Takeover, func(s *scene, d *directory) {
		s.play(`at 1; begin /?player=ann; older< ^close 4409; before< Close 1001`)
		wstest.Equal(t, "records", len(d.of), 1)
	})
}

func TestSecondLoginAtAnotherNodeIsRejectedWhileTheFirstAnswers(t *testing.T) {
	inNodesWithPlayers(t, policy.Reject, func(s *scene, d *directory) {
		wstest.Equal(t, "the second login is answered", d.n.of[1].refused("/?player=ann"), http.StatusConflict)
		s.play(`at 1; next; game< Close 1001; sync; client is silent; begin /?player=ann`) // it does not answer any more
		wstest.Equal(t, "records", len(d.of), 1)
	})
}

func TestEndedSessionReleasesItsPlayer(t *testing.T) {
	inNodesWithPlayers(t, policy.Takeover, func(s *scene, d *directory) {
		s.play(`end`)
		synctest.Wait()
		wstest.Equal(t, "players that are held", len(d.of), 0)
	})
}

// inNodes runs f in a bubble of synctest with nodes of its own, and a session at node 0.
func inNodes(t *testing.T, n int, p policy.Policy, f func(*scene), change ...func(*gateway.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := newNodes(t, n, p, change...)
		s := &scene{world: all.of[0], nodes: all}
		s.play(`begin`)
		f(s)
	})
}

// protocol section 5.1. What a client makes of it changes nothing.
func TestHelloHasTheNameOfTheSessionsNodeAsRoute(t *testing.T) {
	for name, want := range map[string]string{"n1": "n1", "eu-west.n1": "eu-west.n1", "": "", "käse": "", "rack:1": "", strings.Repeat("n", 33): ""} {
		inNodes(t, 2, testPolicy(), func(s *scene) {
			s.client, s.up = s.Player("/match/7", "reseat.route.n9", "reseat.route."), s.game.Next()
			route := `hello route=` + want + `; `
			s.play(route + `sync; client drops; at 1; resume 0; ` + route + `client drops; at 0; resume 0; ` + route)
			if g := s.up.Req.Header.Get("Sec-WebSocket-Protocol"); strings.Contains(g, "route") {
				t.Errorf("the game server sees %q", g)
			}
		}, func(c *gateway.Config) { c.NodeName = name })
	}
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`hello route=`)
		wstest.Equal(t, "digits of an id without a cluster", len(s.client.Hello.Session), 32)
	}, func(c *gateway.Config) { c.NodeName = "n1" })
}

func TestSessionIsResumedAtAnyNode(t *testing.T) {
	for name, policy := range map[string]policy.Policy{"uncompressed": testPolicy(), "compressed": withTakeover()} {
		t.Run(name, func(t *testing.T) {
			inNodes(t, 3, policy, func(s *scene) {
				for _, w := range s.nodes.of {
					w.Offer = browserOffer
				}
				s.play(`begin; sync`)
				id, owner := s.client.Hello.Session, s.world
				if len(id) != 40 || !strings.HasPrefix(id, nodeID(0)) {
					t.Errorf("id %q, want 40 digits that begin with the node's", id)
				}
				for i, at := range []int{1, 2, 0, 2} {
					s.play(fmt.Sprintf(`client drops; game> missed; at %d; resume %d; client< missed; client> up; game< up; client> ^ack %d; sync`, at, i, i+1))
					wstest.Equal(t, "node of the client", owner.gw.Owner().FrontOf(owner.gw.Control().ClientConn(id)), nodeID(at))
					wstest.Equal(t, "node of the session", s.gw.Owner().NodeOf(id), nodeID(0))
				}
				s.play(`lacks; at 0; attached; no dial`)
			})
		})
	}
}

// The front node keeps nothing: when the connection to the owner ends, that of the client does,
// and the other way round. An older process of an upgrade forwards on, until no client is left that it passes on.
func TestForwardedConnectionsEndTogether(t *testing.T) {
	inNodes(t, 2, testPolicy(), func(s *scene) {
		owner, front := s.nodes.of[0], s.nodes.of[1]
		wantForwarded := func(want float64) {
			t.Helper()
			synctest.Wait()
			wstest.Equal(t, "connections that are forwarded", front.metrics()["reseat_forwarded_connections{out}"], want)
			wstest.Equal(t, "connections from other nodes", owner.metrics()["reseat_forwarded_connections{in}"], want)
		}
		<-front.gw.Owner().Passed()
		s.play(`client drops; at 1; resume 0`)
		wantForwarded(1)
		passed := front.gw.Owner().Passed()
		select {
		case <-passed:
			t.Error("Passed is closed, with a client that is passed on")
		default:
		}
		s.play(`client drops; at 0; detached`)
		wantForwarded(0)
		<-passed
		s.play(`at 1; resume 0`)
		wstest.Equal(t, "Disconnect", owner.gw.Control().Disconnect(s.client.Hello.Session), control.Done)
		s.play(`client< end`)
	})
}

// What becomes of a resume whose owner cannot be reached goes by what is known of that node.
func TestUnreachableOwner(t *testing.T) {
	grace := testPolicy().Grace
	const never = -1
	for name, try := range map[string]struct {
		state cluster.Verdict
		heard time.Duration // before the resume
		want  int
	}{
		"unclear":                             {cluster.Unclear, 0, wire.CodeNodeUnreachable},
		"up":                                  {cluster.Alive, 0, wire.CodeNodeUnreachable},
		"silent, and its grace period":        {cluster.Silent, grace - time.Second, wire.CodeNodeUnreachable},
		"silent, and nobody knows since when": {cluster.Silent, never, wire.CodeNodeUnreachable},
		"silent for longer than a grace":      {cluster.Silent, grace + time.Second, wire.CodeNoSession},
		"gone":                                {cluster.Gone, 0, wire.CodeNoSession},
	} {
		t.Run(name, func(t *testing.T) {
			inNodes(t, 2, testPolicy(), func(s *scene) {
				s.play(`sync`)
				v := cluster.Judgement{Verdict: try.state}
				if try.heard != never {
					v.Heard = time.Now().Add(-try.heard)
				}
				s.nodes.lose(0, v)
				s.play(`at 1`)
				c := s.client.TryResume(s.client.Hello.Token, "0").WantClosing(try.want)
				if retry := try.want == wire.CodeNodeUnreachable; c.Retry != retry || retry && (c.RetryAfter < 300 || c.RetryAfter > 1500) {
					t.Errorf("close %+v, want retry %v, after 300 to 1500 ms", c, retry)
				}
				if try.want == wire.CodeNoSession {
					wstest.Equal(t, "reason", c.Reason, "no_session: its node was lost")
				}
				s.play(`at 0; attached; game> still; client< still`) // nothing has changed there
			})
		})
	}
}

// A node that accepts and then says nothing is not waited for longer than five seconds.
func TestOwnerThatDoesNotAnswerIsUnreachable(t *testing.T) {
	inNodes(t, 2, testPolicy(), func(s *scene) {
		s.nodes.mute[nodeID(0)] = true
		s.play(`at 1; mark; refused 4504; took 5s`)
	})
}

// An owner that is being upgraded refuses what reaches the old process. The new one is asked at once.
func TestClientThatARetiringOwnerRefusesReachesItsSuccessor(t *testing.T) {
	inNodes(t, 2, testPolicy(), func(s *scene) {
		s.nodes.refusals = 1
		s.play(`client drops; at 1; resume 0; game> down; client< down; client drops`)
		s.nodes.refusals = 2
		s.play(`refused 4504`)
	})
}

// Only the owner's verdict counts: what it refuses is refused as it does.
func TestOwnersRefusalReachesTheClient(t *testing.T) {
	inNodes(t, 2, testPolicy(), func(s *scene) {
		first := s.client.Hello.Token
		s.play(`client drops; at 1; resume 0; client drops; resume 0; sync; refused 4400 99`) // it has used the second token
		s.client.TryResume(first, "0").WantClosing(wire.CodeBadToken)
		s.play(`at 0; end over; at 1; refused 4410`)
	})
}

func TestForgedTokensReachNoNode(t *testing.T) {
	inNodes(t, 2, testPolicy(), func(s *scene) {
		token := s.client.Hello.Token
		s.play(`at 1`)
		s.client.TryResume(token[:len(token)-8]+"AAAAAAAA", "0").WantClosing(wire.CodeBadToken)
		wstest.Equal(t, "dials", s.nodes.dialled(), 0)
	})
}

// A client cannot describe itself as another node would, and the owner sees the client's own
// address.
func TestOwnerSeesTheClientAsTheFrontNodeDoes(t *testing.T) {
	inNodes(t, 2, testPolicy(), func(s *scene) {
		s.play(`client drops`)
		var forged strings.Builder
		describedBy(hop.Client{From: nodeID(0), Peer: "203.0.113.66:1", HTTPS: true, TLS: "none", Host: "game.example"}).Write(&forged)
		c, br, resp, err := s.nodes.of[1].Handshake("/resume", resumeOffer(s.client), forged.String()+"X-Forwarded-For: 203.0.113.66\r\n")
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v, want 101", resp, err)
		}
		s.t.Cleanup(func() { c.Close() })
		br.ReadByte()
		synctest.Wait()
		if len(s.nodes.requests) != 1 {
			t.Fatalf("%d requests at node listeners, want 1", len(s.nodes.requests))
		}
		for name, want := range map[string]string{
			"Reseat-Node-Peer": "127.0.0.1:50000", "Reseat-Node-Hop": "1", "Reseat-Node-From": nodeID(1), "Reseat-Node-Host": "game.example",
			"Reseat-Node-Proto": "http", "Reseat-Node-Tls": "none", "X-Forwarded-For": "",
		} {
			wstest.Equal(t, name, strings.Join(s.nodes.requests[0][name], ", "), want)
		}
		s.play(`attached; info peer=127.0.0.1`)
	})
}

// A node never passes on what was passed on to it: there are no loops.
func TestForwardedResumeIsNotForwardedAgain(t *testing.T) {
	inNodes(t, 3, testPolicy(), func(s *scene) {
		s.nodes.links[nodeID(0)] = s.nodes.links[nodeID(2)] // node 2 answers in node 0's place
		s.play(`client drops; at 1; refused 4404`)
		wstest.Equal(t, "dials", s.nodes.dialled(), 1)
	})
}

func TestForwardsAreCounted(t *testing.T) {
	inNodes(t, 2, testPolicy(), func(s *scene) {
		s.play(`at 1; forget; client drops; resume 0; client drops; lose 0 unclear; refused 4504; lose 0 gone; refused 4404; ` +
			`counts reseat_forwards_total out}{ok=1 out}{gone=1 out}{unreachable=1`)
	})
}
