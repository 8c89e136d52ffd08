package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/cluster"
	"reseat/gateway/control"
	"reseat/gateway/events"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/clustertest"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/owner"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
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

// resumeAt resumes p at node i, and says what is settled.
func (d *durableNodes) resumeAt(p *wstest.Player, i int, received, acked, sent int) *wstest.Player {
	d.t.Helper()
	return p.At(d.of[i].Door).ResumeAs(fmt.Sprintf("%s, reseat.settled.%d.%d", p.Hello.Token, acked, sent), fmt.Sprint(received))
}

// inCluster runs f in a bubble of synctest, with nodes of its own, and a durable session at node 0.
func inCluster(t *testing.T, n int, p policy.Policy, f func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDurableNodes(t, n, p)
		s := &scene{world: d.of[0], nodes: d.nodes, durable: d}
		s.play(`begin; hello durable=true`)
		f(s)
	})
}

// ofCluster plays the steps that only clusters have, and reports whether there is such a step:
//
//	at 1                    from here on world is node 1
//	lose 0 gone; find 0     the others cannot reach node 0, and know this of it; they can again
//	has; lacks              the node has the session
//	unlinked; linked        the node's connection to the engine
//	engine away; engine back
//	fenced 1; renews        the node hears of an owner of that epoch; it writes its seats
//	drains
func (s *scene) ofCluster(verb, rest string) bool {
	s.t.Helper()
	i := slices.Index(s.nodes.of, s.world)
	switch verb {
	case "at":
		s.world = s.nodes.of[s.number(rest)]
		s.client = s.client.At(s.Door)
	case "lose":
		node, what, _ := strings.Cut(rest, " ")
		verdict := map[string]cluster.Verdict{"gone": cluster.Gone, "silent": cluster.Silent, "unclear": cluster.Unclear, "alive": cluster.Alive}[what]
		s.nodes.lose(s.number(node), cluster.Judgement{Verdict: verdict, Evidence: "test", Heard: time.Now()})
	case "find":
		s.nodes.mu.Lock()
		delete(s.nodes.cut, nodeID(s.number(rest)))
		s.nodes.mu.Unlock()
	case "has", "lacks":
		synctest.Wait()
		_, has := s.gw.Control().Session(s.client.Hello.Session)
		wstest.Equal(s.t, "the node has the session", has, verb == "has")
	case "unlinked", "linked":
		s.durable.links[i].SetCut(verb == "unlinked")
	case "engine":
		s.durable.seats.SetAway(rest == "away")
	case "fenced":
		s.gw.Owner().Fenced(s.client.Hello.Session, uint64(s.number(rest)))
	case "renews":
		s.gw.Owner().RenewSeats()
	case "drains":
		go s.gw.Drain(s.t.Context())
	default:
		return false
	}
	return true
}

func TestDurableSessionGoesOnAtAnotherNode(t *testing.T) {
	inCluster(t, 3, durablePolicy(), func(s *scene) {
		s.wantDialled(map[string]string{"Reseat-Epoch": "1"})
		s.play(`client> a, b; game< a, b; game> s1; client< s1; client> ^ack 1; 2s; lose 0 gone; client drops; at 1; resume 1 2 3; ` +
			`hello moved=failover received=2 durable=true replay=0; next`)
		s.wantDialled(map[string]string{
			"Reseat-Resumed": "failover", "Reseat-Session": s.client.Hello.Session, "Reseat-Up-From": "3", "Reseat-Down-From": "2", "Reseat-Epoch": "1002",
		})
		goesOn(s.client, s.up)
		// The next resume is an ordinary one, also through another node.
		s.play(`client> ^ack 2; sync; client drops; game> s3; at 2; resume 2 3 3; client< s3; hello moved= received=3; no dial`)
	})
}

// handsOver is the script of a session at a node that drains, and then at the next, which has been handed all of it. The game
// server says more after the Close frame came, before its answer.
const handsOver = `client> a; game< a; drains; game< Close 1001 moved; %sgame> last words, Close 1001; client< last words, ^close 4503 retry; ` +
	`at 1; resume 0 1 1; client< last words; hello moved=handoff received=1; `

func TestDrainHandsDurableSessionsOverWhole(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(`begin; detach; game> missed`)
		away := s.client
		s.client, s.up, s.before = s.older, s.before, s.up
		s.play(fmt.Sprintf(handsOver, `before< Close 1001 moved; before> Close 1001; `) + `next`)
		s.wantDialled(map[string]string{"Reseat-Resumed": "handoff"})
		goesOn(s.client, s.up)
		s.client = away.At(s.Door)
		s.play(`resume 0 0 0; client< missed; attached`)
	})
}

