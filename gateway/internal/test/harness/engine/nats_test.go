package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
	"reseat/gateway/cluster/engine"
	"reseat/gateway/internal/test/freeport"
)

// patience is for what must happen, on a machine that does other work as well.
const patience = 30 * time.Second

// eventually waits for a condition. Nothing tells when a server has done its part.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// A room is NATS servers that form a cluster, or one alone.
type room struct {
	*testing.T
	opts    []*server.Options
	servers []*server.Server
}

// newRoom starts n servers. They listen at the same ports after a restart.
func newRoom(t *testing.T, n int, change func(*server.Options)) *room {
	t.Helper()
	r := plannedRoom(t, n, change)
	r.startFirst(n)
	return r
}

// plannedRoom is for n servers, of which none has been started.
func plannedRoom(t *testing.T, n int, change func(*server.Options)) *room {
	t.Helper()
	r := &room{T: t, opts: make([]*server.Options, n), servers: make([]*server.Server, n)}
	ports, routes := make([]int, n), make([]string, n)
	for i := range n {
		ports[i] = freeport.Port()
		routes[i] = fmt.Sprint("nats://127.0.0.1:", ports[i])
	}
	for i := range n {
		o := &server.Options{
			ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: freeport.Port(), NoLog: true, NoSigs: true,
			JetStream: true, StoreDir: t.TempDir(), JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 64 << 20,
		}
		if n > 1 {
			o.Cluster = server.ClusterOpts{Name: "room", Host: "127.0.0.1", Port: ports[i]}
			o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		}
		if change != nil {
			change(o)
		}
		r.opts[i] = o
	}
	t.Cleanup(func() {
		for i, s := range r.servers {
			if s != nil {
				r.stop(i)
			}
		}
	})
	return r
}

// startFirst starts the first n servers, which form a cluster.
func (r *room) startFirst(n int) {
	r.Helper()
	for i := range n {
		r.start(i)
	}
	if n > 1 {
		// A leader that does not know all servers yet makes buckets with fewer replicas.
		eventually(r.T, "the servers have a leader that knows them all", func() bool {
			return slices.ContainsFunc(r.servers[:n], func(s *server.Server) bool { return len(s.JetStreamClusterPeers()) == n }) && r.servers[0].NumRoutes() > 0
		})
	}
}

// toOthers takes a server's own address out of its routes. NATS counts them to know how many servers
// elect a first leader: of two and the server itself, two do.
func toOthers(o *server.Options) {
	o.Routes = slices.DeleteFunc(o.Routes, func(u *url.URL) bool { return u.Port() == strconv.Itoa(o.Cluster.Port) })
}

func (r *room) start(i int) {
	r.Helper()
	s, err := server.NewServer(r.opts[i].Clone())
	if err != nil {
		r.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(patience) {
		r.Fatal("the NATS server does not start")
	}
	r.servers[i] = s
}

func (r *room) stop(i int) {
	r.servers[i].Shutdown()
	r.servers[i].WaitForShutdown()
}

func (r *room) urls() (list []string) {
	for _, o := range r.opts {
		list = append(list, fmt.Sprintf("nats://127.0.0.1:%d", o.Port))
	}
	return list
}

// admin is a connection of the test's own.
func (r *room) admin() jetstream.JetStream {
	r.Helper()
	nc, err := nats.Connect(strings.Join(r.urls(), ","))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		r.Fatal(err)
	}
	return js
}

// A diary is a handler that notes what an engine says.
type diary struct {
	*testing.T
	*engine.Engine

	mu      sync.Mutex
	ups     int
	downs   int
	synced  int
	then    func() // called when synced, in a goroutine
	records map[string]string
	beats   map[string]int
}

