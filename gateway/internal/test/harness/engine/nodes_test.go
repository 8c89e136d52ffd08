package engine

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
	"reseat/gateway/cluster/engine"
)

func TestRecordsAndHeartbeatsReachOtherNodes(t *testing.T) {
	t.Parallel()
	sizes(t, func(t *testing.T, r *room) {
		a, b := r.engine(), r.engine()
		if skew, ok := a.Skew(); !ok || skew.Abs() > time.Second { // the clock of this machine is that of the server
			t.Errorf("once it is ready the skew is %v, known: %v", skew, ok)
		}
		if existing, err := a.CreateNode(t.Context(), "aaaaaaaa", []byte("1")); err != nil || existing != nil {
			t.Fatal(existing, err)
		}
		a.put("aaaaaaaa", "2")
		b.seesRecord("aaaaaaaa", "2")
		if existing, err := b.CreateNode(t.Context(), "aaaaaaaa", []byte("b's")); !errors.Is(err, cluster.ErrExists) || string(existing) != "2" {
			t.Errorf("the id of a living node is created again: %q, %v", existing, err)
		}
		check(t, a.Beat("aaaaaaaa"))
		b.sees("a heartbeat", func() bool { return b.beats["aaaaaaaa"] > 0 })
		b.put("bbbbbbbb", "b's")
		a.seesRecord("bbbbbbbb", "b's")
		late := r.engine()
		late.note(func() {
			if late.records["aaaaaaaa"] != "2" || late.records["bbbbbbbb"] != "b's" || late.synced != 1 {
				t.Errorf("a node that comes later has %v, synced %d times", late.records, late.synced)
			}
		})
		a.note(func() {
			if a.records["aaaaaaaa"] == "b's" {
				t.Error("the refused record was passed on")
			}
		})
		if st := a.Status(); !st.Up || st.Servers != len(r.servers) || st.Replicas != len(r.servers) || st.Version != server.VERSION {
			t.Errorf("%+v, want %d servers and replicas", st, len(r.servers))
		}
		for _, bucket := range []string{"KV_test_nodes", "KV_test_players"} { // each consumer would be a group of its own in a cluster
			if n := r.stream(bucket).State.Consumers; n != 0 {
				t.Errorf("%s has %d consumers", bucket, n)
			}
		}
	})
}

func TestMessagesReachTheirSubscribersOnly(t *testing.T) {
	t.Parallel()
	r := newRoom(t, 1, nil)
	a, b := r.engine(), r.engine()
	var mu sync.Mutex
	var got []string
	heard := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
	listen := func(subject string) func() {
		end, err := b.Subscribe(subject, func(subject string, data []byte) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, subject+"="+string(data))
		})
		check(t, err)
		return end
	}
	end := listen("ev.*")
	listen("n.bbbbbbbb")
	eventually(t, "the server knows the subscriptions", func() bool {
		a.Publish("ev.aaaaaaaa", []byte("first"))
		return len(heard()) > 0
	})
	end()
	eventually(t, "the subscription has ended", func() bool {
		n := len(heard())
		a.Publish("ev.aaaaaaaa", []byte("second"))
		a.Publish("n.cccccccc", []byte("not for b"))
		a.Publish("n.bbbbbbbb", []byte("for b"))
		eventually(t, "b gets its own", func() bool { return slices.Contains(heard()[n:], "n.bbbbbbbb=for b") })
		return !slices.Contains(heard()[n:], "ev.aaaaaaaa=second")
	})
	if slices.Contains(heard(), "n.cccccccc=not for b") {
		t.Error(heard())
	}
	b.Close() // a node that is stopped right after its start may still be subscribing
	end, err := b.Subscribe("ev.*", func(string, []byte) {})
	check(t, err)
	end()
}

