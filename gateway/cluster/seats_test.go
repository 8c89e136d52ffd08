package cluster_test

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/internal/test/clustertest"
	"reseat/gateway/internal/test/wstest"
)

const (
	nodeA, nodeB, nodeC = "aaaaaaaa", "bbbbbbbb", "cccccccc"
	sessionOfA          = nodeA + "0123456789abcdef0123456789abcdef"
	anotherOfA          = nodeA + "fedcba9876543210fedcba9876543210"
)

// keyring is what tokens.Keys.Derive is for keys with these texts, the first of which signs.
type keyring []string

func (k *keyring) derive(purpose string, n int) (all [][]byte, err error) {
	for _, text := range *k {
		key, err := hkdf.Key(sha256.New, []byte(text), nil, purpose, n)
		if err != nil {
			return nil, err
		}
		all = append(all, key)
	}
	return all, nil
}

// A node of a test has Seats, and its own link to the engine.
type node struct {
	*cluster.Seats
	*testing.T
	link *clustertest.Link
	keys keyring
}

func newNode(t *testing.T, e *clustertest.Seats, id string, keys ...string) *node {
	n := &node{T: t, link: e.Link(), keys: keys}
	if keys == nil {
		n.keys = keyring{"key"}
	}
	n.Seats = cluster.NewSeats(func() string { return id }, n.link, n.keys.derive, slog.New(slog.DiscardHandler))
	return n
}

// begun returns the engine, and the nodes a and b; a has begun the session.
func begun(t *testing.T) (e *clustertest.Seats, a, b *node, seat cluster.Seat) {
	t.Helper()
	e = clustertest.NewSeats()
	a, b = newNode(t, e, nodeA), newNode(t, e, nodeB)
	return e, a, b, a.put(seatOf(nodeA, sessionOfA))
}

// put writes a seat, and returns it as it is then.
func (n *node) put(s cluster.Seat) cluster.Seat {
	n.Helper()
	revision, err := n.Put(n.Context(), s)
	if err != nil {
		n.Fatal(err)
	}
	s.Revision = revision
	return s
}

func (n *node) get(session string) cluster.Seat {
	n.Helper()
	s, err := n.Get(n.Context(), session)
	if err != nil {
		n.Fatal(err)
	}
	return s
}

// wantOwner checks whose the seat of sessionOfA is.
func (n *node) wantOwner(owner string) {
	n.Helper()
	wstest.Equal(n, "owner", n.get(sessionOfA).Owner, owner)
}

// errOf is the error of a call that returns something else, too.
func errOf[T any](_ T, err error) error { return err }

func (n *node) putErr(s cluster.Seat) error   { return errOf(n.Put(n.Context(), s)) }
func (n *node) renewErr(s cluster.Seat) error { return errOf(n.Renew(n.Context(), s)) }

// errUnclear stands for every error that is no verdict.
var errUnclear = errors.New("no verdict")

// wantErr checks an error, nil if none is expected.
func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	verdict := err == nil || errors.Is(err, cluster.ErrSeatTaken) || errors.Is(err, cluster.ErrNoSeat)
	if want == errUnclear && verdict || want != errUnclear && !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// seatOf returns a seat that a node has begun.
func seatOf(owner, session string) cluster.Seat {
	return cluster.Seat{Session: session, Owner: owner, Keep: 30 * time.Second, Body: []byte("what a successor needs")}
}

// claimed returns a seat as another node claims it.
func claimed(s cluster.Seat, by string) cluster.Seat {
	s.Owner, s.Epoch = by, s.Epoch+1
	return s
}

func TestSeatIsReadAsItWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a, b := newNode(t, e, nodeA), newNode(t, e, nodeB)
		wantErr(t, "before it is written", errOf(b.Get(t.Context(), sessionOfA)), cluster.ErrNoSeat)
		time.Sleep(time.Second)
		want := a.put(cluster.Seat{
			Session: sessionOfA, Owner: nodeA, Epoch: 7, Handoff: true, Ended: 4404, Reason: "grace period over", Keep: 90 * time.Second, Body: []byte("body"),
			Written: time.Unix(1, 0), // not the writer's to say
		})
		want.Written = time.Now()
		time.Sleep(time.Second)
		if got := b.get(sessionOfA); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		want.Body, want.Handoff, want.Ended, want.Reason = nil, false, 0, ""
		want = b.put(want)
		want.Written = time.Now()
		if got := a.get(sessionOfA); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// Those who read a seat at the same time write it on the same condition.
func TestOneOfTwelveRivalsClaimsASeat(t *testing.T) {
	e, _, b, seat := begun(t)
	var mu sync.Mutex
	var winners []string
	var wait sync.WaitGroup
	for i := range 12 {
		id := fmt.Sprintf("%08x", i)
		n := newNode(t, e, id)
		wait.Go(func() {
			revision, err := n.Put(t.Context(), claimed(seat, id))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && revision > seat.Revision:
				winners = append(winners, id)
			case !errors.Is(err, cluster.ErrSeatTaken):
				t.Errorf("%s: revision %d, %v", id, revision, err)
			}
		})
	}
	wait.Wait()
	if got := b.get(sessionOfA); len(winners) != 1 || got.Owner != winners[0] || got.Epoch != 1 {
		t.Errorf("%v have claimed it, and it is %s's in epoch %d", winners, got.Owner, got.Epoch)
	}
}

func TestWriteOnAConditionThatDoesNotHoldIsRefused(t *testing.T) {
	_, a, b, old := begun(t)
	theirs := b.put(claimed(old, nodeB))
	unknown, later := old, old
	unknown.Session, later.Revision = anotherOfA, 1<<60
	for name, err := range map[string]error{
		"an old revision":             a.putErr(old),
		"a new record":                a.putErr(seatOf(nodeA, sessionOfA)),
		"a deletion":                  a.Delete(t.Context(), sessionOfA, old.Revision),
		"an update of what is not":    a.putErr(unknown),
		"a deletion of what is not":   a.Delete(t.Context(), anotherOfA, old.Revision),
		"a revision of years to come": a.putErr(later),
	} {
		wantErr(t, name, err, cluster.ErrSeatTaken)
	}
	a.wantOwner(nodeB)
	wstest.Equal(t, "revision", a.get(sessionOfA).Revision, theirs.Revision)
	wantErr(t, "of its own seat", b.Delete(t.Context(), sessionOfA, theirs.Revision), nil)
	wantErr(t, "after the deletion", errOf(a.Get(t.Context(), sessionOfA)), cluster.ErrNoSeat)
	wantErr(t, "of a seat that was never written", b.Delete(t.Context(), sessionOfA, 0), nil)
}

func yes() bool { return true }

// Two claims are alike, but for their random bytes: who lost must not take the other's for its own.
func TestLostAnswerDoesNotMakeAnothersWriteOnesOwn(t *testing.T) {
	e := clustertest.NewSeats()
	a, twin := newNode(t, e, nodeA), newNode(t, e, nodeA)
	a.link.SetBefore(func() { twin.put(seatOf(nodeA, sessionOfA)) })
	a.link.Loses = yes
	wantErr(t, "of two alike", a.putErr(seatOf(nodeA, sessionOfA)), cluster.ErrSeatTaken)
}

// A write that is not there when its answer fails to come may be done later: nobody may say that it is lost.
func TestWriteThatMayStillComeIsNeitherDoneNorRefused(t *testing.T) {
	_, a, b, seat := begun(t)
	b.link.Late = yes
	wantErr(t, "a claim", b.putErr(claimed(seat, nodeB)), errUnclear)
	b.link.Land()
	a.wantOwner(nodeB)
}

func TestEngineThatIsAwayIsNoVerdict(t *testing.T) {
	e, a, _, seat := begun(t)
	e.SetAway(true)
	for name, err := range map[string]error{
		"get": errOf(a.Get(t.Context(), sessionOfA)), "put": a.putErr(seat), "renew": a.renewErr(seat), "delete": a.Delete(t.Context(), sessionOfA, seat.Revision),
	} {
		wantErr(t, name, err, errUnclear)
	}
	e.SetAway(false)
	wstest.Equal(t, "revision", a.get(sessionOfA).Revision, seat.Revision)
}

