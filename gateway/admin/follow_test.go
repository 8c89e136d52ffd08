package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/events"
	"reseat/gateway/internal/test/wstest"
)

// A book is the log of a town.
type book struct {
	first, last uint64
	pages       []events.Message
	ids         map[string]bool
	watch       map[string]func(events.Message) // by the node's id
	err         error                           // of every call
	silent      bool                            // what is stored is not passed on
	reads       int
}

func newBook() *book {
	last := uint64(time.Now().UnixMicro())
	return &book{first: last + 1, last: last, ids: make(map[string]bool), watch: make(map[string]func(events.Message))}
}

// A bookAt is a book as one node reaches it.
type bookAt struct {
	*book
	*place
}

func (b *book) at(p *place) bookAt { return bookAt{b, p} }

// do is for the calls of a node. Without its connection it reaches nothing.
func (b bookAt) do(f func() error) (err error) {
	b.set(func(p *place) {
		switch {
		case p.deaf:
			err = errors.New("the engine is away")
		case b.err != nil:
			err = b.err
		default:
			err = f()
		}
	})
	return err
}

// Range implements events.Log.
func (b bookAt) Range(context.Context) (first, last uint64, err error) {
	err = b.do(func() error { first, last = b.first, b.last; return nil })
	return first, last, err
}

// Append implements events.Log.
func (b bookAt) Append(_ context.Context, node, id string, data []byte) (number uint64, err error) {
	err = b.do(func() error {
		if number = b.last; b.ids[id] {
			return nil
		}
		b.last++
		number = b.last
		m := events.Message{Number: b.last, Node: node, Data: slices.Clone(data)}
		b.ids[id], b.pages = true, append(b.pages, m)
		for _, p := range b.town.nodes {
			if w := b.watch[p.node.ID]; w != nil && !p.deaf && !b.silent {
				w(m)
			}
		}
		return nil
	})
	return number, err
}

// Read implements events.Log.
func (b bookAt) Read(_ context.Context, after uint64, limit int) (list []events.Message, err error) {
	err = b.do(func() error {
		b.reads++
		for _, m := range b.pages {
			if m.Number > after && m.Number >= b.first && len(list) < limit {
				list = append(list, m)
			}
		}
		return nil
	})
	return list, err
}

// NewestOf implements events.Log.
func (b bookAt) NewestOf(_ context.Context, node string) (newest events.Message, err error) {
	err = b.do(func() error {
		for _, m := range b.pages {
			if m.Node == node {
				newest = m
			}
		}
		return nil
	})
	return newest, err
}

// Watch implements events.Log.
func (b bookAt) Watch(f func(events.Message)) (func(), error) {
	b.set(func(p *place) { b.watch[p.node.ID] = f })
	return func() { b.set(func(p *place) { delete(b.watch, p.node.ID) }) }, nil
}

// Advance implements events.Log.
func (b bookAt) Advance(_ context.Context, past uint64) error {
	return b.do(func() error {
		b.pages, b.last = nil, max(past, uint64(time.Now().UnixMicro()))
		b.first = b.last + 1
		return nil
	})
}

// change changes a book.
func (all *town) change(f func(b *book)) {
	all.mu.Lock()
	defer all.mu.Unlock()
	f(all.book)
}

// happens publishes events of sessions at a node, which are stored as one or two messages.
func (p *place) happens(sessions ...string) {
	p.town.mu.Lock() // nothing is stored meanwhile
	for _, s := range sessions {
		p.gw.Watch().Events.Publish(events.Event{Type: events.Resumed, Session: s})
	}
	p.town.mu.Unlock()
	synctest.Wait()
}

