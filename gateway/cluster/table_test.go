package cluster

import (
	"errors"
	"slices"
	"testing"
	"time"

	"reseat/gateway/internal/test/wstest"
)

// A node that was judged gone while its machine refused for a moment is back with its next heartbeat.
func TestHeartbeatRevivesANode(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.wantVerdict(peerID, Gone)
		s.wantLines("node.gone", 1)
		if _, err := s.Dial(t.Context(), peerID); !errors.Is(err, ErrGone) {
			t.Errorf("a gone node is dialled: %v, want %v", err, ErrGone)
		}
		s.Heartbeat(peerID)
		s.peerAnswers(peerID)
		s.wantState(peerID, "up")
		s.wantLines("node.up", 2)
		s.wantVerdict(peerID, Alive)
	})
}

// What a node has said is not undone by a heartbeat that was under way.
func TestNodeThatHasLeftStaysGone(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.Record(peerID, recordOf(peerID, peerAddr, stateLeft))
		s.Heartbeat(peerID)
		s.wantState(peerID, "gone")
		s.wantLines("node.gone", 1)
		time.Sleep(hideAfter + 5*time.Second)
		s.wantState(peerID, "unknown")
		s.wantVerdict(peerID, Gone)
	})
}

// A node that lost NATS alone has sessions, and its address is known. When it was heard is remembered for longer.
func TestHiddenNodeIsStillReached(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.net.answers(peerAddr, silence)
		time.Sleep(10 * time.Minute)
		s.wantState(peerID, "unknown")
		s.peerAnswers(peerID)
		s.reaches(peerID)
		s.Heartbeat(peerID)
		heard := time.Now()
		s.net.answers(peerAddr, silence)
		time.Sleep(forgetAfter + time.Minute)
		if _, err := s.Dial(t.Context(), peerID); !errors.Is(err, ErrUnknown) {
			t.Errorf("after an hour: %v, want %v", err, ErrUnknown)
		}
		j := s.wantVerdict(peerID, Silent)
		wstest.Equal(t, "evidence", j.Evidence, "it is not known")
		wstest.Equal(t, "heard", j.Heard.Equal(heard), true)
	})
}

// Only a node that nobody has ever heard of is strange, and nobody is while the directory is not complete.
func TestWhichNodesAreStrange(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.net.answers(peerAddr, silence)
		wstest.Equal(t, "a stranger is strange", s.IsStrange("00000bad"), true)
		wstest.Equal(t, "the node itself is strange", s.IsStrange(s.ID()), false)
		wstest.Equal(t, "a peer is strange", s.IsStrange(peerID), false)
		s.Heartbeat(peerID)
		time.Sleep(forgetAfter + time.Minute)
		wstest.Equal(t, "a node that was heard once is strange", s.IsStrange(peerID), false)
		s.EngineDown(errors.New("cut"))
		wstest.Equal(t, "a node is strange while the engine is away", s.IsStrange("00000bad"), false)
	})
}

// Grace periods go by when a node was heard, not by when it could have been.
func TestOutageOfTheEngineIsNoSignOfLife(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		heard := time.Now()
		s.net.answers(peerAddr, silence)
		time.Sleep(time.Second)
		s.outage(5 * time.Minute)
		if j := s.Judge(t.Context(), peerID); j.Verdict != Unclear && j.Verdict != Silent || !j.Heard.Equal(heard) {
			t.Errorf("%+v, want heard at %v", j, heard)
		}
		s.outage(0)
		time.Sleep(time.Second) // the last judgement is used no more
		s.outage(0)
		s.net.answers(peerAddr, fails)
		s.wantVerdict(peerID, Unclear) // nobody could be heard before
	})
}

func TestNodeWithOtherKeysIsLoggedOncePerMinute(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.net.answers(peerAddr, s.net.node(peerID, keys("other")))
		for range 5 {
			s.Dial(t.Context(), peerID)
		}
		s.wantLines("node.refused", 1)
		time.Sleep(refusedEvery)
		s.Dial(t.Context(), peerID)
		s.wantLines("node.refused", 2)
	})
}

// dials begins n connections to the peer, which close at once, and sends their errors.
func (s *stage) dials(n int) <-chan error {
	results := make(chan error, n)
	for range n {
		go func() {
			conn, err := s.Dial(s.t.Context(), peerID)
			if err == nil {
				conn.Close()
			}
			results <- err
		}()
	}
	return results
}

// wantErrors reads n errors, each of which must be one of these; none of them means nil.
func wantErrors(t *testing.T, results <-chan error, n int, want ...error) {
	t.Helper()
	for range n {
		err := <-results
		if len(want) == 0 && err == nil || slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }) {
			continue
		}
		t.Fatalf("a dial: %v, want %v", err, want)
	}
}

// A process that stands still, whose kernel takes connections, is not waited for any longer than it
// takes to judge it. Clients give up an attempt after 4 seconds.
func TestDialsEndWhenTheNodeIsJudgedSilent(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.net.answers(peerAddr, silence)
		s.Heartbeat(peerID)
		began := time.Now()
		wantErrors(t, s.dials(64), 64, ErrSilent)
		if took, limit := time.Since(began), s.cfg.DeadAfter+beatEvery+2*probeTime; took > limit {
			t.Errorf("it took %v, want at most %v", took, limit)
		}
	})
}

// A node that is not heard is asked once for all who want to connect, and is not connected to unless it
// answers.
func TestSilentNodeIsAskedBeforeItIsConnectedTo(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.net.answers(peerAddr, silence)
		time.Sleep(10 * time.Second) // the judgement that its silence has brought is no longer used
		before, began := s.net.made(), time.Now()
		wantErrors(t, s.dials(64), 64, ErrSilent)
		if took := time.Since(began); took > 2*probeTime {
			t.Errorf("it took %v, want at most %v", took, 2*probeTime)
		}
		wstest.Equal(t, "connections that ask", s.net.made()-before, 2)
		// It answers, but its heartbeats do not arrive.
		s.peerAnswers(peerID)
		time.Sleep(judgedFor)
		for range 3 {
			s.reaches(peerID)
		}
		wstest.Equal(t, "connections for three clients, and one to ask", s.net.made()-before-2, 4)
	})
}
