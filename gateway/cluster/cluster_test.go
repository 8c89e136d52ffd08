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
	list := make(map[string][]byte, len(e.records))
	for id, value := range e.records {
		list[id] = value
	}
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

// keys derives what nodes with the same text share.
func keys(texts ...string) *Identity {
	return DerivedIdentity(func(_ string, n int) (all [][]byte, _ error) {
		for _, text := range texts {
			all = append(all, bytes.Repeat([]byte(text), n)[:n])
		}
		return all, nil
	})
}

// A network is how the addresses of a test answer.
type network struct {
	t     *testing.T
	mu    sync.Mutex
	at    map[string]func(ctx context.Context) (net.Conn, error)
	dials int

	cluster string // of the nodes that are made, and their level
	level   int
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
		return refuses(ctx)
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
	return &network{t: t, cluster: "test", at: make(map[string]func(context.Context) (net.Conn, error))}
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
	conns := make(chan net.Conn)
	done := make(chan struct{})
	cluster, level := n.cluster, n.level
	ln := &pipeListener{conns, done, sync.OnceFunc(func() { close(done) })}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			json.NewEncoder(w).Encode(Hello{ID: id, Cluster: cluster, Level: level})
		}),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	go server.Serve(tls.NewListener(ln, identity.Server(func() string { return id }, func(string, error) {})))
	n.t.Cleanup(func() { server.Close() })
	return func(context.Context) (net.Conn, error) {
		client, far := wstest.Pipe(64 << 10) // net.Pipe would block a Close that holds a lock
		select {
		case conns <- far:
			return client, nil
		case <-done:
			return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
		}
	}
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error { l.close(); return nil }
func (l *pipeListener) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8082}
}

const peerID, peerAddr = "0000000b", "10.0.0.2:8082"

// stage is a node that knows another one, and the world around it.
func stage(t *testing.T, change ...func(*Config)) (*Cluster, *fakeEngine, *network, *lines) {
	t.Helper()
	t.Cleanup(func() { time.Sleep(20 * time.Second) }) // fake: all connections have closed in peace
	e := &fakeEngine{records: make(map[string][]byte)}
	net := newNetwork(t)
	log := new(lines)
	cfg := Config{
		Name: "test", NodeName: "a", Address: "10.0.0.1:8082", Version: "v1", Formats: []int{1}, Engine: e, Identity: keys("k"),
		Dialer: net.dial, Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Join(time.Second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	c.Record(peerID, recordOf(peerID, peerAddr, "up"))
	return c, e, net, log
}

func recordOf(id, address, state string) []byte {
	b, _ := json.Marshal(record{ID: id, Name: "b", Address: address, State: state, Lineage: id})
	return b
}

// beats sends a node's heartbeats until the test ends.
func beats(t *testing.T, c *Cluster, id string) {
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	go func() {
		for ctx.Err() == nil {
			c.Heartbeat(id)
			select {
			case <-time.After(beatEvery):
			case <-ctx.Done():
			}
		}
	}()
}

type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(msg string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), "msg="+msg)
}

func (c *Cluster) stateOf(id string) string {
	n, ok := c.Find(id)
	if !ok {
		return "unknown"
	}
	return n.State.String()
}

// Of two nodes whose records have one address, that is gone which does not answer there, whichever record
// came last: those of a bucket are read again at each connect, and may be old.
func TestNodeIsReplacedByWhoAnswersAtItsAddress(t *testing.T) {
	const otherID = "0000000c"
	for _, lives := range []string{peerID, otherID} {
		synctest.Test(t, func(t *testing.T) {
			c, _, n, _ := stage(t)
			n.answers(peerAddr, n.node(lives, keys("k")))
			time.Sleep(5 * time.Second)
			c.Heartbeat(lives)
			c.Record(otherID, recordOf(otherID, peerAddr, "up"))
			time.Sleep(time.Second)
			for _, id := range []string{peerID, otherID} {
				want := "gone"
				if id == lives {
					want = "up"
				}
				if got := c.stateOf(id); got != want {
					t.Errorf("%s answers, and %s is %q, want %q", lives, id, got, want)
				}
			}
		})
	}
}