// ids reads events, and returns their ids.
func (l *listener) ids(want ...string) (ids []uint64) {
	l.t.Helper()
	for _, w := range want {
		l.want(w)
		id, err := strconv.ParseUint(l.last, 10, 64)
		if err != nil {
			l.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// event is next without comments.
func (l *listener) event() (e events.Event) {
	l.t.Helper()
	for e.Type == "" {
		e = l.next()
	}
	return e
}

// wantNothing fails if an event is there.
func (l *listener) wantNothing(p *place) {
	l.t.Helper()
	p.happens("nothing")
	l.want("session.resumed nothing")
}

func (l *listener) continued(p *place) *listener {
	return p.serve().listen("", "Last-Event-ID: "+l.last)
}

// All nodes number events alike: a reader continues at any of them, after each of the events of a
// message.
func TestReaderContinuesAtAnotherNode(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		first, second := nodes[0].serve().listen(""), nodes[1].serve().listen("")
		nodes[2].happens("1", "2", "3")
		nodes[0].happens("4")
		nodes[1].happens("5")
		all := []string{"session.resumed 1", "session.resumed 2", "session.resumed 3", "session.resumed 4", "session.resumed 5"}
		ids := first.ids(all...)
		if got := second.ids(all...); !slices.Equal(got, ids) || !slices.IsSorted(ids) {
			t.Errorf("%v and %v", ids, got)
		}
		for i, id := range ids {
			l := nodes[2].serve().listen("", fmt.Sprint("Last-Event-ID: ", id))
			l.want(all[i+1:]...)
			l.wantNothing(nodes[2])
			all = append(all, "session.resumed nothing")
		}
	})
}

// A node that has just begun has the events of before, and continues for readers of others. So does the
// process after an upgrade.
func TestNewNodeContinuesForReadersOfOthers(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		l := nodes[0].serve().listen("")
		nodes[1].happens("1")
		nodes[0].happens("2")
		l.want("session.resumed 1")
		l.Close()
		late := nodes[0].town.add("00000009", "dan")
		at := late.serve()
		at.listen("", "Last-Event-ID: "+l.last).want("session.resumed 2")
		at.listen("?last=9").want("session.resumed 1", "session.resumed 2")
	})
}

// What is no longer in memory is read from the log, in parts.
func TestOldEventsAreReadFromTheLog(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		l := nodes[0].serve().listen("")
		nodes[0].happens("first")
		l.want("session.resumed first")
		l.Close()
		var want []string
		for i := range events.Kept/10 + 50 {
			var part []string
			for j := range 11 {
				part = append(part, fmt.Sprint(i, "-", j))
				want = append(want, fmt.Sprint("session.resumed ", i, "-", j))
			}
			nodes[i%2].happens(part...)
		}
		nodes[0].town.change(func(b *book) { b.reads = 0 })
		late := l.continued(nodes[1])
		late.want(want...)
		late.wantNothing(nodes[0])
		nodes[0].town.change(func(b *book) {
			if b.reads == 0 || b.reads > 10 {
				t.Errorf("%d reads", b.reads)
			}
			b.first = b.pages[3].Number // the first are too old
		})
		l.continued(nodes[1]).want("gap")
		nodes[0].town.change(func(b *book) { b.err = errors.New("no leader") })
		l.continued(nodes[1]).want("gap")
	})
}

// An id that no node has given begins with a gap.
func TestForeignIDsAreAGapWithTheLog(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		b := nodes[0].town.book
		nodes[0].happens("1")
		at := nodes[1].serve()
		for _, id := range []uint64{7, 1, uint64(time.Now().UnixMicro()), events.PlaceOf(b.last+1, 0, 1)} {
			at.listen("", fmt.Sprint("Last-Event-ID: ", id)).want("gap", "session.resumed 1")
		}
	})
}

// A node that lost its connection reads what it has missed, and stores what the others have: nothing is missing,
// nothing comes twice, and the order is the same at both. Meanwhile ?node=self has its own events.
func TestEventsAreCompleteAfterAnOutageOfOneNode(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		here, there, own := nodes[0].serve().listen(""), nodes[1].serve().listen(""), nodes[0].serve().listen("?node=self")
		nodes[0].happens("1")
		nodes[0].hear(false)
		nodes[1].happens("2")
		nodes[0].happens("3", "4")
		there.want("session.resumed 1", "session.resumed 2")
		own.want("session.resumed 1", "session.resumed 3", "session.resumed 4")
		nodes[0].hear(true)
		time.Sleep(lookEvery)
		there.want("session.resumed 3", "session.resumed 4")
		here.want("session.resumed 1", "session.resumed 2", "session.resumed 3", "session.resumed 4")
		if here.last != there.last {
			t.Errorf("ids %s and %s, want the same", here.last, there.last)
		}
		here.wantNothing(nodes[1])
		there.wantNothing(nodes[0])
	})
}