func TestRenewWritesUnlessALaterOwnerIsThere(t *testing.T) {
	mine := seatOf(nodeA, sessionOfA)
	mine.Epoch = 5
	with := func(owner string, epoch uint64, ended int) *cluster.Seat {
		s := mine
		s.Owner, s.Epoch, s.Ended = owner, epoch, ended
		return &s
	}
	for name, c := range map[string]struct {
		there *cluster.Seat
		taken bool
	}{
		"no record":                        {nil, false},
		"its own":                          {with(nodeA, 5, 0), false},
		"its own of an earlier epoch":      {with(nodeA, 4, 0), false},
		"its own of an earlier epoch, end": {with(nodeA, 4, 4404), false},
		"another's of an earlier epoch":    {with(nodeB, 4, 0), false},
		"its own, ended":                   {with(nodeA, 5, 4404), true},
		"another's of this epoch":          {with(nodeB, 5, 0), true},
		"another's of a later epoch":       {with(nodeB, 6, 0), true},
		"its own of a later epoch":         {with(nodeA, 6, 0), true},
	} {
		e := clustertest.NewSeats()
		a, b := newNode(t, e, nodeA), newNode(t, e, nodeB)
		if c.there != nil {
			b.put(*c.there)
		}
		stale, want, wanted := mine, &mine, error(nil)
		stale.Revision = 99 // from before the engine lost it
		if c.taken {
			want, wanted = c.there, cluster.ErrSeatTaken
		}
		revision, err := a.Renew(t.Context(), stale)
		wantErr(t, name, err, wanted)
		got := b.get(sessionOfA)
		if got.Owner != want.Owner || got.Epoch != want.Epoch || got.Ended != want.Ended || !c.taken && got.Revision != revision {
			t.Errorf("%s: now %+v, want %+v", name, got, *want)
		}
	}
}

// Its end is the owner's to write, over its own record.
func TestRenewWritesTheEnd(t *testing.T) {
	_, a, _, seat := begun(t)
	seat.Ended = 4404
	for range 2 {
		wantErr(t, "renew", a.renewErr(seat), nil)
		wstest.Equal(t, "ended", a.get(sessionOfA).Ended, 4404)
	}
}

func TestRenewStartsAgainAfterItWasOvertaken(t *testing.T) {
	_, a, b, seat := begun(t)
	tries := 0
	write := func(f func(cluster.Seat) cluster.Seat) {
		tries++
		wantErr(t, "the rival's write", b.putErr(f(b.get(sessionOfA))), nil)
	}
	same := func(s cluster.Seat) cluster.Seat { return s }
	a.link.SetBefore(func() {
		if tries < 2 {
			write(same) // the node's own, from elsewhere in it
		}
	})
	wantErr(t, "overtaken twice", a.renewErr(seat), nil)
	wstest.Equal(t, "tries", tries, 2)
	a.link.SetBefore(func() { write(func(s cluster.Seat) cluster.Seat { return claimed(s, nodeB) }) })
	wantErr(t, "claimed meanwhile", a.renewErr(seat), cluster.ErrSeatTaken)
	seat = b.get(sessionOfA)
	a.link.SetBefore(func() { write(same) })
	wantErr(t, "written each time", a.renewErr(seat), errUnclear)
}