func newEngine(t *testing.T, o engine.Options) *diary {
	t.Helper()
	if o.Name == "" {
		o.Name = "test"
	}
	o.Log = slog.New(slog.DiscardHandler)
	e, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	d := &diary{T: t, Engine: e, records: make(map[string]string), beats: make(map[string]int)}
	if err := e.Start(d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return d
}

// engine returns one that is ready.
func (r *room) engine() *diary {
	r.Helper()
	d := newEngine(r.T, engine.Options{URLs: r.urls()})
	d.ready()
	return d
}

func (d *diary) ready() {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), patience)
	defer cancel()
	if err := d.Ready(ctx); err != nil {
		d.Fatal(err)
	}
}

func (d *diary) EngineUp(cluster.EngineStatus) { d.note(func() { d.ups++ }) }
func (d *diary) EngineDown(error)              { d.note(func() { d.downs++ }) }
func (d *diary) Synced() {
	d.note(func() {
		d.synced++
		if d.then != nil {
			go d.then()
		}
	})
}
func (d *diary) Heartbeat(id string) { d.note(func() { d.beats[id]++ }) }

func (d *diary) Record(id string, value []byte) {
	d.note(func() {
		if value == nil {
			delete(d.records, id)
		} else {
			d.records[id] = string(value)
		}
	})
}

func (d *diary) note(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *diary) sees(f func() bool) func() bool {
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return f()
	}
}

// put writes a record, for as long as it takes.
func (d *diary) put(id, value string) {
	d.Helper()
	eventually(d.T, "a record can be written", func() bool { return d.PutNode(d.Context(), id, []byte(value)) == nil })
}

// sizes are those of a room.
func sizes(t *testing.T, test func(t *testing.T, r *room)) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { test(t, newRoom(t, n, nil)) })
	}
}

func TestRecordsAndHeartbeatsReachOtherNodes(t *testing.T) {
	sizes(t, func(t *testing.T, r *room) {
		a, b := r.engine(), r.engine()
		if existing, err := a.CreateNode(t.Context(), "aaaaaaaa", []byte("1")); err != nil || existing != nil {
			t.Fatal(existing, err)
		}
		a.put("aaaaaaaa", "2")
		eventually(t, "b sees the record", b.sees(func() bool { return b.records["aaaaaaaa"] == "2" }))
		if err := a.Beat("aaaaaaaa"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "b hears the heartbeat", b.sees(func() bool { return b.beats["aaaaaaaa"] > 0 }))
		late := r.engine()
		late.note(func() {
			if late.records["aaaaaaaa"] != "2" || late.synced != 1 {
				t.Errorf("a node that comes later has %v, synced %d times", late.records, late.synced)
			}
		})
		if st := a.Status(); !st.Up || st.Servers != len(r.servers) || st.Replicas != len(r.servers) || st.Version != server.VERSION {
			t.Errorf("%+v, want %d servers and replicas", st, len(r.servers))
		}
	})
}

func TestIDOfALivingNodeCannotBeCreated(t *testing.T) {
	sizes(t, func(t *testing.T, r *room) {
		a, b := r.engine(), r.engine()
		if _, err := a.CreateNode(t.Context(), "aaaaaaaa", []byte("a's")); err != nil {
			t.Fatal(err)
		}
		a.put("aaaaaaaa", "a's")
		existing, err := b.CreateNode(t.Context(), "aaaaaaaa", []byte("b's"))
		if !errors.Is(err, cluster.ErrExists) || string(existing) != "a's" {
			t.Errorf("%q, %v", existing, err)
		}
		b.put("bbbbbbbb", "b's")
		eventually(t, "a sees b", a.sees(func() bool { return a.records["bbbbbbbb"] != "" }))
		a.note(func() {
			if a.records["aaaaaaaa"] == "b's" {
				t.Error("the refused record was passed on")
			}
		})
	})
}

// The clock of this machine is that of the server, in these tests.
func TestSkewIsMeasuredBeforeReady(t *testing.T) {
	e := newRoom(t, 1, nil).engine()
	if skew, ok := e.Skew(); !ok || skew.Abs() > time.Second {
		t.Errorf("%v, %v", skew, ok)
	}
}

