package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
)

// A fakeEngine is an engine that a test plays. All nodes of a test share its records.
type fakeEngine struct {
	h       EngineHandler
	records map[string][]byte
	puts    []record
	beats   int
	away    bool
	skew    time.Duration
	// unusable: Ready says so.
	unusable error
	// unread: records that are there cannot be read.
	unread bool
	mu     sync.Mutex
}

func newFakeEngine() *fakeEngine { return &fakeEngine{records: make(map[string][]byte)} }

// stored returns the records.
func (e *fakeEngine) stored() map[string][]byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.records)
}

// set changes what the engine does, while nodes use it.
func (e *fakeEngine) set(f func(*fakeEngine)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(e)
}

func (e *fakeEngine) Start(h EngineHandler) error { e.h = h; return nil }

func (e *fakeEngine) Ready(ctx context.Context) error {
	if e.unusable != nil {
		return e.unusable
	}
	if e.away {
		<-ctx.Done()
		return ErrEngineDown
	}
	e.up()
	return nil
}

func (e *fakeEngine) up() {
	e.mu.Lock()
	e.away = false
	list := maps.Clone(e.records)
	e.mu.Unlock()
	e.h.EngineUp(EngineStatus{Up: true})
	for id, value := range list {
		e.h.Record(id, value)
	}
	e.h.Synced()
}

func (e *fakeEngine) CreateNode(_ context.Context, id string, value []byte) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch old := e.records[id]; {
	case old != nil && e.unread:
		return nil, ErrExists
	case old != nil:
		return old, ErrExists
	}
	e.records[id] = value
	return nil, nil
}

func (e *fakeEngine) PutNode(_ context.Context, id string, value []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away {
		return ErrEngineDown
	}
	r, err := parseRecord(id, value)
	e.puts = append(e.puts, r)
	e.records[id] = value
	return err
}

func (e *fakeEngine) Beat(string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.beats++
	return nil
}

func (e *fakeEngine) Publish(string, []byte) error { return nil }
func (e *fakeEngine) Subscribe(string, func(string, []byte)) (func(), error) {
	return func() {}, nil
}
func (e *fakeEngine) Status() EngineStatus { return EngineStatus{Up: !e.away} }
func (e *fakeEngine) Skew() (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.skew, true
}
func (e *fakeEngine) Reload() error { return nil }
func (e *fakeEngine) Close()        {}

// last is what the node has published last.
func (e *fakeEngine) last() record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.puts[len(e.puts)-1]
}

// derivedOf derives keys as tokens.Keys.Derive does.
func derivedOf(texts ...string) func(string, int) ([][]byte, error) {
	return func(_ string, n int) (all [][]byte, _ error) {
		for _, text := range texts {
			all = append(all, bytes.Repeat([]byte(text), n)[:n])
		}
		return all, nil
	}
}

// keys derives what nodes with the same texts share.
func keys(texts ...string) *Identity { return DerivedIdentity(derivedOf(texts...)) }

// A network is how the addresses of a test answer.
type network struct {
	t     *testing.T
	mu    sync.Mutex
	at    map[string]func(ctx context.Context) (net.Conn, error)
	dials int

	elsewhere func(context.Context) (net.Conn, error) // at all other addresses

	cluster string // of the nodes that are made
}

// answers sets what becomes of connections to an address.
func (n *network) answers(address string, f func(context.Context) (net.Conn, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[address] = f
}

// made counts the connections that were begun.
func (n *network) made() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	f := n.at[address]
	n.dials++
	n.mu.Unlock()
	if f == nil {
		f = n.elsewhere
	}
	return f(ctx)
}

func refuses(context.Context) (net.Conn, error) {
	return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
}

// fails as an unreachable network does.
func fails(context.Context) (net.Conn, error) {
	return nil, fmt.Errorf("dial: %w", syscall.EHOSTUNREACH)
}

func newNetwork(t *testing.T) *network {
	return &network{t: t, cluster: "test", elsewhere: refuses, at: make(map[string]func(context.Context) (net.Conn, error))}
}

