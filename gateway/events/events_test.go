package events

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A clock is set by the test.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func testHub() (*Hub, *clock) {
	c := &clock{time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	return New(c.now), c
}

func publish(h *Hub, sessions ...string) {
	for _, s := range sessions {
		h.Publish(Event{Type: Created, Session: s})
	}
}

// read reads all pending events: their sessions, or the type of an event without one.
func read(t *testing.T, r *Reader) (what []string, ids []uint64) {
	t.Helper()
	for {
		list, _ := r.Next(make([]Event, 0, 16))
		if len(list) == 0 {
			return what, ids
		}
		for _, e := range list {
			name := e.Session
			if name == "" {
				name = e.Type
			}
			what, ids = append(what, name), append(ids, e.ID)
		}
	}
}

func want(t *testing.T, r *Reader, sessions ...string) []uint64 {
	t.Helper()
	got, ids := read(t, r)
	if !slices.Equal(got, sessions) {
		t.Errorf("read %q, want %q", got, sessions)
	}
	for i := 1; i < len(ids); i++ {
		if ids[i] <= ids[i-1] {
			t.Errorf("IDs do not grow: %v", ids)
		}
	}
	return ids
}

func numbered(from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprint("s", i))
	}
	return list
}

func TestReaderBeginsWithNewestHeldEvents(t *testing.T) {
	h, _ := testHub()
	want(t, h.Newest(5))
	publish(h, "a", "b", "c")
	want(t, h.Newest(2), "b", "c")
	want(t, h.Newest(0))
	want(t, h.Newest(5), "a", "b", "c")
	publish(h, numbered(0, Kept)...) // the first three are evicted: no gap, since the reader did not ask for them
	want(t, h.Newest(1), fmt.Sprint("s", Kept-1))
	if ids := want(t, h.Newest(Kept), numbered(0, Kept)...); len(ids) != Kept {
		t.Errorf("%d events, want %d", len(ids), Kept)
	}
}

func TestUnknownEventIDYieldsGap(t *testing.T) {
	h, _ := testHub()
	publish(h, "a", "b")
	for _, id := range []uint64{0, 1, h.last + 1, 1<<64 - 1} {
		ids := want(t, h.After(id), Gap, "a", "b")
		want(t, h.After(ids[0]), "a", "b") // the gap's own ID continues after it
	}
}

func TestReaderBehindTheRingGetsGap(t *testing.T) {
	h, _ := testHub()
	slow := h.Live()
	all := numbered(0, Kept+3)
	publish(h, all[:Kept]...)
	exact := h.After(h.ring[0].ID)
	publish(h, all[Kept:]...)
	want(t, slow, append([]string{Gap}, all[3:]...)...)
	want(t, exact, append([]string{Gap}, all[3:]...)...)
	publish(h, "on")
	want(t, slow, "on")
	if n := h.Missed(); n != 3+2 { // exact had read none of the first three
		t.Errorf("%d events missed, want 5", n)
	}
}

func TestMissedCountsOverwrittenEvents(t *testing.T) {
	h, _ := testHub()
	publish(h, "before")
	r := h.Live()
	publish(h, make([]string, Kept+7)...)
	if list, _ := r.Next(make([]Event, 0, 2)); len(list) != 2 || list[0].Type != Gap {
		t.Fatalf("%+v", list)
	}
	if n := r.Missed(); n != 7 {
		t.Errorf("missed %d, want 7", n)
	}
	if n := r.Missed(); n != 0 {
		t.Errorf("asked again: %d, want 0", n)
	}
}

func TestIDsAreMicrosecondsAndGrowWhateverTheClockDoes(t *testing.T) {
	h, c := testHub()
	r := h.Live()
	c.Time = c.Add(time.Second)
	at := uint64(c.UnixMicro())
	publish(h, "a", "b") // in the same microsecond
	c.Time = c.Add(-time.Hour)
	publish(h, "c")
	c.Time = c.Add(2 * time.Hour)
	publish(h, "d")
	ids := want(t, r, "a", "b", "c", "d")
	if !slices.Equal(ids, []uint64{at, at + 1, at + 2, uint64(c.UnixMicro())}) {
		t.Errorf("IDs %v, from %d", ids, at)
	}
	h.now = func() time.Time { return time.Unix(-5, 0) }
	publish(h, "e")
	want(t, r, "e")
}

// The next process does not have this one's events, and its IDs are greater.
func TestIDsGrowAcrossRestarts(t *testing.T) {
	h, c := testHub()
	r := h.Live()
	publish(h, "a")
	before := want(t, r, "a")[0]
	c.Time = c.Add(time.Second)
	next := New(c.now)
	publish(next, "b")
	if ids := want(t, next.After(before), Gap, "b"); ids[0] <= before {
		t.Errorf("IDs %v after %d", ids, before)
	}
}

