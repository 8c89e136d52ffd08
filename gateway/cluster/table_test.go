package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// alone makes a node without peers.
func alone(t *testing.T, e *fakeEngine) (*Cluster, *lines) {
	t.Helper()
	log := new(lines)
	c, err := New(Config{Name: "test", NodeName: "a", Address: "x:1", Engine: e, Identity: keys("k"), Dialer: silence3, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return c, log
}

// A node that was judged gone while its machine refused for a moment is back with its next heartbeat.
func TestHeartbeatRevivesANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, log := stage(t)
		if j := c.Judge(t.Context(), peerID); j.Verdict != Gone || log.count("node.gone") != 1 {
			t.Fatalf("%+v, %d lines", j, log.count("node.gone"))
		}
		if _, err := c.Dial(t.Context(), peerID); !errors.Is(err, ErrGone) {
			t.Errorf("a gone node is dialled: %v", err)
		}
		c.Heartbeat(peerID)
		n.answers(peerAddr, n.node(peerID, keys("k")))
		if got := c.stateOf(peerID); got != "up" || log.count("node.up") != 2 {
			t.Errorf("state %q, %d lines", got, log.count("node.up"))
		}
		if j := c.Judge(t.Context(), peerID); j.Verdict != Alive {
			t.Errorf("%+v", j)
		}
	})
}

// What a node has said is not undone by a heartbeat that was under way.
func TestNodeThatHasLeftStaysGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _, log := stage(t)
		c.Record(peerID, recordOf(peerID, peerAddr, stateLeft))
		c.Heartbeat(peerID)
		if got := c.stateOf(peerID); got != "gone" || log.count("node.gone") != 1 {
			t.Errorf("state %q, %d lines", got, log.count("node.gone"))
		}
		time.Sleep(hideAfter + 5*time.Second)
		if got := c.stateOf(peerID); got != "unknown" {
			t.Errorf("it is listed as %q after a minute", got)
		}
		if j := c.Judge(t.Context(), peerID); j.Verdict != Gone {
			t.Errorf("%+v after a minute", j)
		}
	})
}

// A node that lost NATS alone has sessions, and its address is known.
func TestHiddenNodeIsStillReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		n.answers(peerAddr, silence)
		time.Sleep(10 * time.Minute)
		if got := c.stateOf(peerID); got != "unknown" {
			t.Errorf("listed as %q", got)
		}
		n.answers(peerAddr, n.node(peerID, keys("k")))
		conn, err := c.Dial(t.Context(), peerID)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		time.Sleep(forgetAfter)
		if _, err := c.Dial(t.Context(), peerID); !errors.Is(err, ErrUnknown) {
			t.Errorf("after an hour: %v", err)
		}
		if j := c.Judge(t.Context(), peerID); j.Verdict != Silent || j.Heard.IsZero() || time.Since(j.Heard) < forgetAfter {
			t.Errorf("%+v: when it was heard is forgotten", j)
		}
	})
}

// When a node was heard is remembered for longer than the node.
func TestForgottenNodeWasHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		n.answers(peerAddr, silence)
		time.Sleep(10 * time.Minute)
		c.Heartbeat(peerID)
		heard := time.Now()
		time.Sleep(forgetAfter + time.Minute)
		if j := c.Judge(t.Context(), peerID); j.Verdict != Silent || j.Evidence != "it is not known" || !j.Heard.Equal(heard) {
			t.Errorf("%+v, want heard at %v", j, heard)
		}
	})
}

// Only a node that nobody has ever heard of is strange, and nobody is while the directory is not complete.
func TestWhichNodesAreStrange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		n.answers(peerAddr, silence)
		if !c.IsStrange("00000bad") || c.IsStrange(c.ID()) || c.IsStrange(peerID) {
			t.Error("of a stranger, this node and its peer not just the first is strange")
		}
		c.Heartbeat(peerID)
		time.Sleep(forgetAfter + time.Minute)
		if c.IsStrange(peerID) {
			t.Error("a node that was heard once is strange")
		}
		c.EngineDown(errors.New("cut"))
		if c.IsStrange("00000bad") {
			t.Error("a node is strange while the engine is away")
		}
	})
}