func silence(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// node makes an address that of a node with this id.
func (n *network) node(id string, identity *Identity) func(context.Context) (net.Conn, error) {
	if err := identity.Load(id); err != nil {
		n.t.Fatal(err)
	}
	ln := wstest.NewListener(64 << 10)
	cluster := n.cluster
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			json.NewEncoder(w).Encode(Hello{ID: id, Cluster: cluster, Level: Level})
		}),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	go server.Serve(tls.NewListener(ln, identity.Server(func() string { return id }, func(string, error) {})))
	n.t.Cleanup(func() { server.Close() })
	return func(ctx context.Context) (net.Conn, error) {
		if conn, err := ln.Dial(); err == nil {
			return conn, nil
		}
		return refuses(ctx)
	}
}

const (
	ownAddr            = "10.0.0.1:8082"
	peerID, peerAddr   = "0000000b", "10.0.0.2:8082"
	thirdID, thirdAddr = "0000000c", "10.0.0.3:8082"
)

// A stage is a node that knows another one, and the world around it.
type stage struct {
	*Cluster
	t   *testing.T
	e   *fakeEngine
	net *network
	log *wstest.Log
}

// alone makes a node that knows nobody, and has not joined. It must be called in a bubble of synctest.
func alone(t *testing.T, e *fakeEngine, change ...func(*Config)) *stage {
	t.Helper()
	t.Cleanup(func() { time.Sleep(20 * time.Second) }) // fake: all connections have closed in peace
	s := &stage{t: t, e: e, net: newNetwork(t), log: new(wstest.Log)}
	cfg := Config{
		Name: "test", NodeName: "a", Address: ownAddr, Version: "v1", Formats: []int{1}, Engine: e, Identity: keys("k"),
		Dialer: s.net.dial, Log: slog.New(slog.NewTextHandler(s.log, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if s.Cluster, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// joins has the node join, which must succeed.
func (s *stage) joins(wait time.Duration) {
	s.t.Helper()
	if err := s.Join(wait); err != nil {
		s.t.Fatal(err)
	}
}

// onStage runs f in a bubble of synctest with a node that knows peerID.
func onStage(t *testing.T, f func(*testing.T, *stage), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := alone(t, newFakeEngine(), change...)
		s.joins(time.Second)
		s.Record(peerID, recordOf(peerID, peerAddr, "up"))
		f(t, s)
	})
}

// peerAnswers has a node with this id, and the keys of all, answer at the peer's address.
func (s *stage) peerAnswers(id string) { s.net.answers(peerAddr, s.net.node(id, keys("k"))) }

// Find returns a node of the table.
func (s *stage) Find(id string) (Node, bool) {
	for _, n := range s.Nodes() {
		if n.ID == id {
			return n, true
		}
	}
	return Node{}, false
}

// wantState checks the state of a node in the table, "unknown" if it is not there.
func (s *stage) wantState(id, want string) {
	s.t.Helper()
	synctest.Wait()
	got := "unknown"
	if n, ok := s.Find(id); ok {
		got = n.State.String()
	}
	wstest.Equal(s.t, "state of "+id, got, want)
}

// wantVerdict judges a node.
func (s *stage) wantVerdict(id string, want Verdict) Judgement {
	s.t.Helper()
	j := s.Judge(s.t.Context(), id)
	if j.Verdict != want || j.Evidence == "" {
		s.t.Errorf("%s is judged %v: %q; want %v", id, j.Verdict, j.Evidence, want)
	}
	return j
}

// wantLines checks how often a line was logged.
func (s *stage) wantLines(msg string, want int) {
	s.t.Helper()
	if got := s.log.Count(msg); got != want {
		s.t.Errorf("%d lines %s, want %d; the log is %s", got, msg, want, s.log.String())
	}
}

// reaches connects to a node, which must succeed.
func (s *stage) reaches(id string) {
	s.t.Helper()
	conn, err := s.Dial(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	conn.Close()
}

// outage is a time without the engine.
func (s *stage) outage(d time.Duration) {
	s.EngineDown(errors.New("cut"))
	time.Sleep(d)
	s.EngineUp(EngineStatus{Up: true})
}

func recordOf(id, address, state string) []byte {
	b, _ := json.Marshal(record{ID: id, Name: "b", Address: address, State: state, Lineage: id})
	return b
}

// beats sends a node's heartbeats until the test ends.
func (s *stage) beats(id string) {
	ctx, stop := context.WithCancel(context.Background())
	s.t.Cleanup(stop)
	go func() {
		for ctx.Err() == nil {
			s.Heartbeat(id)
			select {
			case <-time.After(beatEvery):
			case <-ctx.Done():
			}
		}
	}()
}

// Of two nodes whose records have one address, that is gone which does not answer there, whichever record
// came last: those of a bucket are read again at each connect, and may be old.
func TestNodeIsReplacedByWhoAnswersAtItsAddress(t *testing.T) {
	for _, lives := range []string{peerID, thirdID} {
		onStage(t, func(t *testing.T, s *stage) {
			s.peerAnswers(lives)
			time.Sleep(5 * time.Second)
			s.Heartbeat(lives)
			s.Record(thirdID, recordOf(thirdID, peerAddr, "up"))
			time.Sleep(time.Second)
			for _, id := range []string{peerID, thirdID} {
				s.wantState(id, map[bool]string{true: "up", false: "gone"}[id == lives])
			}
		})
	}
}

func TestVerdicts(t *testing.T) {
	// silent has nobody answer, and no heartbeat come for so long.
	silent := func(d time.Duration, then func(*stage)) func(*stage) {
		return func(s *stage) {
			s.net.answers(peerAddr, silence)
			time.Sleep(d)
			then(s)
		}
	}
	nothing := func(*stage) {}
	record := func(id, address string) func(*stage) {
		return func(s *stage) { s.Record(id, recordOf(id, address, "up")) }
	}
	for name, c := range map[string]struct {
		set  func(*stage)
		want Verdict
	}{
		"it answers":           {func(s *stage) { s.peerAnswers(peerID) }, Alive},
		"another node answers": {func(s *stage) { s.peerAnswers(thirdID) }, Gone},
		"a node of other keys": {func(s *stage) { s.net.answers(peerAddr, s.net.node(thirdID, keys("other"))) }, Unclear},
		"another node answers, and it was heard once more": {func(s *stage) { s.peerAnswers(thirdID); s.Heartbeat(peerID) }, Gone},
		"another node answers, but it beats":               {func(s *stage) { s.peerAnswers(thirdID); s.beats(peerID) }, Unclear},
		"refused":                                          {nothing, Gone},
		"refused once": {func(s *stage) {
			var first atomic.Bool
			s.net.answers(peerAddr, func(ctx context.Context) (net.Conn, error) {
				if first.CompareAndSwap(false, true) {
					return refuses(ctx)
				}
				return silence(ctx)
			})
		}, Unclear},
		"a node of this id in another cluster": {func(s *stage) { s.net.cluster = "other"; s.peerAnswers(peerID) }, Gone},
		"a node of other keys that is not heard": {func(s *stage) {
			s.net.answers(peerAddr, s.net.node(peerID, keys("other")))
			time.Sleep(2 * time.Second)
		}, Unclear},
		"refused, but it beats":      {func(s *stage) { time.AfterFunc(100*time.Millisecond, func() { s.Heartbeat(peerID) }) }, Unclear},
		"no answer, it beats":        {silent(0, func(s *stage) { s.beats(peerID) }), Unclear},
		"no answer, no beats":        {silent(2*time.Second, nothing), Silent},
		"no answer, a short silence": {silent(500*time.Millisecond, func(s *stage) { s.Heartbeat(peerID) }), Unclear},
		"nobody is heard":            {silent(0, func(s *stage) { record(thirdID, thirdAddr)(s); time.Sleep(2 * time.Second) }), Unclear},
		"half of the others are heard": {silent(0, func(s *stage) {
			record(thirdID, thirdAddr)(s)
			record("0000000d", "10.0.0.4:8082")(s)
			s.beats("0000000d")
			time.Sleep(2 * time.Second)
		}), Silent},
		"no answer, without NATS": {silent(2*time.Second, func(s *stage) { s.EngineDown(errors.New("cut")) }), Unclear},
		"it has left":             {silent(0, func(s *stage) { s.Record(peerID, recordOf(peerID, peerAddr, stateLeft)) }), Gone},
		"a record has its address, which does not answer": {silent(4*time.Second, record(thirdID, peerAddr)), Silent},
		"the others are gone, and no witnesses": {silent(0, func(s *stage) {
			for _, id := range []string{thirdID, "0000000d"} {
				s.Record(id, recordOf(id, thirdAddr, stateLeft))
			}
			time.Sleep(2 * time.Second)
		}), Silent},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				c.set(s)
				began := time.Now()
				s.wantVerdict(peerID, c.want)
				if took := time.Since(began); took > 2*probeTime+refusedPause {
					t.Errorf("it took %v, want %v at most", took, 2*probeTime+refusedPause)
				}
			})
		})
	}
}