func TestMessagesReachTheirSubscribersOnly(t *testing.T) {
	r := newRoom(t, 1, nil)
	a, b := r.engine(), r.engine()
	var mu sync.Mutex
	var got []string
	listen := func(e *diary, subject string) func() {
		end, err := e.Subscribe(subject, func(subject string, data []byte) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, subject+"="+string(data))
		})
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(got)
	}
	end := listen(b, "ev.*")
	listen(b, "n.bbbbbbbb")
	for i := 0; count() == 0; i++ { // until the server knows the subscriptions
		a.Publish("ev.aaaaaaaa", []byte("first"))
		time.Sleep(10 * time.Millisecond)
	}
	mu.Lock()
	got = nil
	mu.Unlock()
	end()
	eventually(t, "the subscription has ended", func() bool {
		before := count()
		a.Publish("ev.aaaaaaaa", []byte("second"))
		a.Publish("n.cccccccc", []byte("not for b"))
		a.Publish("n.bbbbbbbb", []byte("for b"))
		eventually(t, "b gets its own", func() bool { return count() > before })
		mu.Lock()
		defer mu.Unlock()
		return got[len(got)-1] == "n.bbbbbbbb=for b" && (len(got) < 2 || got[len(got)-2] != "ev.aaaaaaaa=second")
	})
	if slices.Contains(got, "n.cccccccc=not for b") {
		t.Error(got)
	}
}

// A node that is stopped right after its start may still be subscribing.
func TestSubscriptionAfterCloseIsNoError(t *testing.T) {
	e := newRoom(t, 1, nil).engine()
	e.Close()
	end, err := e.Subscribe("ev.*", func(string, []byte) {})
	if err != nil {
		t.Error(err)
	}
	end()
}

// NATS away at the start: the engine connects when it comes.
func TestEngineConnectsLater(t *testing.T) {
	r := newRoom(t, 1, nil)
	r.stop(0)
	e := newEngine(t, engine.Options{URLs: r.urls()})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := e.Ready(ctx); err == nil || errors.Is(err, cluster.ErrUnusable) {
		t.Errorf("%v, want an error that is no verdict", err)
	}
	if err := e.PutNode(t.Context(), "aaaaaaaa", nil); !errors.Is(err, cluster.ErrEngineDown) || e.Status().Up {
		t.Errorf("%v, up: %v", err, e.Status().Up)
	}
	r.start(0)
	e.ready()
	e.put("aaaaaaaa", "1")
	e.note(func() {
		if e.ups != 1 || e.downs != 0 || e.synced != 1 {
			t.Errorf("up %d times, down %d, synced %d", e.ups, e.downs, e.synced)
		}
	})
}

// A server with memory storage is empty after a restart: the buckets are made again.
func TestBucketsAreMadeAgainAfterARestart(t *testing.T) {
	r := newRoom(t, 1, nil)
	a, b := r.engine(), r.engine()
	a.put("aaaaaaaa", "1")
	r.stop(0)
	eventually(t, "the engine is down", func() bool { return !a.Status().Up && !b.Status().Up })
	r.start(0)
	a.ready()
	b.ready()
	b.put("bbbbbbbb", "1")
	eventually(t, "a sees a new record", a.sees(func() bool { return a.records["bbbbbbbb"] == "1" }))
	if err := a.Beat("aaaaaaaa"); err != nil {
		t.Error(err)
	}
	eventually(t, "b hears a", b.sees(func() bool { return b.beats["aaaaaaaa"] > 0 }))
	a.note(func() {
		if a.ups != 2 || a.downs != 1 || a.synced < 2 {
			t.Errorf("up %d times, down %d, synced %d", a.ups, a.downs, a.synced)
		}
	})
}