func TestVerdicts(t *testing.T) {
	for name, try := range map[string]struct {
		set  func(t *testing.T, c *Cluster, n *network)
		want Verdict
	}{
		"it answers":           {func(t *testing.T, c *Cluster, n *network) { n.answers(peerAddr, n.node(peerID, keys("k"))) }, Alive},
		"another node answers": {func(t *testing.T, c *Cluster, n *network) { n.answers(peerAddr, n.node("0000000c", keys("k"))) }, Gone},
		"a node of other keys": {func(t *testing.T, c *Cluster, n *network) { n.answers(peerAddr, n.node("0000000c", keys("other"))) }, Unclear},
		"another node answers, and it was heard once more": {func(t *testing.T, c *Cluster, n *network) {
			n.answers(peerAddr, n.node("0000000c", keys("k")))
			c.Heartbeat(peerID)
		}, Gone},
		"another node answers, but it beats": {func(t *testing.T, c *Cluster, n *network) {
			n.answers(peerAddr, n.node("0000000c", keys("k")))
			beats(t, c, peerID)
		}, Unclear},
		"refused": {func(t *testing.T, c *Cluster, n *network) {}, Gone},
		"refused once": {func(t *testing.T, c *Cluster, n *network) {
			var first atomic.Bool
			n.answers(peerAddr, func(ctx context.Context) (net.Conn, error) {
				if first.CompareAndSwap(false, true) {
					return refuses(ctx)
				}
				return silence(ctx)
			})
		}, Unclear},
		"a node of this id in another cluster": {func(t *testing.T, c *Cluster, n *network) {
			n.cluster = "other"
			n.answers(peerAddr, n.node(peerID, keys("k")))
		}, Gone},
		"a node of other keys that is not heard": {func(t *testing.T, c *Cluster, n *network) {
			n.answers(peerAddr, n.node(peerID, keys("other")))
			time.Sleep(2 * time.Second)
		}, Unclear},
		"refused, but it beats": {func(t *testing.T, c *Cluster, n *network) { go beatAfter(c, 100*time.Millisecond) }, Unclear},
		"no answer, it beats":   {func(t *testing.T, c *Cluster, n *network) { n.answers(peerAddr, silence); beats(t, c, peerID) }, Unclear},
		"no answer, no beats": {func(t *testing.T, c *Cluster, n *network) {
			n.answers(peerAddr, silence)
			time.Sleep(2 * time.Second)
		}, Silent},
		"no answer, a short silence": {func(t *testing.T, c *Cluster, n *network) {
			n.answers(peerAddr, silence)
			time.Sleep(500 * time.Millisecond)
			c.Heartbeat(peerID)
		}, Unclear},
		"nobody is heard": {func(t *testing.T, c *Cluster, n *network) {
			n.answers(peerAddr, silence)
			c.Record("0000000c", recordOf("0000000c", "10.0.0.3:8082", "up"))
			time.Sleep(2 * time.Second)
		}, Unclear},
		"half of the others are heard": {func(t *testing.T, c *Cluster, n *network) {
			n.answers(peerAddr, silence)
			c.Record("0000000c", recordOf("0000000c", "10.0.0.3:8082", "up"))
			c.Record("0000000d", recordOf("0000000d", "10.0.0.4:8082", "up"))
			beats(t, c, "0000000d")
			time.Sleep(2 * time.Second)
		}, Silent},
		"no answer, without NATS": {func(t *testing.T, c *Cluster, n *network) {
			n.answers(peerAddr, silence)
			time.Sleep(2 * time.Second)
			c.EngineDown(errors.New("cut"))
		}, Unclear},
		"it has left": {func(t *testing.T, c *Cluster, n *network) {
			n.answers(peerAddr, silence)
			c.Record(peerID, recordOf(peerID, peerAddr, stateLeft))
		}, Gone},
		"a record has its address, which does not answer": {func(t *testing.T, c *Cluster, n *network) {
			n.answers(peerAddr, silence)
			time.Sleep(4 * time.Second)
			c.Record("0000000c", recordOf("0000000c", peerAddr, "up"))
		}, Silent},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _, n, _ := stage(t)
				try.set(t, c, n)
				began := time.Now()
				j := c.Judge(t.Context(), peerID)
				if j.Verdict != try.want || j.Evidence == "" {
					t.Errorf("%v: %q, want %v", j.Verdict, j.Evidence, try.want)
				}
				if took := time.Since(began); took > 2*probeTime+refusedPause {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func beatAfter(c *Cluster, d time.Duration) {
	time.Sleep(d)
	c.Heartbeat(peerID)
}

// A node that this one has never heard of may have ended before, or not have reached the engine yet.
// How long this node has been there says nothing about that.
func TestUnknownNodeIsSilentSinceItWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, e, _, _ := stage(t)
		time.Sleep(time.Minute)
		asked := time.Now()
		for range 2 {
			if j := c.Judge(t.Context(), "0000000f"); j.Verdict != Silent || !j.Heard.Equal(asked) {
				t.Errorf("%+v, want silent since %v", j, asked)
			}
			time.Sleep(time.Second)
		}
		c.EngineDown(errors.New("cut"))
		if j := c.Judge(t.Context(), "0000000f"); j.Verdict != Unclear {
			t.Errorf("%+v without a directory, want unclear", j)
		}
		time.Sleep(time.Minute)
		e.up() // the outage does not count
		if j := c.Judge(t.Context(), "0000000f"); j.Verdict != Silent || !j.Heard.Equal(time.Now().Add(-2*time.Second)) {
			t.Errorf("%+v with a new directory, want silent for 2 s", j)
		}
	})
}