// Grace periods go by when a node was heard, not by when it could have been.
func TestOutageOfTheEngineIsNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		heard := time.Now()
		n.answers(peerAddr, silence)
		time.Sleep(time.Second)
		c.EngineDown(errors.New("cut"))
		time.Sleep(5 * time.Minute)
		c.EngineUp(EngineStatus{Up: true})
		if j := c.Judge(t.Context(), peerID); j.Verdict != Unclear && j.Verdict != Silent || !j.Heard.Equal(heard) {
			t.Errorf("%+v, want heard at %v", j, heard)
		}
		c.EngineDown(errors.New("cut"))
		c.EngineUp(EngineStatus{Up: true})
		time.Sleep(time.Second) // the last judgement is used no more
		c.EngineDown(errors.New("cut"))
		c.EngineUp(EngineStatus{Up: true})
		n.answers(peerAddr, fails)
		if j := c.Judge(t.Context(), peerID); j.Verdict != Unclear {
			t.Errorf("%+v right after the engine is back: nobody could be heard before", j)
		}
	})
}

// A node that hears nobody says so of none.
func TestNobodyIsSilentForANodeThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, log := stage(t)
		n.answers(peerAddr, silence)
		for i := range 3 {
			id := fmt.Sprintf("0000000%x", 12+i)
			c.Record(id, recordOf(id, "10.0.0.9:"+id, "up"))
		}
		time.Sleep(10 * time.Second)
		if n := log.count("node.silent"); n != 0 {
			t.Errorf("%d nodes are silent: %s", n, log.b.String())
		}
		beats(t, c, "0000000c")
		beats(t, c, "0000000d")
		time.Sleep(10 * time.Second)
		if got := c.stateOf(peerID); got != "silent" {
			t.Errorf("state %q, though others are heard", got)
		}
	})
}

func TestEngineIsSaidToBeBackAfterItWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _, log := stage(t)
		if log.count("engine.back") != 0 || log.count("cluster.joined") != 1 {
			t.Errorf("at the start: %s", log.b.String())
		}
		c.EngineDown(errors.New("cut"))
		c.EngineDown(errors.New("cut"))
		c.EngineUp(EngineStatus{Up: true})
		if log.count("engine.lost") != 1 || log.count("engine.back") != 1 {
			t.Errorf("after an outage: %s", log.b.String())
		}
	})
}

// An engine that will never do ends the start; one that is only away does not.
func TestUnusableEngineEndsTheStart(t *testing.T) {
	c, _ := alone(t, &fakeEngine{records: make(map[string][]byte), unusable: fmt.Errorf("%w: no right", ErrUnusable)})
	defer c.Stop()
	if err := c.Join(time.Second); !errors.Is(err, ErrUnusable) {
		t.Errorf("%v", err)
	}
}

// The first record only takes the id; the second is the one that others get.
func TestRecordIsPublishedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{records: make(map[string][]byte)}
		c, _ := alone(t, e)
		if err := c.Join(time.Second); err != nil {
			t.Fatal(err)
		}
		defer c.Stop()
		e.mu.Lock()
		n := len(e.puts)
		e.mu.Unlock()
		if n != 1 {
			t.Errorf("%d records were put, want 1", n)
		}
	})
}

// The lineage of an id is that of its node: a successor that finds another's does not take its place.
func TestSuccessorDoesNotTakeAnothersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{records: map[string][]byte{"0000000a": recordOf("0000000a", "y:1", "up")}}
		c, err := New(Config{Name: "test", NodeName: "a", Address: "x:1", Engine: e, Identity: keys("k"), ID: "0000000a", Lineage: "mine", Dialer: silence3, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Stop()
		if err := c.Join(time.Second); !errors.Is(err, errRefused) {
			t.Errorf("%v", err)
		}
	})
}

func TestLateJoinIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{records: make(map[string][]byte), away: true}
		c, log := alone(t, e)
		if err := c.Join(time.Second); err != nil {
			t.Fatal(err)
		}
		defer c.Stop()
		e.skew = time.Minute
		e.up()
		time.Sleep(10 * time.Second)
		if n := log.count("cluster.not_joined"); n < 3 || n > 4 {
			t.Errorf("%d attempts in 10 s", n)
		}
		e.mu.Lock()
		e.skew = 0
		e.mu.Unlock()
		time.Sleep(2 * recordEvery)
		if log.count("cluster.joined") != 1 {
			t.Errorf("not joined: %s", log.b.String())
		}
	})
}

func TestNodeWithOtherKeysIsLoggedOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, log := stage(t)
		n.answers(peerAddr, n.node(peerID, keys("other")))
		for range 5 {
			c.Dial(t.Context(), peerID)
		}
		if got := log.count("node.refused"); got != 1 {
			t.Errorf("%d lines", got)
		}
		time.Sleep(refusedEvery)
		c.Dial(t.Context(), peerID)
		if got := log.count("node.refused"); got != 2 {
			t.Errorf("%d lines after a minute", got)
		}
	})
}

func TestAllPeersWithOtherKeysEndTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			second *Identity
			joins  bool
		}{"all": {keys("other"), false}, "one": {keys("k"), true}} {
			e := &fakeEngine{records: map[string][]byte{
				peerID: recordOf(peerID, peerAddr, "up"), "0000000c": recordOf("0000000c", "10.0.0.3:8082", "up"),
			}}
			n := newNetwork(t)
			n.answers(peerAddr, n.node(peerID, keys("other")))
			n.answers("10.0.0.3:8082", n.node("0000000c", test.second))
			c, err := New(Config{Name: "test", NodeName: "a", Address: "x:1", Engine: e, Identity: keys("k"), Dialer: n.dial, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Join(3 * time.Second); (err == nil) != test.joins {
				t.Errorf("%s: %v", name, err)
			}
			c.Stop()
		}
		time.Sleep(20 * time.Second)
	})
}

// Connections that are being made to a slow node do not fill this one: more than its places wait
// for a while, and not for ever.
func TestDialsOfASlowNodeAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		n.answers(peerAddr, silence)
		synctest.Wait() // this node has asked who answers at its own address
		before := n.made()
		results := make(chan error, 2*maxDials)
		for range 2 * maxDials {
			go func() { _, err := c.Dial(t.Context(), peerID); results <- err }()
		}
		synctest.Wait()
		if len(results) != 0 || n.made() != before+maxDials {
			t.Errorf("%d were refused at once, and %d connections begun; want none, and %d", len(results), n.made()-before, maxDials)
		}
		time.Sleep(dialTurn)
		synctest.Wait()
		if len(results) != maxDials {
			t.Errorf("%d were refused after their turn, want %d", len(results), maxDials)
		}
		if err := <-results; !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
	})
}

// A process that stands still, whose kernel takes connections, is not waited for any longer than it
// takes to judge it. Clients give up an attempt after 4 seconds.
func TestDialsEndWhenTheNodeIsJudgedSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		n.answers(peerAddr, silence)
		c.Heartbeat(peerID)
		results := make(chan error, 2*maxDials)
		for range cap(results) {
			go func() { _, err := c.Dial(t.Context(), peerID); results <- err }()
		}
		began := time.Now()
		for range cap(results) {
			if err := <-results; !errors.Is(err, ErrSilent) && !errors.Is(err, ErrBusy) {
				t.Fatal(err)
			}
		}
		if took, limit := time.Since(began), c.cfg.DeadAfter+beatEvery+2*probeTime; took > limit {
			t.Errorf("it took %v, want at most %v", took, limit)
		}
	})
}

// A node that is not heard is asked once for all who want to connect, and is not connected to unless it
// answers.
func TestSilentNodeIsAskedBeforeItIsConnectedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		n.answers(peerAddr, silence)
		time.Sleep(10 * time.Second) // the judgement that its silence has brought is no longer used
		before, began := n.made(), time.Now()
		results := make(chan error, maxDials)
		for range cap(results) {
			go func() { _, err := c.Dial(t.Context(), peerID); results <- err }()
		}
		for range cap(results) {
			if err := <-results; !errors.Is(err, ErrSilent) {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 2*probeTime || n.made() != before+2 {
			t.Errorf("it took %v, and %d connections; want at most %v, and 2", took, n.made()-before, 2*probeTime)
		}
		// It answers, but its heartbeats do not arrive.
		n.answers(peerAddr, n.node(peerID, keys("k")))
		time.Sleep(judgedFor)
		for range 3 {
			conn, err := c.Dial(t.Context(), peerID)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		if got := n.made() - before - 2; got != 4 {
			t.Errorf("%d connections for three clients, want one more to ask", got)
		}
	})
}

// All players of a node come back at once: each gets its turn.
func TestDialsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		answer := n.node(peerID, keys("k"))
		n.answers(peerAddr, func(ctx context.Context) (net.Conn, error) {
			time.Sleep(dialTurn / 8)
			return answer(ctx)
		})
		results := make(chan error, 5*maxDials)
		for range cap(results) {
			go func() {
				conn, err := c.Dial(t.Context(), peerID)
				if err == nil {
					conn.Close()
				}
				results <- err
			}()
		}
		for range cap(results) {
			if err := <-results; err != nil {
				t.Fatal(err)
			}
		}
	})
}