// NATS away at the start: the engine connects when it comes.
func TestEngineConnectsLater(t *testing.T) {
	t.Parallel()
	r := plannedRoom(t, 1, nil)
	e := newEngine(t, engine.Options{URLs: r.urls()})
	if err := e.readyWithin(100 * time.Millisecond); err == nil || errors.Is(err, cluster.ErrUnusable) {
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
	t.Parallel()
	r := newRoom(t, 1, nil)
	a, b := r.engine(), r.engine()
	a.put("aaaaaaaa", "1")
	r.restart(func() {
		eventually(t, "the engine is down", func() bool { return !a.Status().Up && !b.Status().Up })
	})
	a.ready()
	b.ready()
	b.put("bbbbbbbb", "1")
	a.seesRecord("bbbbbbbb", "1")
	check(t, a.Beat("aaaaaaaa"))
	b.sees("a heartbeat", func() bool { return b.beats["aaaaaaaa"] > 0 })
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
		check(t, err)
		check(t, kv.Purge(t.Context(), "aaaaaaaa"))
		b.seesRecord("aaaaaaaa", "")
		a.put("aaaaaaaa", "2")
		b.seesRecord("aaaaaaaa", "2")
		check(t, js.DeleteKeyValue(t.Context(), "test_nodes"))
		a.put("aaaaaaaa", "3")
		r.stream("KV_test_nodes")
		a.put("aaaaaaaa", "4")
		b.seesRecord("aaaaaaaa", "4")
		if !a.Status().Up || !b.Status().Up {
			t.Error("a lost bucket counts as a lost connection")
		}
	})
}

// Servers that have not found each other yet must not leave a cluster with fewer replicas for good, and
// one that stays away must not keep it from being used.
func TestBucketsWaitForServersThatAreJoining(t *testing.T) {
	t.Parallel()
	r := plannedRoom(t, 3, toOthers)
	r.startFirst(2)
	e := newEngine(t, engine.Options{URLs: r.urls(), Seats: true})
	eventually(t, "the engine is connected", func() bool { return e.Status().Up })
	if err := e.readyWithin(3 * time.Second); err == nil || !strings.Contains(err.Error(), "have not joined") {
		t.Errorf("with two of three servers: %v", err)
	}
	r.start(2)
	e.ready()
	for _, name := range []string{"KV_test_nodes", "KV_test_players", "KV_test_seats_0", "test_events"} {
		if n := r.stream(name).Config.Replicas; n != 3 {
			t.Errorf("%s has %d replicas, want 3", name, n)
		}
	}
	r = plannedRoom(t, 3, toOthers)
	r.startFirst(2)
	e = r.engine()
	e.put("aaaaaaaa", "1")
	if n := e.Status().Replicas; n != 2 {
		t.Errorf("without the third server: %d replicas, want 2", n)
	}
}

// A bucket that is there is used as it is.
func TestExistingBucketIsNotChanged(t *testing.T) {
	t.Parallel()
	r := newRoom(t, 3, nil)
	_, err := r.admin().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "test_nodes", TTL: time.Minute, Replicas: 1, Storage: jetstream.MemoryStorage})
	check(t, err)
	e := r.engine()
	e.put("aaaaaaaa", "1")
	if c := r.stream("KV_test_nodes").Config; c.MaxAge != time.Minute || c.Replicas != 1 || e.Status().Replicas != 1 {
		t.Errorf("%+v, status %+v", c, e.Status())
	}
}

func TestUnusableServersAreNamed(t *testing.T) {
	t.Parallel()
	all := engine.Rights("test", false)
	for name, test := range map[string]struct {
		change func(*server.Options)
		user   string
		want   string
	}{
		"no JetStream":          {func(o *server.Options) { o.JetStream = false }, "", "JetStream is not enabled"},
		"wrong password":        {as(all), "u:wrong@", "NATS refuses the credentials"},
		"no heartbeats":         {as(without(all, "test.>")), "u:p@", "test.hb"},
		"no making of buckets":  {as(without(all, "$JS.API.STREAM.CREATE.KV_test_nodes")), "u:p@", "$JS.API.STREAM.CREATE.KV_test_nodes"},
		"no reading of buckets": {as(without(all, "$JS.API.DIRECT.GET.KV_test_nodes")), "u:p@", "$JS.API.DIRECT.GET.KV_test_nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, 1, test.change)
			e := newEngine(t, engine.Options{URLs: []string{strings.Replace(r.urls()[0], "nats://", "nats://"+test.user, 1)}})
			err := e.readyWithin(patience)
			if !unusable(err, test.want) || test.user == "u:p@" && !strings.Contains(err.Error(), "lacks a right") {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