// A storm of resumes costs one judgement, and not more than so many wait for it.
func TestJudgementIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		n.answers(peerAddr, silence)
		time.Sleep(10 * time.Second) // the judgement that its silence has brought is no longer used
		n.mu.Lock()
		n.dials = 0
		n.mu.Unlock()
		const storm = maxWaiting + 136
		results := make(chan Judgement, storm)
		for range storm {
			go func() { results <- c.Judge(t.Context(), peerID) }()
		}
		count := make(map[Verdict]int)
		for range storm {
			count[(<-results).Verdict]++
		}
		if count[Silent] != maxWaiting || count[Unclear] != storm-maxWaiting {
			t.Errorf("%v", count)
		}
		if n.dials != 2 {
			t.Errorf("%d dials, want 2", n.dials)
		}
		c.Judge(t.Context(), peerID) // within a second
		if n.dials != 2 {
			t.Errorf("%d dials after a further question", n.dials)
		}
	})
}

// A drain that hands over many sessions at a time makes no TLS handshake for each.
func TestRequestsAtOnceKeepTheirConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce = 32 // as many as a drain makes
		c, _, n, _ := stage(t)
		n.answers(peerAddr, n.node(peerID, keys("k")))
		beats(t, c, peerID)
		transport := c.Transport()
		defer transport.CloseIdleConnections()
		before := n.made()
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
		if made := n.made() - before; made >= 2*atOnce {
			t.Errorf("%d connections for three times %d requests at once", made, atOnce)
		}
	})
}

func TestNodeFallsSilentAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, log := stage(t)
		if got := c.stateOf(peerID); got != "up" {
			t.Errorf("state %q", got)
		}
		n.answers(peerAddr, silence)
		time.Sleep(3 * time.Second)
		if got := c.stateOf(peerID); got != "silent" || log.count("node.silent") != 1 {
			t.Errorf("state %q, %d lines", got, log.count("node.silent"))
		}
		c.Record(peerID, recordOf(peerID, peerAddr, "draining"))
		if got := c.stateOf(peerID); got != "draining" || log.count("node.up") != 2 {
			t.Errorf("state %q, %d lines", got, log.count("node.up"))
		}
		time.Sleep(hideAfter + 5*time.Second)
		if got := c.stateOf(peerID); got != "unknown" {
			t.Errorf("state %q after a minute", got)
		}
	})
}

// Two nodes with one --node-advertise: the one that others cannot reach says so.
func TestNodeNotesThatAnotherAnswersAtItsAddress(t *testing.T) {
	for name, try := range map[string]struct {
		at   string // who answers
		want int
	}{"another node": {"0000000c", 1}, "itself": {"", 0}, "nobody": {"nobody", 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _, _, log := stage(t, func(cfg *Config) {
					n := newNetwork(t)
					switch try.at {
					case "nobody":
					case "":
						cfg.ID = "0000000a"
						n.answers(cfg.Address, n.node(cfg.ID, keys("k")))
					default:
						n.answers(cfg.Address, n.node(try.at, keys("k")))
					}
					cfg.Dialer = n.dial
				})
				time.Sleep(2 * askTime)
				if got := log.count("node.address_taken"); got != try.want {
					t.Errorf("%d lines by %s, want %d", got, c.ID(), try.want)
				}
			})
		})
	}
}