// What was not passed on is read: if nothing follows it, too. What is missing then is a gap: the first
// message of a node, before which no other shows that it is.
func TestMessageThatWasNotPassedOnIsRead(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		l := nodes[1].serve().listen("")
		passOn := func(on bool) { nodes[0].town.change(func(b *book) { b.silent = !on }) }
		passOn(false)
		nodes[0].happens("1")
		nodes[0].happens("2")
		nodes[0].town.change(func(b *book) {
			b.pages = b.pages[1:]
			b.first++
		})
		passOn(true)
		nodes[0].happens("3")
		l.want("gap", "session.resumed 2", "session.resumed 3")
		passOn(false)
		nodes[0].happens("4")
		time.Sleep(2 * lookEvery)
		l.want("session.resumed 4")
		nodes[0].happens("5")
		passOn(true)
		nodes[0].happens("6")
		l.want("session.resumed 5", "session.resumed 6")
	})
}

// Messages that the log has lost are a gap, after which a reader continues at any node: one that has them, too.
func TestMessagesThatTheLogHasLostAreAGap(t *testing.T) {
	for name, test := range map[string]struct {
		lose    func(*book)
		here    []string // what a node that had none of them shows
		another []string // what the other one shows after the gap
	}{
		"one between others": {
			func(b *book) { b.pages = slices.Delete(b.pages, 1, 2) },
			[]string{"session.resumed 1", "gap"}, []string{"session.resumed 3"},
		},
		"all": {
			func(b *book) { b.pages, b.first = nil, b.last+1 },
			[]string{"gap"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTown(t, three[:2], func(t *testing.T, nodes []*place) {
				l := nodes[1].serve().listen("")
				nodes[1].hear(false)
				for _, session := range []string{"1", "2", "3"} {
					nodes[0].happens(session)
				}
				nodes[0].town.change(test.lose)
				nodes[1].hear(true)
				time.Sleep(lookEvery)
				l.want(test.here...)
				there := l.continued(nodes[0])
				there.want(test.another...)
				there.wantNothing(nodes[0])
			})
		})
	}
}

// A message that was stored twice, since nobody knew that it was, is shown once.
func TestMessageThatWasStoredTwiceIsShownOnce(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		b := nodes[0].town.book
		here, there := nodes[0].serve().listen(""), nodes[1].serve().listen("")
		nodes[0].happens("1", "2")
		for _, m := range slices.Clone(b.pages) {
			if _, err := b.at(nodes[0]).Append(t.Context(), m.Node, "again", m.Data); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			delete(b.ids, "again")
		}
		for _, l := range []*listener{here, there} {
			l.want("session.resumed 1", "session.resumed 2")
		}
		nodes[1].happens("3")
		for _, l := range []*listener{here, there} {
			l.want("session.resumed 3")
		}
	})
}

// NATS may lose its memory, and begin with the numbers that it began with. All readers are notified, and no
// number means two events.
func TestLogThatHasLostItsEventsIsAGap(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		b := nodes[0].town.book
		l, gone := nodes[1].serve().listen(""), nodes[1].serve().listen("")
		from := b.last
		nodes[0].happens("1")
		nodes[0].happens("2")
		nodes[0].happens("3")
		gone.want("session.resumed 1")
		gone.Close()
		all := l.ids("session.resumed 1", "session.resumed 2", "session.resumed 3")
		nodes[0].town.change(func(b *book) { b.pages, b.first, b.last = nil, from+1, from })
		time.Sleep(2 * lookEvery)
		nodes[1].happens("4")
		if ids := l.ids("gap", "session.resumed 4"); ids[1] <= all[2] {
			t.Errorf("%v after %v", ids, all)
		}
		for _, n := range nodes { // these have them
			gone.continued(n).want("session.resumed 2", "session.resumed 3", "gap", "session.resumed 4")
		}
		late := nodes[0].town.add("00000009", "dan")
		gone.continued(late).want("gap", "session.resumed 4")
	})
}