// A node that this one has never heard of may have ended before, or not have reached the engine yet.
// How long this node has been there says nothing about that.
func TestUnknownNodeIsSilentSinceItWasAskedFor(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		time.Sleep(time.Minute)
		asked := time.Now()
		for range 2 {
			wstest.Equal(t, "heard", s.wantVerdict("0000000f", Silent).Heard, asked)
			time.Sleep(time.Second)
		}
		s.EngineDown(errors.New("cut"))
		s.wantVerdict("0000000f", Unclear)
		time.Sleep(time.Minute)
		s.e.up() // the outage does not count
		wstest.Equal(t, "silent for", time.Since(s.wantVerdict("0000000f", Silent).Heard), 2*time.Second)
	})
}

// A storm of resumes costs one judgement, and not more than so many wait for it.
func TestJudgementIsShared(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.net.answers(peerAddr, silence)
		time.Sleep(10 * time.Second) // the judgement that its silence has brought is no longer used
		before := s.net.made()
		const storm = maxWaiting + 136
		results := make(chan Judgement, storm)
		for range storm {
			go func() { results <- s.Judge(t.Context(), peerID) }()
		}
		count := make(map[Verdict]int)
		for range storm {
			count[(<-results).Verdict]++
		}
		wstest.Equal(t, "silent", count[Silent], maxWaiting)
		wstest.Equal(t, "unclear", count[Unclear], storm-maxWaiting)
		s.Judge(t.Context(), peerID) // within a second
		wstest.Equal(t, "dials", s.net.made()-before, 2)
	})
}

