// Package engine tests the cluster's engine with real NATS servers: within the test's process, or as
// processes of their own, which are killed and stopped.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// check ends the test if there is an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
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
	check(r.T, err)
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

// restart stops all servers, which empties what is in memory, and calls between.
func (r *room) restart(between func()) {
	r.Helper()
	for i := range r.servers {
		r.stop(i)
	}
	between()
	for i := range r.servers {
		r.start(i)
	}
}

func (r *room) urls() (list []string) {
	for _, o := range r.opts {
		list = append(list, fmt.Sprintf("nats://127.0.0.1:%d", o.Port))
	}
	return list
}

// asUser is the address of a room of as, for its user.
func (r *room) asUser() []string {
	return []string{strings.Replace(r.urls()[0], "nats://", "nats://u:p@", 1)}
}

// as lets a server accept one user with some rights.
func as(rights engine.NeededRights) func(*server.Options) {
	return func(o *server.Options) {
		o.Users = []*server.User{{Username: "u", Password: "p", Permissions: permissions(rights)}}
	}
}

func permissions(rights engine.NeededRights) *server.Permissions {
	return &server.Permissions{Publish: &server.SubjectPermission{Allow: rights.Publish}, Subscribe: &server.SubjectPermission{Allow: rights.Subscribe}}
}

// without returns the needed rights but one.
func without(rights engine.NeededRights, one string) engine.NeededRights {
	is := func(s string) bool { return s == one }
	return engine.NeededRights{Publish: slices.DeleteFunc(slices.Clone(rights.Publish), is), Subscribe: slices.DeleteFunc(slices.Clone(rights.Subscribe), is)}
}

// admin is a connection of the test's own.
func (r *room) admin() jetstream.JetStream {
	r.Helper()
	nc, err := nats.Connect(strings.Join(r.urls(), ","))
	check(r.T, err)
	r.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	check(r.T, err)
	return js
}

// stream returns what NATS says of a stream, once it is there.
func (r *room) stream(name string) (info *jetstream.StreamInfo) {
	r.Helper()
	js := r.admin()
	eventually(r.T, name+" is there", func() bool {
		st, err := js.Stream(r.Context(), name)
		if err == nil {
			info = st.CachedInfo()
		}
		return err == nil
	})
	return info
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
	o.Name, o.Log = "test", slog.New(slog.DiscardHandler)
	e, err := engine.New(o)
	check(t, err)
	d := &diary{T: t, Engine: e, records: make(map[string]string), beats: make(map[string]int)}
	check(t, e.Start(d))
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
	check(d.T, d.readyWithin(patience))
}

func (d *diary) readyWithin(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(d.Context(), limit)
	defer cancel()
	return d.Ready(ctx)
}

func (d *diary) EngineUp(cluster.EngineStatus) { d.note(func() { d.ups++ }) }
func (d *diary) EngineDown(error)              { d.note(func() { d.downs++ }) }
func (d *diary) Heartbeat(id string)           { d.note(func() { d.beats[id]++ }) }
func (d *diary) Synced() {
	d.note(func() {
		d.synced++
		if d.then != nil {
			go d.then()
		}
	})
}

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

// sees waits until what the engine has said is as wanted.
func (d *diary) sees(what string, f func() bool) {
	d.Helper()
	eventually(d.T, what, func() (ok bool) {
		d.note(func() { ok = f() })
		return ok
	})
}

// seesRecord waits until a node's record has a value, "" if none is expected.
func (d *diary) seesRecord(id, value string) {
	d.Helper()
	d.sees(fmt.Sprintf("the record of %s is %q", id, value), func() bool { return d.records[id] == value })
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

// unusable reports whether an error says that NATS cannot be used, and why.
func unusable(err error, why string) bool {
	return errors.Is(err, cluster.ErrUnusable) && strings.Contains(err.Error(), why)
}