// A record that is sealed by a key which this node does not have may be a claim, or anybody's: it decides nothing.
func TestRenewRespectsWhatItCannotOpen(t *testing.T) {
	e := clustertest.NewSeats()
	a, b := newNode(t, e, nodeA, "old"), newNode(t, e, nodeB, "new", "old")
	seat := a.put(seatOf(nodeA, sessionOfA))
	b.put(claimed(seat, nodeB))
	wantErr(t, "over a record of a key it does not have", a.renewErr(seat), errUnclear)
	b.wantOwner(nodeB)
	b = newNode(t, e, nodeB, "old")
	seat.Revision = e.Records()[sessionOfA].Revision
	b.put(claimed(seat, nodeB))
	changed := bytes.Clone(e.Records()[sessionOfA].Value)
	changed[len(changed)-1] ^= 1
	e.Set(sessionOfA, changed)
	wantErr(t, "over a changed record", a.renewErr(seat), nil)
	a.wantOwner(nodeA)
	for value, want := range map[string]error{"": nil, "\x01": nil, "\x01\xff": nil, "{}": errUnclear, "\x02anything": errUnclear} {
		e.Set(sessionOfA, []byte(value))
		wantErr(t, fmt.Sprintf("over %q", value), a.renewErr(seat), want)
		if written := string(e.Records()[sessionOfA].Value) != value; written != (want == nil) {
			t.Errorf("over %q: written %v", value, written)
		}
	}
}

func TestSeatIsReadWithEachKeyThatIsLoaded(t *testing.T) {
	e := clustertest.NewSeats()
	a, b := newNode(t, e, nodeA, "old"), newNode(t, e, nodeB, "new", "old")
	seat := a.put(seatOf(nodeA, sessionOfA))
	wstest.Equal(t, "body", string(b.get(sessionOfA).Body), string(seat.Body))
	b.put(seatOf(nodeB, anotherOfA))
	missing := func(what string, err error) {
		if wantErr(t, what, err, errUnclear); !strings.Contains(err.Error(), "--token-key-file") {
			t.Errorf("%s: %v, want one that names the flag", what, err)
		}
	}
	missing("without the key", errOf(a.Get(t.Context(), anotherOfA)))
	a.keys = keyring{"old", "new"} // as a reload does
	wstest.Equal(t, "owner", a.get(anotherOfA).Owner, nodeB)
	b.keys = keyring{"new"} // the rotation is over: what nobody has written since is lost
	wantErr(t, "sealed by a key that was taken away", errOf(b.Get(t.Context(), sessionOfA)), errUnclear)
	a.keys = nil
	missing("without a key", a.putErr(seat))
}

func TestEngineLearnsOfASeatOnlyWhoseItIs(t *testing.T) {
	e := clustertest.NewSeats()
	a := newNode(t, e, nodeA)
	seat := seatOf(nodeA, sessionOfA)
	seat.Reason, seat.Body = "the reason", []byte("the player, the cookie")
	seat = a.put(seat)
	first := e.Records()[sessionOfA].Value
	for _, secret := range []string{"reason", "player", "cookie"} {
		if bytes.Contains(first, []byte(secret)) {
			t.Errorf("the record has %q in clear", secret)
		}
	}
	a.put(seat)
	if second := e.Records()[sessionOfA].Value; bytes.Equal(first, second) {
		t.Error("two records of the same content are equal")
	}
}

// Who can write to the engine cannot make a seat of their own: not move one, not change one.
func TestRecordCannotBeMovedOrChanged(t *testing.T) {
	e := clustertest.NewSeats()
	a := newNode(t, e, nodeA)
	seat := seatOf(nodeA, sessionOfA)
	seat.Epoch, seat.Ended, seat.Reason = 3, 4404, "over"
	a.put(seat)
	other := a.put(seatOf(nodeB, sessionOfA[:39]+"0"))
	value := e.Records()[sessionOfA].Value
	refused := func(what, session string, value []byte) {
		e.Set(session, value)
		wantErr(t, what, errOf(a.Get(t.Context(), session)), errUnclear)
	}
	refused("moved to another session", other.Session, value)
	refused("with another owner", sessionOfA, bytes.Replace(value, []byte(nodeA), []byte(nodeB), 1))
	for i := range value {
		for bit := range 8 {
			changed := slices.Clone(value)
			changed[i] ^= 1 << bit
			refused(fmt.Sprintf("bit %d of byte %d changed", bit, i), sessionOfA, changed)
		}
		refused(fmt.Sprintf("cut to %d bytes", i), sessionOfA, value[:i])
	}
	refused("with more behind it", sessionOfA, append(slices.Clone(value), 0))
	e.Set(sessionOfA, value)
	a.get(sessionOfA)
}

