package registry

import (
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"testing"
	"time"

	"reseat/gateway/internal/test/fields"
	"reseat/gateway/newest"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/tlv"
	"reseat/gateway/transport"
	"reseat/tokens"
	"reseat/upstream"
)

// notInRecord names the fields of a Record that its State omits, and why.
var notInRecord = map[string]string{
	"clock":    "the new process has its own",
	"Target":   "by its URL; the options are those of the new process's settings",
	"player":   "of Player, and the realm of the new process's settings",
	"won":      "always true: a session that is connecting is not moved",
	"current":  "by StateTerms: TestStateTermsCoverSettingsOfCore",
	"live":     "the driver: Adopt",
	"memo":     "a cache",
	"layer":    "the connections are new",
	"pongs":    "who waits for it stays with its process",
	"breakOff": "nil after the first dial",
	"held":     "made anew when it is needed",
	"pending":  "what Do queues while connecting",
	"welcomed": "only while the first client is answered: a visit, which a freeze awaits",
}

// notInOutcome does so for an outcome.
var notInOutcome = map[string]string{
	"tokens":  "by Issued and Confirmed",
	"info.ID": "newTombstone keeps it beside",
}

// restored is what a new process makes of e's state.
func restored(t *testing.T, e *Record) (*Record, *State) {
	t.Helper()
	s, err := ReadState(e.AppendState(nil, upstream.Target{URL: &url.URL{Scheme: "ws", Host: "route.example"}}))
	if err != nil {
		t.Fatal(err)
	}
	clock := transport.NewClock()
	r := New(clock, Limits{})
	t.Cleanup(r.Close)
	return r.Restore(s, e.Target, s.Terms.Apply(&Terms{}), e.player.realm, replay.NewStore(1<<20, nil)), s
}

func filledRecord(t *testing.T) *Record {
	t.Helper()
	e := new(Record)
	fields.Fill(t, e, notInRecord)
	e.SetTerms(&Terms{})
	e.Target.URL = &url.URL{Scheme: "ws", Host: "game.example:9000"}
	e.player.realm, e.player.name = "realm", e.Player
	e.first.Epoch = 0 // each dial has its own, a kept handshake none: partToKeep
	return e
}

// A forgotten field would be lost in an upgrade.
func TestStateHasEveryFieldOfRecordOrNamesReason(t *testing.T) {
	e := filledRecord(t)
	got, s := restored(t, e)
	fields.Same(t, e, got, notInRecord)
	if got.player != e.player || !got.won {
		t.Errorf("player %+v, won %v", got.player, got.won)
	}
	if s.Target != "ws://game.example:9000" {
		t.Errorf("target %q", s.Target)
	}
	s, err := ReadState(e.AppendState(nil, e.Target)) // the upstream of the route is not named
	if err != nil || s.Target != "" {
		t.Errorf("target %q, %v", s.Target, err)
	}
}

func TestDataThatIsEmptyIsNotUnset(t *testing.T) {
	for _, want := range [][]byte{nil, {}, []byte("x")} {
		e := filledRecord(t)
		e.data = newUserData(want, 0)
		restored, _ := restored(t, e)
		if got, _ := restored.Data(); (got == nil) != (want == nil) || string(got) != string(want) {
			t.Errorf("%#v, want %#v", got, want)
		}
	}
}

// The terms that a core has been made with, and those that were changed for one session, must
// stay: the route's may differ in the new process.
func TestStateTermsCoverSettingsOfCore(t *testing.T) {
	grace := 7 * time.Second
	e := filledRecord(t)
	terms := &Terms{Group: "red"}
	terms.Grace, terms.GraceBeforeStart, terms.Overflow = 3*time.Second, &grace, session.Overflow(1)
	terms.PlainResume, terms.Hard, terms.MessageLog = true, true, session.MessageLog{On: true, Prefix: 9}
	terms.Redial, terms.RedialFor = true, time.Minute
	terms.Newest, _ = newest.Parse([]string{"a=A", "b=json:/b"})
	e.SetTerms(terms)
	got, _ := restored(t, e)
	if !reflect.DeepEqual(got.Terms(), terms) {
		t.Errorf("%+v, want %+v", got.Terms(), terms)
	}
	if k := reflect.TypeFor[StateTerms]().NumField(); k != 10 {
		t.Errorf("StateTerms has %d fields, and this test knows 10", k)
	}
	terms = &Terms{}
	e.SetTerms(terms)
	if got, _ := restored(t, e); !reflect.DeepEqual(got.Terms(), terms) {
		t.Errorf("%+v, want %+v: a nil differs from zero", got.Terms(), terms)
	}
}

func TestStateHasEveryFieldOfTombstoneOrNamesReason(t *testing.T) {
	want, omit := new(tombstoneState), map[string]string{"outcome.tokens": "by Issued and Confirmed", "expires": "by the time that is left"}
	fields.Fill(t, want, omit)
	want.tokens.Restore(9, 7)
	want.expires = time.Now().Add(time.Hour)
	got := new(tombstoneState)
	if err := tlv.Read(tlv.Write(want.walk), got.walk); err != nil {
		t.Fatal(err)
	}
	fields.Same(t, want, got, omit)
	if got.tokens != want.tokens {
		t.Errorf("generations %+v, want %+v", got.tokens, want.tokens)
	}
	if d := want.expires.Sub(got.expires).Abs(); d > time.Minute { // the wall clock is asked twice
		t.Errorf("it expires at %v, want %v", got.expires, want.expires)
	}
}