// A log that was made anew has greater numbers.
func TestNewLogIsAGap(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		l := nodes[1].serve().listen("")
		nodes[0].happens("1")
		time.Sleep(time.Second)
		nodes[0].town.change(func(b *book) {
			b.last = uint64(time.Now().UnixMicro())
			b.first, b.pages = b.last+1, nil
		})
		nodes[0].happens("2")
		ids := l.ids("session.resumed 1", "gap", "session.resumed 2")
		if !slices.IsSorted(ids) {
			t.Errorf("%v", ids)
		}
		l.continued(nodes[0]).wantNothing(nodes[1])
	})
}

// Where NATS can keep no log, readers get the events of their node alone, and come again when it can.
func TestWithoutLogNodesShowTheirOwnEvents(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		keep := func(err error) {
			nodes[0].town.change(func(b *book) { b.err = err })
			time.Sleep(2 * lookEvery)
		}
		ends := func(l *listener) {
			t.Helper()
			for range 20 {
				if _, err := l.line(); err == io.EOF {
					return
				}
			}
			t.Error("the stream goes on")
		}
		logged := nodes[0].serve().listen("")
		nodes[1].happens("1")
		logged.want("session.resumed 1")
		keep(fmt.Errorf("%w: no memory", events.ErrNoLog))
		ends(logged)
		l := logged.continued(nodes[0])
		nodes[1].happens("2")
		nodes[0].happens("3")
		if e := l.ids("gap", "session.resumed 3"); !slices.IsSorted(e) {
			t.Errorf("ids %v", e)
		}
		keep(nil)
		ends(l)
		later := l.continued(nodes[1])
		later.want("gap", "session.resumed 1")
		for _, l := range []*listener{later, logged.continued(nodes[0])} { // which is stored first is open
			if got := []string{l.event().Session, l.event().Session}; got[0]+got[1] != "23" && got[0]+got[1] != "32" {
				t.Errorf("events of sessions %q, want 2 and 3", got)
			}
		}
	})
}

// A node that has more events than it can keep while the log is away says so.
func TestEventsThatWereNotStoredAreAGap(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		nodes[0].hear(false)
		for i := range events.Kept/100 + 3 {
			nodes[0].happens(slices.Repeat([]string{fmt.Sprint(i)}, 100)...)
		}
		nodes[0].hear(true)
		time.Sleep(lookEvery)
		nodes[0].town.change(func(b *book) {
			gaps := 0
			for _, page := range b.pages {
				m, err := nodes[1].admin.(*Handler).a.feed.decode(page.Node, page.Data)
				if err != nil {
					t.Fatal(err)
				}
				if m.Events[0].Type == events.Gap {
					gaps++
				}
			}
			if gaps == 0 {
				t.Error("no gap was stored")
			}
		})
	})
}

// A process that continues a node stores what its predecessor had not.
func TestSuccessorStoresTheRestOfItsPredecessor(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		b := nodes[0].town.book
		l := nodes[1].serve().listen("")
		nodes[0].happens("1")
		nodes[0].hear(false)
		nodes[0].happens("2")
		old := nodes[0]
		recent, evicted := old.gw.Watch().Events.Recent(0)
		next := &place{town: old.town, node: old.node, ln: wstest.NewListener(4 << 10)}
		next.world = newWorld(t)
		next.gw.Watch().Events.Continue(recent, evicted)
		h := New(next.gw, Options{Cluster: next, Log: newLog(next.log)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go h.Run(ctx)
		synctest.Wait()
		time.Sleep(behindEvery)
		next.gw.Watch().Events.Publish(events.Event{Type: events.Resumed, Session: "3"})
		l.want("session.resumed 1", "session.resumed 2", "session.resumed 3")
		if n := strings.Count(fmt.Sprint(b.ids), "00000001-"); n != 3 {
			t.Errorf("%d messages of the node: %v", n, b.ids)
		}
	})
}