func TestHandOffThatMeetsTroubleIsWhole(t *testing.T) {
	for name, trouble := range map[string]func(d *durableNodes, session string){
		"its answer is lost": func(d *durableNodes, _ string) { d.lostAnswers = true },
		"a write of the seat was under way when the session was frozen": func(d *durableNodes, session string) {
			var written atomic.Bool
			d.handingOver = func() {
				if written.CompareAndSwap(false, true) {
					d.seats.Set(session, d.seats.Records()[session].Value)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, durablePolicy(), func(s *scene) {
				s.play(`sync`)
				synctest.Wait()
				trouble(s.durable, s.client.Hello.Session)
				s.play(fmt.Sprintf(handsOver, ``))
			})
		})
	}
}

// A game server that writes to the sessions of a draining node moves none of them into nowhere.
func TestCallsForSessionThatIsHandedOffWait(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		id, c := s.client.Hello.Session, s.gw.Control()
		outcomes := make(chan control.Outcome, 2)
		s.durable.handingOver = func() {
			go func() {
				_, o := c.SetData(id, []byte("late"), nil)
				outcomes <- o
			}()
			go func() { outcomes <- c.End("", id, wire.CodeNormal, "late") }()
			time.Sleep(100 * time.Millisecond)
		}
		s.play(`drains; game< Close 1001`)
		_, o := c.SetData(id, []byte("in time"), nil)
		wstest.Equal(t, "outcome before the game server's answer", o, control.Done)
		s.play(`game> Close 1001; client< ^close 4503`)
		for range 2 {
			if o := <-outcomes; o == control.Done {
				t.Error("a call for a session that has gone was answered as done")
			}
		}
		s.play(`at 1; resume 0 0 0; hello moved=handoff received=0`)
		s.wantData("in time")
	})
}

func (s *scene) wantData(want string) {
	s.t.Helper()
	data, _, _ := s.gw.Control().Data(s.client.Hello.Session)
	wstest.Equal(s.t, "data", string(data), want)
}

// A change is in the seat before the call is answered, so a crash right after the answer loses nothing.
func TestCallsAreAnsweredOnceTheSeatHasTheChange(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(`sync; begin; sync`)
		synctest.Wait()
		s.durable.links[0].SetBefore(func() { time.Sleep(200 * time.Millisecond) })
		_, o := s.gw.Control().SetData(s.older.Hello.Session, []byte("score"), nil)
		wstest.Equal(t, "SetData", o, control.Done)
		s.play(`end kicked; unlinked; lose 0 gone; at 1; refused 4410 0 0 0`)
		s.client = s.older.At(s.Door)
		s.play(`resume 0 0 0`)
		s.wantData("score")
	})
}

// A node that has let its session go, though nobody has taken it, keeps nobody out.
func TestSessionThatItsOwnerDoesNotHaveIsClaimed(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(`sync`)
		synctest.Wait()
		id := s.client.Hello.Session
		own := s.durable.seats.Records()[id]
		s.durable.claimFor(1, id)
		s.play(`fenced 1; game< Close 1001`)
		s.durable.seats.Set(id, own.Value) // as if the write of node 1 had been lost
		synctest.Wait()                    // while the session ends, its client is asked to try again
		s.play(`at 1; resume 0 0 0; hello moved=failover received=0`)
	})
}

// A spent token is refused and reported by a node that does not have the session, too.
func TestSpentTokenAtClaimIsReported(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(`detach; resume 0 0 0; detach; lose 0 gone`)
		s.client = s.older
		heard := s.nodes.of[1].listen()
		s.play(`at 1; refused 4401 0 0 0`)
		heard.want(s.client.Hello.Session, events.Replayed)
	})
}

func TestImpossibleCountsClaimNothing(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(`detach; lose 0 gone; at 1; refused 4400 9007199254740000 0 0; refused 4400 0 9007199254740000 9007199254740000; ` +
			`resume 0 0 0; hello moved=failover received=0`)
	})
}

// Without another node that takes them, durable sessions stay claimable: by this node's next process, say.
func TestDurableSessionCanBeClaimedAfterDrain(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(`client> a; game< a; lose 1 unclear; drains; game< Close 1001 moved; client< ^close 4503 retry; lose 0 gone; at 1; resume 0 1 1; ` +
			`hello moved=failover received=1`)
	})
}