// A judgement is used for a second.
func TestJudgementIsMadeAgain(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.net.answers(peerAddr, silence)
		s.wantVerdict(peerID, Unclear)
		s.peerAnswers(peerID)
		s.wantVerdict(peerID, Unclear)
		time.Sleep(judgedFor)
		s.wantVerdict(peerID, Alive)
	})
}

// A drain that hands over many sessions at a time makes no TLS handshake for each.
func TestRequestsAtOnceKeepTheirConnections(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		const atOnce = 32 // as many as a drain makes
		s.peerAnswers(peerID)
		s.beats(peerID)
		transport := s.Transport()
		defer transport.CloseIdleConnections()
		before := s.net.made()
		for range 3 {
			var all sync.WaitGroup
			for range atOnce {
				all.Go(func() {
					resp, err := (&http.Client{Transport: transport}).Get("https://" + peerID + "/")
					if err != nil {
						t.Error(err)
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				})
			}
			all.Wait()
			synctest.Wait()
		}
		// net/http may dial while another connection gets free, and keep both.
		if made := s.net.made() - before; made >= 2*atOnce {
			t.Errorf("%d connections for three times %d requests at once", made, atOnce)
		}
	})
}

func TestNodeFallsSilentAndComesBack(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.wantState(peerID, "up")
		s.net.answers(peerAddr, silence)
		time.Sleep(3 * time.Second)
		s.wantState(peerID, "silent")
		s.wantLines("node.silent", 1)
		s.Record(peerID, recordOf(peerID, peerAddr, "draining"))
		s.wantState(peerID, "draining")
		s.wantLines("node.up", 2)
		time.Sleep(hideAfter + 5*time.Second)
		s.wantState(peerID, "unknown")
	})
}

