package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster/engine"
	"reseat/gateway/events"
)

// logged waits until the stream of events is there, and returns the numbers that it has.
func (d *diary) logged() (first, last uint64) {
	d.Helper()
	d.ready()
	eventually(d.T, "the stream of events is there", func() (ok bool) {
		var err error
		first, last, err = d.Range(d.Context())
		return err == nil
	})
	return first, last
}

func (d *diary) append(node, id, data string) uint64 {
	d.Helper()
	n, err := d.Append(d.Context(), node, id, []byte(data))
	if err != nil {
		d.Fatal(err)
	}
	return n
}

// A follower notes what is stored.
type follower struct {
	mu   sync.Mutex
	list []events.Message
}

func (d *diary) follow() *follower {
	d.Helper()
	f := new(follower)
	stop, err := d.Watch(func(m events.Message) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.list = append(f.list, m)
	})
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(stop)
	return f
}

func said(list []events.Message) string {
	var all []string
	for _, m := range list {
		all = append(all, fmt.Sprintf("%s:%s", m.Node, m.Data))
	}
	return strings.Join(all, " ")
}

func (f *follower) has(want string) func() bool {
	return func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return said(f.list) == want
	}
}

// All nodes get each message once, with one number, the node that has stored it too, and read it again.
func TestEventsHaveOneOrderForAllNodes(t *testing.T) {
	sizes(t, func(t *testing.T, r *room) {
		a, b := r.engine(), r.engine()
		before := uint64(time.Now().Add(-time.Hour).UnixMicro())
		first, last := a.logged()
		b.logged()
		if first != last+1 || first < before {
			t.Errorf("it begins with %d to %d", first, last)
		}
		fa, fb := a.follow(), b.follow()
		eventually(t, "the subscriptions are there", func() bool {
			a.append("probe", fmt.Sprint(time.Now().UnixNano()), "x")
			fb.mu.Lock()
			defer fb.mu.Unlock()
			return len(fb.list) > 0
		})
		eventually(t, "the probe is there", func() bool { fa.mu.Lock(); defer fa.mu.Unlock(); return len(fa.list) > 0 })
		_, last, _ = a.Range(t.Context())
		fa.mu.Lock()
		fa.list = nil
		fa.mu.Unlock()
		fb.mu.Lock()
		fb.list = nil
		fb.mu.Unlock()
		numbers := []uint64{a.append("aa", "1", "x"), b.append("bb", "2", "y"), a.append("aa", "3", "z")}
		if !slices.Equal(numbers, []uint64{last + 1, last + 2, last + 3}) {
			t.Errorf("numbers %v after %d", numbers, last)
		}
		if again := a.append("aa", "1", "x"); again != numbers[0] {
			t.Errorf("stored again as %d", again)
		}
		for name, f := range map[string]*follower{"a": fa, "b": fb} {
			eventually(t, name+" follows", f.has("aa:x bb:y aa:z"))
			for i, m := range f.list {
				if m.Number != numbers[i] {
					t.Errorf("%s: number %d, want %d", name, m.Number, numbers[i])
				}
			}
		}
		for _, test := range []struct {
			after uint64
			limit int
			want  string
		}{{last, 10, "aa:x bb:y aa:z"}, {last, 2, "aa:x bb:y"}, {last + 2, 10, "aa:z"}, {last + 3, 10, ""}} {
			eventually(t, fmt.Sprintf("read %d after %d", test.limit, test.after-last), func() bool {
				list, err := b.Read(t.Context(), test.after, test.limit)
				if err != nil {
					t.Fatal(err)
				}
				return said(list) == test.want && (len(list) == 0 || list[0].Number == test.after+1)
			})
		}
		if m, err := b.NewestOf(t.Context(), "aa"); err != nil || m.Number != numbers[2] {
			t.Errorf("%+v, %v", m, err)
		}
		if m, err := b.NewestOf(t.Context(), "cc"); err != nil || m.Number != 0 {
			t.Errorf("%+v, %v", m, err)
		}
		st, err := r.admin().Stream(t.Context(), "test_events")
		if err != nil {
			t.Fatal(err)
		}
		c := st.CachedInfo().Config
		if c.MaxBytes <= 0 || c.MaxAge != 10*time.Minute || c.Replicas != len(r.servers) || st.CachedInfo().State.Consumers != 0 {
			t.Errorf("%+v", st.CachedInfo())
		}
	})
}