// Session ids are keys of the engine, where dots and stars mean something.
func TestOnlyHexDigitsAreKeys(t *testing.T) {
	e := clustertest.NewSeats()
	a := newNode(t, e, nodeA)
	a.link.Answer = func(session string, s cluster.StoredSeat, err error) (cluster.StoredSeat, error) {
		t.Errorf("the engine was asked for %q", session)
		return s, err
	}
	for _, session := range []string{"", "*", ">", "a.b", "ABC", "a b", sessionOfA + "\n", "é"} {
		wantErr(t, "get "+session, errOf(a.Get(t.Context(), session)), cluster.ErrNoSeat)
		if a.putErr(seatOf(nodeA, session)) == nil || a.renewErr(seatOf(nodeA, session)) == nil {
			t.Errorf("%q was written", session)
		}
		wantErr(t, "delete "+session, a.Delete(t.Context(), session, 1), nil)
	}
	wstest.Equal(t, "records", len(e.Records()), 0)
}

func TestFormerOwnerIsToldOfAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a, b, _ := begun(t)
		c := newNode(t, e, nodeC)
		var got []string
		note := func(node string) func(string, uint64) {
			return func(session string, epoch uint64) { got = append(got, fmt.Sprint(node, session, epoch)) }
		}
		a.OnFenced(note("a"))
		c.OnFenced(note("c"))
		a.link.Publish("n."+nodeA, []byte(`{"other":1}`))
		b.link.Publish("n."+nodeA, []byte(`{"other":1}`)) // of a later version
		b.link.Publish("n."+nodeA, []byte(`no JSON`))
		b.Fence(nodeA, sessionOfA, 7)
		synctest.Wait()
		wstest.Equal(t, "fenced", strings.Join(got, ", "), "a"+sessionOfA+"7")
		e.SetAway(true)
		b.Fence(nodeA, sessionOfA, 8) // must not block, or panic
	})
}

// A node that meets its id at another one draws a new id before it joins.
func TestClaimReachesTheIDThatStandsInTheSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		id, fenced := nodeC, ""
		a := cluster.NewSeats(func() string { return id }, e.Link(), (&keyring{"key"}).derive, slog.New(slog.DiscardHandler))
		b := newNode(t, e, nodeB)
		a.OnFenced(func(session string, _ uint64) { fenced += session })
		id = nodeA
		wantErr(t, "put", errOf(a.Put(t.Context(), seatOf(nodeA, sessionOfA))), nil)
		b.Fence(nodeC, anotherOfA, 1) // the other node's affair
		synctest.Wait()
		b.Fence(nodeA, sessionOfA, 1)
		synctest.Wait()
		wstest.Equal(t, "fenced", fenced, sessionOfA)
	})
}

// The engine has done what it was asked for, and its answer did not arrive.
func TestWriteWhoseAnswerIsLostIsFound(t *testing.T) {
	_, a, b, seat := begun(t)
	a.link.Loses = yes
	seat.Epoch = 3
	seat = a.put(seat)
	got := b.get(sessionOfA)
	wstest.Equal(t, "epoch", got.Epoch, 3)
	wstest.Equal(t, "revision", got.Revision, seat.Revision)
	other := a.put(seatOf(nodeA, anotherOfA))
	wstest.Equal(t, "revision of a new seat", b.get(anotherOfA).Revision, other.Revision)
}

// A leader that has just lost its place returns a record from before the revision that the writer knows.
func TestAnswerFromThePastProvesNothing(t *testing.T) {
	e, a, _, seat := begun(t)
	old := e.Records()[sessionOfA]
	seat = a.put(seat)
	a.link.Late = yes
	a.link.Answer = func(string, cluster.StoredSeat, error) (cluster.StoredSeat, error) { return old, nil }
	wantErr(t, "a write", a.putErr(seat), errUnclear)
}
