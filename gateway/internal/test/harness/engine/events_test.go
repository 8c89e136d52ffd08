package engine

import (
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

// noLog waits until it is said why there is no stream.
func (d *diary) noLog(why string) {
	d.Helper()
	eventually(d.T, "it is said why there are no events: "+why, func() bool {
		_, _, err := d.Range(d.Context())
		return errors.Is(err, events.ErrNoLog) && strings.Contains(err.Error(), why)
	})
}

func (d *diary) append(node, id, data string) uint64 {
	d.Helper()
	n, err := d.Append(d.Context(), node, id, []byte(data))
	check(d.T, err)
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
	check(d.T, err)
	d.Cleanup(stop)
	return f
}

// after returns what has come after a number.
func (f *follower) after(n uint64) (list []events.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.list {
		if m.Number > n {
			list = append(list, m)
		}
	}
	return list
}

func said(list []events.Message) string {
	var all []string
	for _, m := range list {
		all = append(all, fmt.Sprintf("%d %s:%s", m.Number, m.Node, m.Data))
	}
	return strings.Join(all, ", ")
}

// All nodes get each message once, with one number, the node that has stored it too, and read it again.
func TestEventsHaveOneOrderForAllNodes(t *testing.T) {
	t.Parallel()
	sizes(t, func(t *testing.T, r *room) {
		a, b := r.engine(), r.engine()
		first, last := a.logged()
		b.logged()
		if first != last+1 || first < anHourAgo() {
			t.Errorf("it begins with %d to %d", first, last)
		}
		fa, fb := a.follow(), b.follow()
		eventually(t, "the subscriptions are there", func() bool {
			last = a.append("probe", fmt.Sprint(time.Now().UnixNano()), "x")
			return len(fa.after(0)) > 0 && len(fb.after(0)) > 0
		})
		numbers := []uint64{a.append("aa", "1", "x"), b.append("bb", "2", "y"), a.append("aa", "3", "z")}
		if !slices.Equal(numbers, []uint64{last + 1, last + 2, last + 3}) {
			t.Errorf("numbers %v after %d", numbers, last)
		}
		if again := a.append("aa", "1", "x"); again != numbers[0] {
			t.Errorf("stored again as %d, want %d", again, numbers[0])
		}
		x, y, z := fmt.Sprint(last+1, " aa:x"), fmt.Sprint(last+2, " bb:y"), fmt.Sprint(last+3, " aa:z")
		for name, f := range map[string]*follower{"a": fa, "b": fb} {
			eventually(t, name+" follows", func() bool { return said(f.after(last)) == x+", "+y+", "+z })
		}
		for _, test := range []struct {
			after uint64
			limit int
			want  string
		}{{last, 10, x + ", " + y + ", " + z}, {last, 2, x + ", " + y}, {last + 2, 10, z}, {last + 3, 10, ""}} {
			eventually(t, fmt.Sprintf("reading %d after %d gives %q", test.limit, test.after, test.want), func() bool {
				list, err := b.Read(t.Context(), test.after, test.limit)
				check(t, err)
				return said(list) == test.want
			})
		}
		for node, want := range map[string]uint64{"aa": last + 3, "cc": 0} {
			if m, err := b.NewestOf(t.Context(), node); err != nil || m.Number != want {
				t.Errorf("the newest of %s: %+v, %v, want number %d", node, m, err, want)
			}
		}
		if info := r.stream("test_events"); info.Config.MaxBytes <= 0 || info.Config.MaxAge != 10*time.Minute || info.Config.Replicas != len(r.servers) || info.State.Consumers != 0 {
			t.Errorf("%+v", info)
		}
	})
}

// anHourAgo is the least number of an event: they are microseconds.
func anHourAgo() uint64 { return uint64(time.Now().Add(-time.Hour).UnixMicro()) }

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
	r.restart(func() {})
	if again, last := a.logged(); again != first || last != first-1 {
		t.Fatalf("it has %d to %d, began with %d: has NATS changed?", again, last, first)
	}
	eventually(t, "it is advanced", func() bool { return a.Advance(t.Context(), first+3) == nil })
	if next := a.append("aa", "later", "y"); next <= first+3 || next < anHourAgo() {
		t.Errorf("the next number is %d, after %d", next, first+3)
	}
	ahead := first + uint64(2*time.Hour/time.Microsecond) // a clock that was
	a.Advance(t.Context(), ahead)
	next := a.append("aa", "even later", "z")
	if next <= ahead {
		t.Errorf("the next number is %d, after %d", next, ahead)
	}
	eventually(t, "the newest alone is there", func() bool { // any replica answers, perhaps one that is behind
		list, err := a.Read(t.Context(), first-1, 10)
		return err == nil && said(list) == fmt.Sprint(next, " aa:z")
	})
}

// A stream that was lost is made anew, with greater numbers.
func TestLostStreamOfEventsIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRoom(t, 1, nil)
	a := r.engine()
	first, _ := a.logged()
	a.append("aa", "1", "x")
	check(t, r.admin().DeleteStream(t.Context(), "test_events"))
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
	t.Parallel()
	all := engine.Rights("test", false)
	memory := func(n int64) func(*server.Options) {
		return func(o *server.Options) { o.JetStreamMaxMemory = n; as(all)(o) }
	}
	for name, test := range map[string]struct {
		change func(*server.Options)
		why    string // "": there is one
	}{
		"all rights":    {as(all), ""},
		"no looking":    {as(without(all, "$JS.API.STREAM.INFO.test_events")), "$JS.API.STREAM.INFO.test_events"},
		"no making":     {as(without(all, "$JS.API.STREAM.CREATE.test_events")), "$JS.API.STREAM.CREATE.test_events"},
		"little memory": {memory(30 << 20), ""},
		"no memory":     {memory(17 << 20), "resources"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, engine.Options{URLs: newRoom(t, 1, test.change).asUser()})
			e.ready()
			if _, err := e.CreateNode(t.Context(), "aaaaaaaa", []byte("1")); err != nil {
				t.Error(err)
			}
			if _, err := e.PutPlayer(t.Context(), "p", []byte("1"), 0); err != nil {
				t.Error(err)
			}
			if _, _, err := e.GetPlayer(t.Context(), "p"); err != nil {
				t.Error(err)
			}
			if test.why != "" {
				e.noLog(test.why)
				e.put("aaaaaaaa", "2")
				return
			}
			e.logged()
			n := e.append("aa", "1", "x")
			if list, err := e.Read(t.Context(), n-1, 10); err != nil || len(list) != 1 {
				t.Errorf("%v, %v", list, err)
			}
			check(t, e.Advance(t.Context(), n))
		})
	}
}

// A stream of that name that is something else is not used.
func TestForeignStreamOfEventsIsNotUsed(t *testing.T) {
	t.Parallel()
	r := newRoom(t, 1, nil)
	_, err := r.admin().CreateStream(t.Context(), jetstream.StreamConfig{Name: "test_events", Subjects: []string{"test.ev.>"}})
	check(t, err)
	e := r.engine()
	e.noLog("something else")
}