func TestEventsCarryTheirTime(t *testing.T) {
	h, c := testHub()
	r := h.Live()
	silent := int64(5012)
	h.Publish(Event{Type: Detached, Session: "s", Player: "p", Group: "g", Path: "/m", Reason: "silent", SilentMS: &silent})
	list, _ := r.Next(make([]Event, 0, 2))
	got, err := json.Marshal(list[0])
	if want := `{"type":"session.detached","time":"2026-05-01T12:00:00Z","session":"s","player":"p","group":"g","path":"/m","reason":"silent","silent_ms":5012,"away_ms":null}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s at %v", got, err, want, c.Time)
	}
}

func TestReaderIsWokenForEachEventItHasNotRead(t *testing.T) {
	h, _ := testHub()
	woken := func(r *Reader) bool {
		select {
		case <-r.Wake():
			return true
		default:
			return false
		}
	}
	r, other := h.After(0), h.Live()
	if !woken(r) {
		t.Error("not woken for the gap")
	}
	want(t, r, Gap)
	woken(other)
	publish(h, "a", "b", "c")
	if !woken(r) || woken(r) || !woken(other) {
		t.Error("an event wakes each reader once")
	}
	list, _ := r.Next(make([]Event, 0, 2))
	if len(list) != 2 || !woken(r) {
		t.Errorf("read %d; not woken for the rest", len(list))
	}
	other.Close()
	publish(h, "d")
	if woken(other) {
		t.Error("woken after its Close")
	}
}

func TestCloseEndsTheReadersOnceTheyHaveReadAll(t *testing.T) {
	h, _ := testHub()
	r := h.Live()
	publish(h, "a", "b", "c")
	h.Close()
	<-r.Wake()
	if list, open := r.Next(make([]Event, 0, 2)); len(list) != 2 || !open {
		t.Errorf("read %d, open %t; want 2 and more to come", len(list), open)
	}
	if list, open := r.Next(make([]Event, 0, 2)); len(list) != 1 || open {
		t.Errorf("read %d, open %t; want the last", len(list), open)
	}
	late := h.Live()
	if _, open := late.Next(nil); open {
		t.Error("a reader that comes after the Close is open")
	}
}

func TestPublishAllocatesNothingOnceTheRingIsFull(t *testing.T) {
	h, _ := testHub()
	defer h.Live().Close()
	publish(h, numbered(0, Kept)...)
	e := Event{Type: Created, Session: "s"}
	if n := testing.AllocsPerRun(1000, func() { h.Publish(e) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestConcurrentPublishersAndReaders(t *testing.T) {
	h := New(time.Now)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() { publish(h, numbered(w*1000, w*1000+1000)...) })
	}
	for range 4 {
		r := h.After(0)
		all.Go(func() {
			defer r.Close()
			last, n, buf := uint64(0), 0, make([]Event, 0, 8)
			for n < 4000 {
				<-r.Wake()
				list, _ := r.Next(buf)
				for _, e := range list {
					if e.ID <= last {
						t.Errorf("ID %d after %d", e.ID, last)
					}
					last = e.ID
					if e.Type != Gap {
						n++
					}
				}
			}
		})
	}
	all.Wait()
	if len(h.readers) != 0 {
		t.Errorf("%d readers left", len(h.readers))
	}
}

func TestNamesAreThoseOfTheInterface(t *testing.T) {
	got := strings.Join(Names(), " ")
	if want := "session.created session.started session.detached session.resumed session.superseded session.ended token.replayed buffer.overflowed session.upstream_lost session.upstream_back session.upstream_closed session.moved gap"; got != want {
		t.Errorf("names %s, want %s", got, want)
	}
}

func BenchmarkPublish(b *testing.B) {
	h := New(time.Now)
	for range 64 {
		h.Live()
	}
	for b.Loop() {
		h.Publish(Event{Type: Created, Session: "s"})
	}
}

// What an earlier process has published is not news to the readers of this one.
func TestReadersBeginAfterEventsOfEarlierProcess(t *testing.T) {
	now := time.UnixMicro(1000)
	h := New(func() time.Time { return now })
	r := h.Live()
	h.Continue([]Event{{ID: 2000, Type: Created}, {ID: 2001, Type: Ended}}, 1999)
	h.Publish(Event{Type: Detached})
	h.Publish(Event{Type: Resumed})
	list, _ := r.Next(make([]Event, 0, 10))
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprint(e.ID, " ", e.Type))
	}
	if want := []string{"2002 session.detached", "2003 session.resumed"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if list, _ := h.After(2001).Next(make([]Event, 0, 10)); len(list) != 2 || list[0].ID != 2002 {
		t.Errorf("after 2001: %+v", list)
	}
}

// An ID says where in the Log its event is: the next message, or the rest of its own.
func TestPlacesOfMessages(t *testing.T) {
	for _, test := range []struct{ i, n, number, skip int }{{0, 1, 8, 0}, {0, 3, 7, 1}, {1, 3, 7, 2}, {2, 3, 8, 0}, {MaxInMessage - 1, MaxInMessage, 8, 0}} {
		id := PlaceOf(7, test.i, test.n)
		if number, skip := NextPlace(id); number != uint64(test.number) || skip != test.skip || id <= PlaceOf(6, 0, 1) {
			t.Errorf("after event %d of %d in message 7: event %d of message %d, want %d of %d", test.i, test.n, skip, number, test.skip, test.number)
		}
	}
}

// What is not in a shared Hub is read from the Log by those who begin before it.
func TestReaderIsBehindASharedHub(t *testing.T) {
	at := func(number uint64) uint64 { return PlaceOf(number, 0, 1) }
	h := NewShared(at(9))
	for n := uint64(10); n < 13; n++ {
		h.Place(Event{ID: at(n), Session: fmt.Sprint(n)})
	}
	for after, behind := range map[uint64]bool{at(8): true, at(9): false, at(12): false, at(13): true} {
		r := h.After(after)
		if _, until, got := r.Behind(); got != behind || until != at(9) {
			t.Errorf("after %d: behind %v until %d, want %v until %d", after, got, until, behind, at(9))
		}
		r.Close()
	}
	r := h.After(at(7))
	r.Skip(at(8))
	if after, _, behind := r.Behind(); !behind || after != at(8) {
		t.Errorf("behind %v after %d, want true after %d", behind, after, at(8))
	}
	r.Skip(at(10))
	want(t, r, "11", "12")
	want(t, h.After(at(8)), Gap, "10", "11", "12") // it is not read
	want(t, h.After(at(13)), Gap, "10", "11", "12")
}