// What is in a bucket may be lost while the connection stays.
func TestLostAndEmptiedBucketsAreFilledAgain(t *testing.T) {
	t.Parallel()
	sizes(t, func(t *testing.T, r *room) {
		a, b := r.engine(), r.engine()
		a.put("aaaaaaaa", "1")
		js := r.admin()
		kv, err := js.KeyValue(t.Context(), "test_nodes")
		if err != nil {
			t.Fatal(err)
		}
		if err := kv.Purge(t.Context(), "aaaaaaaa"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "b sees the deletion", b.sees(func() bool { return b.records["aaaaaaaa"] == "" }))
		a.put("aaaaaaaa", "2")
		eventually(t, "b sees the record again", b.sees(func() bool { return b.records["aaaaaaaa"] == "2" }))
		if err := js.DeleteKeyValue(t.Context(), "test_nodes"); err != nil {
			t.Fatal(err)
		}
		a.put("aaaaaaaa", "3")
		eventually(t, "the bucket is there again", func() bool { _, err := js.KeyValue(t.Context(), "test_nodes"); return err == nil })
		a.put("aaaaaaaa", "4")
		eventually(t, "b sees the newest record", b.sees(func() bool { return b.records["aaaaaaaa"] == "4" }))
		if !a.Status().Up || !b.Status().Up {
			t.Error("a lost bucket counts as a lost connection")
		}
	})
}

// With one server of three lost, the others go on.
func TestOneServerOfThreeMayBeLost(t *testing.T) {
	t.Parallel()
	r := newRoom(t, 3, nil)
	a, b := r.engine(), r.engine()
	a.put("aaaaaaaa", "1")
	r.stop(1)
	eventually(t, "both are connected", func() bool { return a.Status().Up && b.Status().Up })
	a.put("aaaaaaaa", "2")
	eventually(t, "b sees it", b.sees(func() bool { return b.records["aaaaaaaa"] == "2" }))
}

// Servers that have not found each other yet must not leave a cluster with fewer replicas for good.
func TestBucketsWaitForServersThatAreJoining(t *testing.T) {
	t.Parallel()
	r := plannedRoom(t, 3, toOthers)
	r.startFirst(2)
	e := newEngine(t, engine.Options{URLs: r.urls(), Seats: true})
	eventually(t, "the engine is connected", func() bool { return e.Status().Up })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := e.Ready(ctx); err == nil || !strings.Contains(err.Error(), "have not joined") {
		t.Errorf("with two of three servers: %v", err)
	}
	r.start(2)
	e.ready()
	js := r.admin()
	for _, name := range []string{"KV_test_nodes", "KV_test_players", "KV_test_seats_0", "test_events"} {
		var st jetstream.Stream
		eventually(t, name+" is there", func() (there bool) {
			var err error
			st, err = js.Stream(t.Context(), name)
			return err == nil
		})
		if n := st.CachedInfo().Config.Replicas; n != 3 {
			t.Errorf("%s has %d replicas", name, n)
		}
	}
}

// A server that stays away must not keep a cluster from being used.
func TestBucketsDoWithoutAServerThatStaysAway(t *testing.T) {
	t.Parallel()
	r := plannedRoom(t, 3, toOthers)
	r.startFirst(2)
	e := r.engine()
	e.put("aaaaaaaa", "1")
	if n := e.Status().Replicas; n != 2 {
		t.Errorf("%d replicas", n)
	}
}

// A bucket that is there is used as it is.
func TestExistingBucketIsNotChanged(t *testing.T) {
	r := newRoom(t, 3, nil)
	js := r.admin()
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "test_nodes", TTL: time.Minute, Replicas: 1, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	e := r.engine()
	e.put("aaaaaaaa", "1")
	kv, err := js.KeyValue(t.Context(), "test_nodes")
	if err != nil {
		t.Fatal(err)
	}
	st, err := kv.Status(t.Context())
	if err != nil || st.TTL() != time.Minute || e.Status().Replicas != 1 {
		t.Errorf("%v %v, status %+v", st.TTL(), err, e.Status())
	}
}