// Two nodes with one --node-advertise: the one that others cannot reach says so.
func TestNodeNotesThatAnotherAnswersAtItsAddress(t *testing.T) {
	const itself = "0000000a"
	for answers, want := range map[string]int{thirdID: 1, itself: 0, "": 0} {
		t.Run(answers, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := alone(t, newFakeEngine(), func(c *Config) { c.ID = itself })
				if answers != "" {
					s.net.answers(ownAddr, s.net.node(answers, keys("k")))
				}
				s.joins(time.Second)
				time.Sleep(2 * askTime)
				s.wantLines("node.address_taken", want)
			})
		})
	}
}

// A node that was killed is found out though nobody asks for its sessions. The log says how many it had.
func TestKilledNodeIsFoundOut(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		var lost []Node
		wantLost := func(n int) {
			t.Helper()
			synctest.Wait()
			if len(lost) != n {
				t.Fatalf("lost %+v, want %d nodes", lost, n)
			}
		}
		s.OnLost(func(n Node) { lost = append(lost, n) })
		s.Record(peerID, []byte(`{"id":"0000000b","name":"b","address":"10.0.0.2:8082","state":"up","sessions":7}`))
		time.Sleep(3 * time.Second)
		s.wantState(peerID, "gone")
		wantLost(1)
		wstest.Equal(t, "lost sessions of "+lost[0].Name, lost[0].Sessions, 7)
		wstest.Equal(t, "lines of its sessions", strings.Count(s.log.String(), "sessions=7"), 2)
		for _, node := range s.Nodes() {
			if node.ID == peerID && node.Sessions != 7 {
				t.Errorf("listed as %+v, want 7 sessions", node)
			}
		}
		s.Record(peerID, recordOf(peerID, peerAddr, "up")) // it lives after all, and leaves
		s.Record(peerID, recordOf(peerID, peerAddr, stateLeft))
		time.Sleep(3 * time.Second)
		wantLost(1)
		s.Record(thirdID, recordOf(thirdID, thirdAddr, "up"))
		s.net.answers(thirdAddr, silence)
		time.Sleep(8 * time.Second)
		wantLost(1)
		s.wantState(thirdID, "silent")
		s.net.answers(thirdAddr, s.net.node("0000000d", keys("k")))
		s.Record("0000000d", recordOf("0000000d", thirdAddr, "up"))
		wantLost(2)
		wstest.Equal(t, "a node that was replaced", lost[1].ID, thirdID)
	})
}

// Without NATS nobody can be heard, so that nobody is judged by it.
func TestNobodyFallsSilentWhileTheEngineIsAway(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.wantLines("engine.back", 0)
		s.wantLines("cluster.joined", 1)
		s.EngineDown(errors.New("cut"))
		s.outage(10 * time.Minute)
		s.wantState(peerID, "up")
		s.wantLines("node.silent", 0)
		s.wantLines("engine.lost", 1)
		s.wantLines("engine.back", 1)
	})
}

func TestTakenIDIsDrawnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := alone(t, newFakeEngine())
		drawn := s.ID()
		s.e.records[drawn] = recordOf(drawn, "y:1", "up")
		s.joins(time.Second)
		if s.ID() == drawn || len(s.ID()) != 8 || s.e.stored()[s.ID()] == nil {
			t.Errorf("id %q was kept, or not published", s.ID())
		}
		s.e.set(func(e *fakeEngine) { wstest.Equal(t, "records that others get", len(e.puts), 1) }) // at once; the first record only takes the id
	})
}

// A record was written, but its answer was lost, and now the record cannot be read. It may be the node's own, which has
// sessions with this id by now.
func TestNodeKeepsItsIDWhileItsRecordCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := alone(t, newFakeEngine())
		drawn := s.ID()
		s.e.unread = true
		s.e.records[drawn] = s.ownRecord("")
		s.joins(time.Second)
		time.Sleep(time.Minute)
		wstest.Equal(t, "id", s.ID(), drawn)
		s.e.set(func(e *fakeEngine) { e.unread = false })
		time.Sleep(2 * recordEvery)
		wstest.Equal(t, "id", s.ID(), drawn)
		wstest.Equal(t, "joined as", s.e.last().ID, drawn)
	})
}