// A node that was killed is found out though nobody asks for its sessions. The log says how many it had.
func TestKilledNodeIsFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, log := stage(t)
		var lost []Node
		c.OnLost(func(n Node) { lost = append(lost, n) })
		c.Record(peerID, []byte(`{"id":"0000000b","name":"b","address":"10.0.0.2:8082","state":"up","sessions":7}`))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := c.stateOf(peerID); got != "gone" || len(lost) != 1 || lost[0].Sessions != 7 || lost[0].Name != "b" {
			t.Errorf("%s, lost %+v", got, lost)
		}
		if n := strings.Count(log.b.String(), "sessions=7"); n != 2 {
			t.Errorf("%d lines of its sessions: %s", n, log.b.String())
		}
		for _, node := range c.Nodes() {
			if node.ID == peerID && node.Sessions != 7 {
				t.Errorf("listed as %+v", node)
			}
		}
		c.Record(peerID, recordOf(peerID, peerAddr, "up")) // it lives after all, and leaves
		c.Record(peerID, recordOf(peerID, peerAddr, stateLeft))
		time.Sleep(3 * time.Second)
		if len(lost) != 1 {
			t.Errorf("a node that has left is lost: %+v", lost)
		}
		c.Record("0000000c", recordOf("0000000c", "10.0.0.3:8082", "up"))
		n.answers("10.0.0.3:8082", silence)
		time.Sleep(8 * time.Second)
		if len(lost) != 1 || c.stateOf("0000000c") != "silent" {
			t.Errorf("a silent node is %s, lost %+v", c.stateOf("0000000c"), lost)
		}
		n.answers("10.0.0.3:8082", n.node("0000000d", keys("k")))
		c.Record("0000000d", recordOf("0000000d", "10.0.0.3:8082", "up"))
		synctest.Wait()
		if len(lost) != 2 || lost[1].ID != "0000000c" {
			t.Errorf("a node that was replaced: lost %+v", lost)
		}
	})
}

// Without NATS nobody can be heard, so that nobody is judged by it.
func TestNobodyFallsSilentWhileTheEngineIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _, log := stage(t)
		c.EngineDown(errors.New("cut"))
		time.Sleep(10 * time.Minute)
		if got := c.stateOf(peerID); got != "up" || log.count("node.silent") != 0 || log.count("engine.lost") != 1 {
			t.Errorf("state %q: %s", got, log.b.String())
		}
		c.EngineUp(EngineStatus{Up: true})
		if got := c.stateOf(peerID); got != "up" {
			t.Errorf("state %q: the silence of the engine was taken for the node's", got)
		}
	})
}

func TestTakenIDIsDrawnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{records: make(map[string][]byte)}
		c, err := New(Config{Name: "test", NodeName: "a", Address: "x:1", Engine: e, Identity: keys("k"), Dialer: silence3, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		drawn := c.ID()
		e.records[drawn] = recordOf(drawn, "y:1", "up")
		if err := c.Join(time.Second); err != nil {
			t.Fatal(err)
		}
		defer c.Stop()
		if c.ID() == drawn || len(c.ID()) != 8 || e.records[c.ID()] == nil {
			t.Errorf("id %q was kept, or not published", c.ID())
		}
	})
}

// A record was written, but its answer was lost, and now the record cannot be read. It may be the node's own, which has
// sessions with this id by now.
func TestNodeKeepsItsIDWhileItsRecordCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{records: map[string][]byte{}, unread: true}
		c, err := New(Config{Name: "test", NodeName: "a", Address: "x:1", Engine: e, Identity: keys("k"), Dialer: silence3, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		drawn := c.ID()
		e.records[drawn] = c.ownRecord("")
		if err := c.Join(time.Second); err != nil {
			t.Fatal(err)
		}
		defer c.Stop()
		time.Sleep(time.Minute)
		if c.ID() != drawn {
			t.Fatalf("the id is %s, and was %s", c.ID(), drawn)
		}
		e.mu.Lock()
		e.unread = false
		e.mu.Unlock()
		time.Sleep(2 * recordEvery)
		if c.ID() != drawn || e.last().ID != drawn {
			t.Errorf("joined as %s with id %s, want %s", e.last().ID, c.ID(), drawn)
		}
	})
}