// Two nodes that both believe to have a durable session: who may claim it, who says hello, and who lets go.

// claimable is the script of a client that has said "a", when its node is lost to the others, and with it the client.
const claimable = `client> a; sync; lose 0 gone; client drops; at 1; `

// goesOnThere is the script of its first node that has the session as if nothing had happened.
const goesOnThere = `; find 0; resume 0 1 1; hello moved= received=1; client> b; game< a, b`

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

// revision is that of the session's seat.
func (s *scene) revision() uint64 {
	return s.durable.seats.Records()[s.client.Hello.Session].Revision
}

// Of two nodes that claim a session, the one that loses the write passes its client on.
func TestLostClaimIsNone(t *testing.T) {
	inCluster(t, 3, durablePolicy(), func(s *scene) {
		s.play(claimable + `forget`)
		p, link := s.client, s.durable.links[1]
		link.SetBefore(func() {
			link.SetBefore(nil)
			s.durable.resumeAt(p, 2, 0, 1, 1)
		})
		s.play(`resume 0 1 1; hello moved=failover received=1; lacks; no dial; counts reseat_claims_total lost=1; counts reseat_sessions_fenced_total; ` +
			`at 2; next; client> b; game< b`)
	})
}

// While a node takes a session in, the seat names it a moment before it has the session. Its denial counts if the
// seat stays as it is.
func TestOwnerThatDeniesOnceKeepsItsSession(t *testing.T) {
	inCluster(t, 3, durablePolicy(), func(s *scene) {
		s.play(claimable)
		id, seats := s.client.Hello.Session, s.durable.keepers[2]
		s.durable.claimFor(2, id)
		time.AfterFunc(50*time.Millisecond, func() {
			seat, err := seats.Get(s.t.Context(), id)
			seat.Ended, seat.Reason = wire.CodeEnded, "kicked"
			if err == nil {
				_, err = seats.Put(s.t.Context(), seat)
			}
			if err != nil {
				t.Error(err)
			}
		})
		wstest.Equal(t, "close reason", s.client.TryResume(s.states([]string{"0", "1", "1"})).WantFinal(wire.CodeEnded).Reason, "kicked")
		s.play(`lacks`)
	})
}

// A claim is read again before its hello: of two that both seem to have succeeded the later one counts.
func TestClaimIsReadAgainBeforeHello(t *testing.T) {
	inCluster(t, 3, durablePolicy(), func(s *scene) {
		s.play(claimable)
		s.durable.duringDial(1, func() { s.durable.claimFor(2, s.client.Hello.Session) })
		s.play(`refused 4504 retry 0 1 1; next; game< Close 1001 moved; lacks`)
	})
}

// A claim that cannot be written is none: the older node, if it is there after all, goes on.
func TestClaimThatIsNotWrittenChangesNothing(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(claimable)
		s.durable.links[1].SetBefore(func() { s.durable.links[1].SetCut(true) })
		s.play(`refused 4504 retry 0 1 1; lacks; no dial` + goesOnThere)
	})
}

// If it cannot be read again, the client is asked to come back, and nothing has changed.
func TestUnreadClaimChangesNothing(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(claimable + `forget`)
		s.durable.duringDial(1, func() { s.durable.links[1].SetCut(true) })
		s.play(`refused 4504 retry 0 1 1; counts reseat_sessions_fenced_total; linked; resume 0 1 1; hello moved=failover received=1; client> b`)
		synctest.Wait()
		var got []string
		for s.game.Joined() > 0 { // the first was closed, since nobody waited for it any more
			game := s.game.Next()
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
	for _, state := range []string{"alive", "unclear"} {
		inCluster(t, 2, durablePolicy(), func(s *scene) {
			s.play(claimable + `1s; lose 0 ` + state)
			before := s.revision()
			s.play(`refused 4504 retry 0 1 1`)
			wstest.Equal(t, "revision of the seat", s.revision(), before)
			s.play(`lacks` + goesOnThere)
		})
	}
}

// A session is claimed only after all that can refuse its client: a refusal changes nothing.
func TestRefusedClientClaimsNothing(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(`game> s; client< s; client> ^ack 1; detach; 1s; resume 1 0 0; sync; 1s; lose 0 gone`) // the seat has the ack then
		before := s.revision()
		s.play(`client drops; at 1; refused 4408 final 0 0 0; lacks`)
		wstest.Equal(t, "revision of the seat", s.revision(), before)
	})
}