// Without the engine a successor reaches the nodes that its predecessor knew, and judges as it did.
func TestSuccessorKnowsTheNodesOfItsPredecessor(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.Record(thirdID, recordOf(thirdID, thirdAddr, stateLeft))
		heard := time.Now()
		time.Sleep(time.Second)
		b, err := json.Marshal(s.Known())
		if err != nil {
			t.Fatal(err)
		}
		again := alone(t, &fakeEngine{away: true}, func(c *Config) {
			c.ID, c.Lineage, c.Dialer = s.ID(), s.Lineage(), s.net.dial
			if err := json.Unmarshal(b, &c.Known); err != nil {
				t.Fatal(err)
			}
		})
		again.joins(time.Second)
		wstest.Equal(t, "heard", again.wantVerdict(thirdID, Gone).Heard.Equal(heard), true)
		again.Heartbeat(thirdID) // late
		again.wantState(thirdID, "gone")
		s.peerAnswers(peerID)
		again.reaches(peerID)
	})
}

func TestNodeJoinsLaterIfTheEngineIsAwayAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := alone(t, newFakeEngine())
		s.e.away = true
		s.joins(3 * time.Second)
		time.Sleep(time.Minute)
		s.wantLines("engine.lost", 1)
		wstest.Equal(t, "records", len(s.e.stored()), 0)
		s.e.set(func(e *fakeEngine) { e.skew = time.Minute })
		s.e.up()
		time.Sleep(10 * time.Second)
		if n := s.log.Count("cluster.not_joined"); n < 3 || n > 4 {
			t.Errorf("%d attempts in 10 s, want 3 or 4", n)
		}
		s.e.set(func(e *fakeEngine) { e.skew = 0 })
		time.Sleep(2 * recordEvery)
		s.wantLines("cluster.joined", 1)
		if s.e.stored()[s.ID()] == nil {
			t.Error("there is no record of the node")
		}
	})
}

// An engine that is only away keeps no node out.
func TestWhoMayJoin(t *testing.T) {
	const id = thirdID
	rival := recordOf(id, "y:1", "up")
	as := func(lineage string) func(*Config) {
		return func(c *Config) { c.ID, c.Lineage = id, lineage }
	}
	with := func(f func(*fakeEngine)) func(*testing.T) *fakeEngine {
		return func(*testing.T) *fakeEngine {
			e := newFakeEngine()
			f(e)
			return e
		}
	}
	derived := func(c *Config) { c.Derive = derivedOf("k") }
	for name, c := range map[string]struct {
		engine func(*testing.T) *fakeEngine
		change []func(*Config)
		peers  map[string]*Identity // by address
		joins  bool
		err    error // if it does not join: nil: any
	}{
		"its clock is right":                      {engine: with(func(e *fakeEngine) { e.skew = 29 * time.Second }), joins: true},
		"its clock is wrong":                      {engine: with(func(e *fakeEngine) { e.skew = -31 * time.Second })},
		"the engine will never do":                {engine: with(func(e *fakeEngine) { e.unusable = fmt.Errorf("%w: no right", ErrUnusable) }), err: ErrUnusable},
		"a successor of another's lineage":        {engine: with(func(e *fakeEngine) { e.records[id] = rival }), change: []func(*Config){as("mine")}, err: errRefused},
		"over a forged record of its own id":      {engine: with(func(e *fakeEngine) { e.records[id] = rival }), change: []func(*Config){as("mine"), derived}, joins: true},
		"all peers have other keys":               {engine: twoPeers, peers: map[string]*Identity{peerAddr: keys("other"), thirdAddr: keys("other")}},
		"one peer has other keys":                 {engine: twoPeers, peers: map[string]*Identity{peerAddr: keys("other"), thirdAddr: keys("k")}, joins: true},
		"sealing, and all have other keys":        {engine: sealedPeer, change: []func(*Config){derived}, peers: map[string]*Identity{thirdAddr: keys("x")}},
		"sealing by other keys, and is not there": {engine: sealedPeer, change: []func(*Config){derived}, joins: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := c.engine(t)
				s := alone(t, engine, c.change...)
				for address, identity := range c.peers {
					s.net.answers(address, s.net.node(map[string]string{peerAddr: peerID, thirdAddr: thirdID}[address], identity))
				}
				if err := s.Join(3 * time.Second); (err == nil) != c.joins || c.err != nil && !errors.Is(err, c.err) {
					t.Errorf("Join: %v, want success %v, or %v", err, c.joins, c.err)
				}
				if r, err := parseRecord(s.ID(), engine.stored()[s.ID()]); c.joins && (err != nil || r.Lineage != s.Lineage()) {
					t.Errorf("its record is %+v, %v; want its own lineage %s", r, err, s.Lineage())
				}
			})
		})
	}
}