func silence3(ctx context.Context, _, _ string) (net.Conn, error) { return silence(ctx) }

// After an upgrade the node has the same id, though a record of it is there.
func TestUpgradeKeepsTheID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, e, _, _ := stage(t)
		again, err := New(Config{Name: "test", NodeName: "a", Address: "x:1", Engine: e, Identity: keys("k"), ID: c.ID(), Lineage: c.Lineage(), Dialer: silence3, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Join(time.Second); err != nil || again.ID() != c.ID() {
			t.Errorf("id %q, %v; want %q", again.ID(), err, c.ID())
		}
		again.Stop()
	})
}

// Without the engine a successor reaches the nodes that its predecessor knew, and judges as it did.
func TestSuccessorKnowsTheNodesOfItsPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadID = "0000000c"
		c, _, n, _ := stage(t)
		c.Record(deadID, recordOf(deadID, "10.0.0.3:8082", stateLeft))
		heard := time.Now()
		time.Sleep(time.Second)
		b, err := json.Marshal(c.Known())
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{ID: c.ID(), Lineage: c.Lineage(), Name: "test", Engine: &fakeEngine{away: true}, Identity: keys("k"), Dialer: n.dial, Log: slog.New(slog.DiscardHandler)}
		if err := json.Unmarshal(b, &cfg.Known); err != nil {
			t.Fatal(err)
		}
		again, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Join(time.Second); err != nil {
			t.Fatal(err)
		}
		defer again.Stop()
		if j := again.Judge(t.Context(), deadID); j.Verdict != Gone || !j.Heard.Equal(heard) {
			t.Errorf("%+v, want gone, heard at %v", j, heard)
		}
		again.Heartbeat(deadID)
		if got := again.stateOf(deadID); got != "gone" {
			t.Errorf("a node that had left is %s after a late heartbeat", got)
		}
		n.answers(peerAddr, n.node(peerID, keys("k")))
		conn, err := again.Dial(t.Context(), peerID)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	})
}

func TestNodeJoinsLaterIfTheEngineIsAwayAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{records: make(map[string][]byte), away: true}
		log := new(lines)
		c, err := New(Config{Name: "test", NodeName: "a", Address: "x:1", Engine: e, Identity: keys("k"), Dialer: silence3, Log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Join(3 * time.Second); err != nil {
			t.Fatal(err)
		}
		defer c.Stop()
		time.Sleep(time.Minute)
		if log.count("engine.lost") != 1 || len(e.records) != 0 {
			t.Errorf("%d records, log %s", len(e.records), log.b.String())
		}
		e.up()
		time.Sleep(time.Second)
		if e.records[c.ID()] == nil || log.count("cluster.joined") != 1 {
			t.Errorf("not joined: %s", log.b.String())
		}
	})
}

func TestWrongClockKeepsANodeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for skew, joins := range map[time.Duration]bool{29 * time.Second: true, -31 * time.Second: false} {
			e := &fakeEngine{records: make(map[string][]byte), skew: skew}
			c, err := New(Config{Name: "test", NodeName: "a", Address: "x:1", Engine: e, Identity: keys("k"), Dialer: silence3, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Join(time.Second); (err == nil) != joins {
				t.Errorf("%v off: %v", skew, err)
			}
			c.Stop()
		}
	})
}

// A clock that is off is said once, and again after it was right.
func TestWrongClockIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, e, _, log := stage(t)
		for i, skew := range []time.Duration{0, -2 * time.Second, 999 * time.Millisecond, 2 * time.Second} {
			e.mu.Lock()
			e.skew = skew
			e.mu.Unlock()
			time.Sleep(4 * recordEvery)
			if n := log.count("clock.skewed"); n != (i+1)/2 {
				t.Errorf("%v off: %d lines", skew, n)
			}
		}
	})
}