func TestTombstoneKeepsEveryFieldOrNamesReason(t *testing.T) {
	want := new(outcome)
	fields.Fill(t, want, notInOutcome)
	want.info.ID = "an id"
	want.tokens.Restore(9, 7)
	stone := newTombstone(want, history{}, time.Now())
	got := stone.outcome()
	fields.Same(t, want, got, nil)
	if stone.id() != want.info.ID || got.tokens != want.tokens {
		t.Errorf("id %q, generations %+v, want %q and %+v", stone.id(), got.tokens, want.info.ID, want.tokens)
	}
}

// A process of an older version does not say whether a session was durable.
func TestOlderTombstoneIsNotDurable(t *testing.T) {
	got := new(tombstoneState)
	if err := tlv.Read(tlv.Write((&tombstoneState{outcome: outcome{info: Snapshot{ID: "s"}}}).walk), got.walk); err != nil {
		t.Fatal(err)
	}
	if got.info.Durable != NotDurable {
		t.Errorf("durable %q", got.info.Durable)
	}
}

// Numbers are cursors of lists: two sessions must not have the same.
func TestRestoredSessionsHaveDifferentNumbers(t *testing.T) {
	e := filledRecord(t)
	b := e.AppendState(nil, e.Target)
	r := New(transport.NewClock(), Limits{})
	defer r.Close()
	seen := map[uint64]bool{}
	for range 3 {
		s, err := ReadState(b)
		if err != nil {
			t.Fatal(err)
		}
		s.ID = fmt.Sprint(s.ID, len(seen))
		got := r.Restore(s, e.Target, &Terms{}, nil, replay.NewStore(1<<20, nil))
		if seen[got.seq] || got.seq > r.Totals().Seq {
			t.Errorf("number %d of %v, newest %d", got.seq, seen, r.Totals().Seq)
		}
		seen[got.seq] = true
	}
	if !seen[e.seq] {
		t.Errorf("the first one has lost its number %d", e.seq)
	}
}

// Resumes are refused while tombstones are sent: under the race detector.
func TestTombstonesAreReadWhileSent(t *testing.T) {
	r := New(transport.NewClock(), Limits{})
	defer r.Close()
	r.mu.Lock()
	r.buryLocked(newTombstone(&outcome{info: Snapshot{ID: "a"}}, history{}, time.Now().Add(time.Hour)))
	r.mu.Unlock()
	sent := make(chan int)
	go func() {
		list, _ := r.Tombstones(0, 1)
		sent <- len(list)
	}()
	if _, ref := r.Refusal(tokens.Claims{Session: "a", Gen: 1}); !ref.Superseded {
		t.Errorf("%+v", ref)
	}
	if n := <-sent; n != 1 {
		t.Errorf("%d sent", n)
	}
}

func TestTombstonesAreSentOnceEach(t *testing.T) {
	r := New(transport.NewClock(), Limits{})
	defer r.Close()
	bury := func(id string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.buryLocked(newTombstone(&outcome{info: Snapshot{ID: id, seq: 5}}, history{list: []Moment{{Type: "x"}}, left: 3}, time.Now().Add(time.Hour)))
	}
	next := New(transport.NewClock(), Limits{})
	defer next.Close()
	var last uint64
	for round, want := range []int{0, 3, 1, 0} {
		for i := range want {
			bury(fmt.Sprint(round, "-", i))
		}
		for got := 0; ; {
			list, after := r.Tombstones(last, 2)
			if last = after; len(list) == 0 {
				if got != want {
					t.Errorf("round %d: %d, want %d", round, got, want)
				}
				break
			}
			got += len(list)
			for _, b := range list {
				if _, err := next.RestoreTombstone(b); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if moments, left, ok := next.History("1-2"); !ok || left != 3 || len(moments) != 1 || len(next.ended.byID) != 4 {
		t.Errorf("%v, %d, %v; %d remembered, want 4", moments, left, ok, len(next.ended.byID))
	}
}

// Input from a socket may be truncated anywhere, or come from another program.
func FuzzReadState(f *testing.F) {
	e := NewRecord(transport.NewClock(), Spec{ID: "s", Route: "/*", Peer: netip.MustParseAddr("192.0.2.1"), Terms: &Terms{}, Target: upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example"}}})
	e.AppendMoment(Moment{Type: "session.created"})
	f.Add(e.AppendState(nil, e.Target))
	f.Add(tlv.Write((&tombstoneState{outcome: outcome{info: Snapshot{ID: "s"}}}).walk))
	f.Add([]byte{})
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ReadState(b); err == nil {
			r := New(transport.NewClock(), Limits{})
			defer r.Close()
			e := r.Restore(s, upstream.Target{URL: &url.URL{}}, s.Terms.Apply(&Terms{}), nil, replay.NewStore(1<<20, nil))
			again, err := ReadState(e.AppendState(nil, e.Target))
			if err != nil || again.ID != s.ID || again.Terms.Grace != s.Terms.Grace || !reflect.DeepEqual(again.past, s.past) {
				t.Errorf("%+v, %v, want %+v", again, err, s)
			}
		}
		r := New(transport.NewClock(), Limits{})
		defer r.Close()
		r.RestoreTombstone(b)
	})
}