// A claim has an epoch, and tokens, above all earlier ones; and it stands in the seat before its hello.
func TestTokensOfClaimAreNewerThanAllBefore(t *testing.T) {
	inCluster(t, 3, durablePolicy(), func(s *scene) {
		s.play(`sync`)
		for i := 1; i <= 2; i++ {
			s.play(fmt.Sprintf(`lose %d gone; client drops; at %d; resume 0 0 0; next`, i-1, i))
			seat, err := s.durable.keepers[i].Get(s.t.Context(), s.client.Hello.Session)
			if err != nil || seat.Epoch != uint64(i) || seat.Owner != nodeID(i) {
				t.Errorf("seat of epoch %d, owner %s, %v; want epoch %d, owner %s", seat.Epoch, seat.Owner, err, i, nodeID(i))
			}
			s.play(`sync`)
			if info := s.onlySession(); info.Epoch == 0 {
				t.Errorf("session %+v, want an epoch", info)
			}
		}
		// A node that verifies the newest token knows that an older owner is none.
		s.play(`find 0; lose 1 gone; client drops; at 0; resume 0 0 0; hello moved= received=0; lacks`)
	})
}

// A node releases a session as soon as it learns that another one has it: by a token of a later epoch, by a
// write of its seat, or because it is notified.
func TestFormerOwnerLearnsOfClaim(t *testing.T) {
	for name, learns := range map[string]string{
		"token":   `find 0; client drops; at 0; resume 0 0 0; hello moved= received=0`,
		"write":   `at 0; linked; renews`,
		"message": `at 0; linked; fenced 1`,
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, durablePolicy(), func(s *scene) { // it does not hear that it is fenced
				s.play(`detach; lose 0 silent; unlinked; at 1; resume 0 0 0; next; sync; at 0; has; at 1; ` + learns + `; before< Close 1001 moved; at 0; lacks`)
			})
		})
	}
}

// A client of NATS without the cluster's keys can say that a session is another node's, and write anything into its seat.
func TestOnlyASealedSeatEndsASession(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(`sync`)
		synctest.Wait() // its owner writes no more
		id, seats := s.client.Hello.Session, s.durable.seats
		own := seats.Records()[id].Value
		s.durable.claimFor(1, id)
		taken := seats.Records()[id].Value
		forged, otherKey := bytes.Clone(taken), bytes.Clone(taken)
		forged[len(forged)-1] ^= 1
		otherKey[5] ^= 1 // of the key's id
		for name, seat := range map[string][]byte{"as it was": own, "changed": forged, "of an unknown key": otherKey, "no seat": []byte("{}"), "empty": nil} {
			seats.Set(id, seat)
			s.play(`fenced 7; fenced 7; fenced 7; renews; has; sync`)
			if t.Failed() {
				t.Fatalf("a message ended the session, with its seat %s", name)
			}
		}
	})
}

// An owner that was away while its session went on and ended elsewhere does not bring the session back.
func TestSessionThatHasEndedElsewhereStaysEnded(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(`sync; lose 0 silent; unlinked; at 1; resume 0 0 0; sync; client drops; 45s; ended; at 0; attached; linked; renews; lacks; at 1; refused 4404 0 0 0`)
	})
}

// A session that ends while the engine is away is not claimed once it is back, nor is its end reported again.
func TestEndIsWrittenOnceTheEngineIsBack(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(`sync; begin; sync`)
		synctest.Wait()
		s.play(`engine away; end kicked; older> ^bye; 10s; engine back; 5s; lose 0 gone; at 1; refused 4410 0 0 0`)
		s.client = s.older.At(s.Door)
		s.play(`refused 4404 0 0 0`)
	})
}

// Without an answer of the engine a node ends an absent player's session without a word to the game server.
func TestOwnerWithoutEngineSaysNothing(t *testing.T) {
	for how, script := range map[string]string{"there": `client drops; game< Close 1001 grace period over`, "away": `engine away; client drops; game< end`} {
		t.Run(how, func(t *testing.T) {
			inCluster(t, 1, durablePolicy(), func(s *scene) { s.play(`sync; ` + script) })
		})
	}
}