// NATS shows who publishes events, and nothing of players. What no node has sealed is not shown.
func TestStoredEventsAreSealed(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		b := nodes[0].town.book
		l := nodes[1].serve().listen("")
		for i, data := range forgedEvents {
			if _, err := b.at(nodes[0]).Append(t.Context(), nodes[0].node.ID, fmt.Sprint(i), []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		nodes[0].play("secret")
		l.wantFrom("session.created ann")
		nodes[0].town.change(func(b *book) {
			if data := string(b.pages[len(b.pages)-1].Data); strings.Contains(data, "secret") {
				t.Errorf("others read %s", data)
			}
		})
	})
}

// forgedEvents are not of the node 00000001: the last is sealed by another one.
var forgedEvents = []string{
	"", "x", "{}", `[]`,
	`{"after":0,"ids":[99999999999999999],"events":[{"id":99999999999999999,"type":"session.ended","session":"secret","node":"ann"}]}`,
	`{"after":0,"ids":[9],"events":[{"id":9,"type":"session.ended","node":"ann"}],"sealed":"ZXYuMDAwMDAwMDJ7fQ=="}`,
}

func TestStreamHasEventsOfAllNodes(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		all, own, other := nodes[1].serve().listen(""), nodes[1].serve().listen("?node=self"), nodes[1].serve().listen("?node=cid")
		for _, n := range nodes {
			p, _ := n.play("red")
			all.want("session.created " + p.Hello.Session)
			time.Sleep(time.Second)
			nodes[0].wantStatus("DELETE", path(p), http.StatusNoContent)
			all.want("session.ended " + p.Hello.Session)
		}
		late := nodes[0].serve().listen("?last=9")
		late.wantFrom("session.created ann", "session.ended ann", "session.created bob", "session.ended bob", "session.created cid", "session.ended cid")
		own.wantFrom("session.created bob", "session.ended bob")
		other.wantFrom("session.created cid", "session.ended cid")
		p, _ := nodes[0].play("blue")
		nodes[2].serve().listen("?last=9&group=blue").want("session.created " + p.Hello.Session)
		own.Close()
		other.Close()
	})
}

// Nobody publishes the ends of a lost node's sessions: readers of all others are asked to list the
// sessions again, once, though each node finds it lost.
func TestLostNodeIsAGap(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		here, there := nodes[1].serve().listen("?session=x"), nodes[2].serve().listen("?session=x")
		for _, n := range nodes[1:] {
			n.lost(nodes[0].node)
		}
		synctest.Wait()
		nodes[1].happens("x")
		for _, l := range []*listener{here, there} {
			if e := l.event(); e.Type != events.Gap || e.Node != "ann" || e.Reason != nodeLost {
				t.Errorf("%+v, want the gap of ann with reason %s", e, nodeLost)
			}
			l.want("session.resumed x")
		}
		if here.last != there.last {
			t.Errorf("ids %s and %s, want the same", here.last, there.last)
		}
	})
}

func TestClusterStreamEndsCleanlyWithGateway(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		l := nodes[0].serve().listen("")
		p, _ := nodes[0].play("")
		l.want("session.created " + p.Hello.Session)
		nodes[0].gw.Close()
		l.want("session.ended " + p.Hello.Session)
		if line, err := l.line(); err != io.EOF {
			t.Errorf("%q, %v; want the end of the body", line, err)
		}
	})
}

// A reader of another node's stream that does not read is closed, as at that node.
func TestStuckReaderOfAnotherNodesStreamIsClosed(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		l := nodes[0].serve().listen("?node=bob")
		for range 400 {
			nodes[1].gw.Watch().Events.Publish(events.Event{Type: events.Resumed, Session: strings.Repeat("x", 100)})
			synctest.Wait()
		}
		time.Sleep(2*streamWriteTimeout + time.Second)
		if _, err := io.ReadAll(l.body); err == nil {
			t.Error("it came to an end in order, rather than cut")
		}
	})
}