// twoPeers is an engine with the records of two nodes.
func twoPeers(*testing.T) *fakeEngine {
	return &fakeEngine{records: map[string][]byte{peerID: recordOf(peerID, peerAddr, "up"), thirdID: recordOf(thirdID, thirdAddr, "up")}}
}

// sealedPeer is an engine with the record of a node that seals it by another key than those of the tests.
func sealedPeer(t *testing.T) *fakeEngine {
	return &fakeEngine{records: map[string][]byte{thirdID: another(t, "x").recordOf(t, thirdID, thirdAddr, "up")}}
}

// A clock that is off is said once, and again after it was right.
func TestWrongClockIsLogged(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for i, skew := range []time.Duration{0, -2 * time.Second, 999 * time.Millisecond, 2 * time.Second} {
			s.e.set(func(e *fakeEngine) { e.skew = skew })
			time.Sleep(4 * recordEvery)
			s.wantLines("clock.skewed", (i+1)/2)
		}
	})
}

func TestStateIsPublished(t *testing.T) {
	var draining atomic.Bool
	onStage(t, func(t *testing.T, s *stage) {
		time.Sleep(recordEvery + time.Second)
		wstest.Equal(t, "published", s.e.last().State, "up")
		draining.Store(true)
		time.Sleep(beatEvery)
		synctest.Wait()
		wstest.Equal(t, "published within a heartbeat", s.e.last().State, "draining")
		s.Leave(t.Context())
		wstest.Equal(t, "published at the exit", s.e.last().State, stateLeft)
	}, func(c *Config) { c.Draining = draining.Load })
}

func TestDialReachesTheNodeAndNoOther(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.peerAnswers(peerID)
		s.reaches(peerID)
		if _, err := s.Dial(t.Context(), "0000000f"); !errors.Is(err, ErrUnknown) {
			t.Errorf("an unknown node: %v, want %v", err, ErrUnknown)
		}
		s.peerAnswers(thirdID)
		if _, err := s.Dial(t.Context(), peerID); err == nil {
			t.Error("another node was taken for it")
		}
		s.net.answers(peerAddr, s.net.node(peerID, keys("other")))
		if _, err := s.Dial(t.Context(), peerID); !OtherKeys(err) {
			t.Errorf("a node with other keys: %v", err)
		}
	})
}

// Nobody without a certificate of the cluster gets an answer at the node listener.
func TestListenerRefusesStrangers(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		stranger := keys("another")
		if err := stranger.Load("0000000e"); err != nil {
			t.Fatal(err)
		}
		dial := s.net.node(peerID, keys("k"))
		for name, cfg := range map[string]*tls.Config{
			"no certificate":    {InsecureSkipVerify: true},
			"another cluster's": {InsecureSkipVerify: true, Certificates: []tls.Certificate{stranger.now.Load().leaf}},
		} {
			raw, _ := dial(t.Context())
			conn := tls.Client(raw, cfg)
			err := conn.HandshakeContext(t.Context())
			if err == nil { // TLS 1.3 tells a client only when it reads
				_, err = conn.Read(make([]byte, 1))
			}
			if err == nil {
				t.Errorf("%s: answered", name)
			}
			raw.Close()
		}
	})
}