// A stream in memory that lost all of its servers begins with its first number again. Advance goes past
// what was used.
func TestEmptiedStreamUsesItsNumbersAgainUntilAdvanced(t *testing.T) {
	t.Parallel()
	r := newRoom(t, 3, nil)
	a := r.engine()
	first, _ := a.logged()
	for i := range 3 {
		a.append("aa", fmt.Sprint(i), "x")
	}
	for i := range 3 {
		r.stop(i)
	}
	for i := range 3 {
		r.start(i)
	}
	var again, last uint64
	eventually(t, "the stream is there again", func() bool {
		var err error
		again, last, err = a.Range(t.Context())
		return err == nil
	})
	if again != first || last != first-1 {
		t.Fatalf("it has %d to %d, began with %d: has NATS changed?", again, last, first)
	}
	eventually(t, "it is advanced", func() bool { return a.Advance(t.Context(), first+3) == nil })
	if next := a.append("aa", "later", "y"); next <= first+3 || next < uint64(time.Now().Add(-time.Hour).UnixMicro()) {
		t.Errorf("the next number is %d", next)
	}
	a.Advance(t.Context(), first+uint64(2*time.Hour/time.Microsecond)) // a clock that was ahead
	if next := a.append("aa", "even later", "z"); next <= first+uint64(2*time.Hour/time.Microsecond) {
		t.Errorf("the next number is %d", next)
	}
	list, err := a.Read(t.Context(), first-1, 10)
	if err != nil || said(list) != "aa:z" {
		t.Errorf("%v, %v", list, err)
	}
}

// A stream that was lost is made anew, with greater numbers.
func TestLostStreamOfEventsIsMadeAgain(t *testing.T) {
	r := newRoom(t, 1, nil)
	a := r.engine()
	first, _ := a.logged()
	a.append("aa", "1", "x")
	if err := r.admin().DeleteStream(t.Context(), "test_events"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Append(t.Context(), "aa", "2", []byte("y")); err == nil {
		t.Error("stored in a stream that is not there")
	}
	if again, _ := a.logged(); again <= first+1 {
		t.Errorf("it begins with %d again, after %d", again, first)
	}
	a.append("aa", "2", "y")
}

// Nothing else depends on the stream: a node works without it.
func TestNodeWorksWithoutStreamOfEvents(t *testing.T) {
	without := func(calls ...string) func(*server.Options) {
		return func(o *server.Options) {
			all := engine.Rights("test", false)
			p := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{Allow: all.Subscribe}}
			for _, s := range all.Publish {
				if !slices.Contains(calls, s) {
					p.Publish.Allow = append(p.Publish.Allow, s)
				}
			}
			o.Users = []*server.User{{Username: "u", Password: "p", Permissions: p}}
		}
	}
	for name, test := range map[string]struct {
		change func(*server.Options)
		there  bool
		err    string
	}{
		"all rights":    {without(), true, ""},
		"no looking":    {without("$JS.API.STREAM.INFO.test_events"), false, "$JS.API.STREAM.INFO.test_events"},
		"no making":     {without("$JS.API.STREAM.CREATE.test_events"), false, "$JS.API.STREAM.CREATE.test_events"},
		"little memory": {func(o *server.Options) { o.JetStreamMaxMemory = 30 << 20; without()(o) }, true, ""},
		"no memory":     {func(o *server.Options) { o.JetStreamMaxMemory = 17 << 20; without()(o) }, false, "resources"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, 1, test.change)
			e := newEngine(t, engine.Options{URLs: []string{strings.Replace(r.urls()[0], "nats://", "nats://u:p@", 1)}})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := e.Ready(ctx); err != nil {
				t.Fatal(err)
			}
			e.put("aaaaaaaa", "1")
			if test.there {
				e.logged()
				n := e.append("aa", "1", "x")
				if list, err := e.Read(ctx, n-1, 10); err != nil || len(list) != 1 {
					t.Errorf("%v, %v", list, err)
				}
				if err := e.Advance(ctx, n); err != nil {
					t.Error(err)
				}
				return
			}
			eventually(t, "it is said why there is none", func() bool {
				_, _, err := e.Range(ctx)
				return errors.Is(err, events.ErrNoLog) && strings.Contains(err.Error(), test.err)
			})
			e.put("aaaaaaaa", "2")
		})
	}
}

var foreignStream = jetstream.StreamConfig{Name: "test_events", Subjects: []string{"test.ev.>"}}

// A stream of that name that is something else is not used.
func TestForeignStreamOfEventsIsNotUsed(t *testing.T) {
	r := newRoom(t, 1, nil)
	c := foreignStream
	if _, err := r.admin().CreateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	e := r.engine()
	e.ready()
	eventually(t, "it is said why there is none", func() bool {
		_, _, err := e.Range(t.Context())
		return errors.Is(err, events.ErrNoLog) && strings.Contains(err.Error(), "something else")
	})
}