// A judgement is used for a second.
func TestJudgementIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		n.answers(peerAddr, silence)
		if j := c.Judge(t.Context(), peerID); j.Verdict != Unclear {
			t.Errorf("%+v", j)
		}
		n.answers(peerAddr, n.node(peerID, keys("k")))
		if j := c.Judge(t.Context(), peerID); j.Verdict != Unclear {
			t.Errorf("%+v at once", j)
		}
		time.Sleep(judgedFor)
		if j := c.Judge(t.Context(), peerID); j.Verdict != Alive {
			t.Errorf("%+v later", j)
		}
	})
}

// Nodes that are gone are no witnesses: a node that hears none of them judges all the same.
func TestGoneNodesAreNoWitnesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		n.answers(peerAddr, silence)
		for _, id := range []string{"0000000c", "0000000d"} {
			c.Record(id, recordOf(id, "10.0.0.3:8082", stateLeft))
		}
		time.Sleep(2 * time.Second)
		if j := c.Judge(t.Context(), peerID); j.Verdict != Silent {
			t.Errorf("%+v", j)
		}
	})
}

func TestStateIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var draining atomic.Bool
		c, e, _, _ := stage(t, func(c *Config) { c.Draining = draining.Load })
		time.Sleep(recordEvery + time.Second)
		if got := e.last().State; got != "up" {
			t.Errorf("published %q", got)
		}
		draining.Store(true)
		time.Sleep(beatEvery)
		synctest.Wait()
		if got := e.last().State; got != "draining" {
			t.Errorf("published %q within a heartbeat", got)
		}
		c.Leave(t.Context())
		if got := e.last().State; got != stateLeft {
			t.Errorf("published %q at the exit", got)
		}
	})
}

func TestDialReachesTheNodeAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		n.answers(peerAddr, n.node(peerID, keys("k")))
		conn, err := c.Dial(t.Context(), peerID)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if _, err := c.Dial(t.Context(), "0000000f"); !errors.Is(err, ErrUnknown) {
			t.Errorf("an unknown node: %v", err)
		}
		n.answers(peerAddr, n.node("0000000c", keys("k")))
		if _, err := c.Dial(t.Context(), peerID); err == nil {
			t.Error("another node was taken for it")
		}
		n.answers(peerAddr, n.node(peerID, keys("other")))
		if _, err := c.Dial(t.Context(), peerID); !otherKeys(err) {
			t.Errorf("a node with other keys: %v", err)
		}
	})
}

// While keys are rotated some nodes sign with the new key, and some with the old one.
// An upgraded node has the id of its predecessor, and not the key of its TLS sessions: the connection
// begins a new one, with the better key exchange.
func TestNodeWithoutItsTLSSessionsIsDialledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		beats(t, c, peerID)
		for range 2 {
			n.answers(peerAddr, n.node(peerID, keys("k")))
			for i := range 2 {
				conn, err := c.Dial(t.Context(), peerID)
				if err != nil {
					t.Fatal(err)
				}
				st := conn.(*tls.Conn).ConnectionState()
				if resumed := i > 0; st.DidResume != resumed || (st.CurveID == tls.X25519MLKEM768) == resumed {
					t.Errorf("connection %d: resumed %v, %v", i+1, st.DidResume, st.CurveID)
				}
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n", HelloPath)
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Error(err)
				}
				conn.Close()
			}
		}
	})
}

func TestNodesKnowEachOtherWhileKeysAreRotated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		c.cfg.Identity = keys("new", "k")
		if err := c.cfg.Identity.Load(c.ID()); err != nil {
			t.Fatal(err)
		}
		n.answers(peerAddr, n.node(peerID, keys("k", "new")))
		conn, err := c.Dial(t.Context(), peerID)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	})
}

// Nobody without a certificate of the cluster gets an answer at the node listener.
func TestListenerRefusesStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n, _ := stage(t)
		dial := n.node(peerID, keys("k"))
		for name, cfg := range map[string]*tls.Config{
			"no certificate":    {InsecureSkipVerify: true},
			"another cluster's": {InsecureSkipVerify: true, Certificates: strangers(t)},
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

func strangers(t *testing.T) []tls.Certificate {
	i := keys("another")
	if err := i.Load("0000000e"); err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{i.now.Load().leaf}
}