// The engine uses no consumer: each would be a group of its own in a cluster.
func TestEngineUsesNoConsumer(t *testing.T) {
	r := newRoom(t, 1, nil)
	e := r.engine()
	e.put("aaaaaaaa", "1")
	js := r.admin()
	for _, bucket := range []string{"KV_test_nodes", "KV_test_players"} {
		st, err := js.Stream(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		if n := st.CachedInfo().State.Consumers; n != 0 {
			t.Errorf("%s has %d consumers", bucket, n)
		}
	}
}

func TestUnusableServersAreNamed(t *testing.T) {
	allowed := func(rights ...string) func(*server.Options) {
		return func(o *server.Options) {
			all := engine.Rights("test", false)
			p := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{}}
			for _, s := range all.Publish {
				if !slices.Contains(rights, s) {
					p.Publish.Allow = append(p.Publish.Allow, s)
				}
			}
			for _, s := range all.Subscribe {
				if !slices.Contains(rights, s) {
					p.Subscribe.Allow = append(p.Subscribe.Allow, s)
				}
			}
			o.Users = []*server.User{{Username: "u", Password: "p", Permissions: p}}
		}
	}
	for name, test := range map[string]struct {
		change func(*server.Options)
		user   string
		want   []string // empty: usable
	}{
		"no JetStream":          {func(o *server.Options) { o.JetStream = false }, "", []string{"JetStream is not enabled"}},
		"wrong password":        {allowed(), "u:wrong@", []string{"NATS refuses the credentials"}},
		"all rights":            {allowed(), "u:p@", nil},
		"no heartbeats":         {allowed("test.>"), "u:p@", []string{"lacks a right", "test.hb"}},
		"no making of buckets":  {allowed("$JS.API.STREAM.CREATE.KV_test_nodes"), "u:p@", []string{"lacks a right", "$JS.API.STREAM.CREATE.KV_test_nodes"}},
		"no reading of buckets": {allowed("$JS.API.DIRECT.GET.KV_test_nodes"), "u:p@", []string{"lacks a right", "$JS.API.DIRECT.GET.KV_test_nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, 1, test.change)
			e := newEngine(t, engine.Options{URLs: []string{strings.Replace(r.urls()[0], "nats://", "nats://"+test.user, 1)}})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := e.Ready(ctx)
			if test.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := e.CreateNode(ctx, "aaaaaaaa", []byte("1")); err != nil {
					t.Error(err)
				}
				if _, err := e.PutPlayer(ctx, "p", []byte("1"), 0); err != nil {
					t.Error(err)
				}
				if _, _, err := e.GetPlayer(ctx, "p"); err != nil {
					t.Error(err)
				}
				e.put("aaaaaaaa", "2")
				return
			}
			for _, want := range test.want {
				if !errors.Is(err, cluster.ErrUnusable) || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
		})
	}
}

// A player's record is written by one of those who try at once.
func TestOnlyOneConditionalWriteIsAccepted(t *testing.T) {
	sizes(t, func(t *testing.T, r *room) {
		list := []*diary{r.engine(), r.engine(), r.engine()}
		var revision uint64
		for _, what := range []string{"create", "update"} {
			var wait sync.WaitGroup
			results := make(chan error, len(list))
			revisions := make(chan uint64, len(list))
			for _, e := range list {
				wait.Go(func() {
					written, err := e.PutPlayer(t.Context(), "p", []byte(what), revision)
					results <- err
					if err == nil {
						revisions <- written
					}
				})
			}
			wait.Wait()
			close(results)
			counts := map[string]int{}
			for err := range results {
				counts[fmt.Sprint(err)]++
			}
			if want := map[string]int{"<nil>": 1, cluster.ErrOvertaken.Error(): 2}; !maps.Equal(counts, want) {
				t.Fatalf("%s: %v, want %v", what, counts, want)
			}
			revision = <-revisions
		}
		if err := list[0].DeletePlayer(t.Context(), "p", revision); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the record is gone for all", func() bool {
			_, _, err := list[1].GetPlayer(t.Context(), "p")
			return errors.Is(err, cluster.ErrNoRecord)
		})
		if _, err := list[2].PutPlayer(t.Context(), "p", []byte("again"), 0); err != nil {
			t.Errorf("after a deletion: %v", err)
		}
	})
}