// What an attached client and its game server say goes through without the engine, and new sessions wait for none.
func TestAttachedClientNeedsNoEngine(t *testing.T) {
	inCluster(t, 2, durablePolicy(), func(s *scene) {
		s.play(`sync; engine away; 10s`)
		over := make(chan struct{})
		s.t.Cleanup(func() { close(over) })
		for _, link := range s.durable.links { // nor does it answer at once
			link.SetBefore(func() {
				select {
				case <-time.After(time.Minute):
				case <-over:
				}
			})
		}
		goesOn(s.client, s.up)
		s.play(`mark; client drops; at 1; resume 1 1 1; hello moved= received=1; client> b; game< b; at 0; begin; hello durable=; took 0s`) // not durable without a seat
	})
}

// A lateDial is a durable session whose client waits at node 0 for its game server to be dialled again, while
// node 1 takes node 0 for silent and claims the session.
type lateDial struct {
	*scene
	waiting *wstest.Peer // the client at node 0
	events  listener     // of node 0

	answer chan struct{} // closed: the game server answers node 0's dial
	gate   chan struct{} // closed: node 0 takes the answer
}

// inLateDial runs f with a lateDial whose client waits at node 0 if waits says so.
func inLateDial(t *testing.T, waits bool, f func(*testing.T, *lateDial)) {
	t.Helper()
	inCluster(t, 2, hardDurable(), func(s *scene) {
		l := &lateDial{scene: s, answer: make(chan struct{}), gate: make(chan struct{})}
		l.play(`detach; game< Close 1001; game> Close 1001`)
		synctest.Wait()
		l.events = l.listen()
		if waits {
			l.game.Refuse = func(net.Conn, *http.Request) bool { <-l.answer; return false }
			l.waiting = l.client.At(l.gatedDoor(l.gate)).TryResume(l.states([]string{"0", "0", "0"}))
			synctest.Wait()
		}
		l.play(`lose 0 silent; at 1; resume 0 0 0; next; at 0`)
		f(t, l)
	})
}

// wantGivenUp checks that node 0 has nothing left of the session, has not said that it ended, and that it goes on
// at node 1.
func (l *lateDial) wantGivenUp(published ...string) {
	l.t.Helper()
	l.events.want(l.client.Hello.Session, published...)
	wantNothingLeft(l.t, l.world)
	l.play(`no dial; lacks; at 1; has; hello moved=failover received=0`)
	goesOn(l.client, l.up)
}

// comesAgain checks that a client is refused, and resumes.
func comesAgain(p *wstest.Peer) {
	p.WantRetry(wire.CodeNodeUnreachable)
	p.WantEnd()
}

func TestDialThatIsUnderWayAtFenceIsGivenUp(t *testing.T) {
	inLateDial(t, true, func(t *testing.T, l *lateDial) {
		close(l.gate)
		l.play(`fenced 1`)
		comesAgain(l.waiting)
		close(l.answer)
		l.game.Next().WantEnd()
		l.wantGivenUp()
	})
}

// The game server has answered, but its connection is not yet the session's.
func TestConnectionThatIsDialledAtFenceIsClosed(t *testing.T) {
	inLateDial(t, true, func(t *testing.T, l *lateDial) {
		close(l.answer)
		game := l.game.Next()
		synctest.Wait()
		l.play(`fenced 1`)
		synctest.Wait()
		close(l.gate)
		comesAgain(l.waiting)
		game.WantEnd()
		l.wantGivenUp()
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
		game := l.game.Next()
		game.WantReason(wire.CodeGoingAway, "moved")
		game.Close(wire.CodeGoingAway, "")
		l.wantGivenUp(events.Resumed)
	})
}

// The claim was before the resume: node 0 writes the seat before it dials, and is refused.
func TestOlderOwnerThatWritesItsSeatDoesNotDial(t *testing.T) {
	inLateDial(t, false, func(t *testing.T, l *lateDial) {
		comesAgain(l.older.At(l.Door).TryResume(l.older.Hello.Token+", reseat.settled.0.0", "0"))
		l.wantGivenUp()
	})
}

// The grace period of a session ends while its node cannot find out whether it has the session.
func TestSessionThatEndsInSilenceIsNoVerdict(t *testing.T) {
	for name, claimed := range map[string]string{"nobody claims it": ``, "claimed": `lose 0 silent; at 1; resume 0 0 0; client drops; at 0; `} { // it has not accepted anything there
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, durablePolicy(), func(s *scene) {
				s.play(`detach; unlinked; 40s; game< end; ended; refused 4504 retry 0 0 0; linked; ` + claimed)
				if claimed != "" {
					s.client = s.older.At(s.Door)
				}
				s.play(`resume 0 0 0; sync`)
			})
		})
	}
}
