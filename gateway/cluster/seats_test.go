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
		if _, err := b.Get(t.Context(), sessionOfA); !errors.Is(err, cluster.ErrNoSeat) {
			t.Fatalf("before it is written: %v", err)
		}
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
	e := clustertest.NewSeats()
	seat := newNode(t, e, nodeA).put(seatOf(nodeA, sessionOfA))
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
				t.Errorf("%s: %d, %v", id, revision, err)
			}
		})
	}
	wait.Wait()
	if got := newNode(t, e, nodeB).get(sessionOfA); len(winners) != 1 || got.Owner != winners[0] || got.Epoch != 1 {
		t.Errorf("%v have claimed it, and it is %s's in epoch %d", winners, got.Owner, got.Epoch)
	}
}

func TestWriteOnAConditionThatDoesNotHoldIsRefused(t *testing.T) {
	e := clustertest.NewSeats()
	a, b := newNode(t, e, nodeA), newNode(t, e, nodeB)
	old := a.put(seatOf(nodeA, sessionOfA))
	theirs := b.put(claimed(old, nodeB))
	for name, write := range map[string]func() error{
		"an old revision":             func() error { _, err := a.Put(t.Context(), old); return err },
		"a new record":                func() error { _, err := a.Put(t.Context(), seatOf(nodeA, sessionOfA)); return err },
		"a deletion":                  func() error { return a.Delete(t.Context(), sessionOfA, old.Revision) },
		"an update of what is not":    func() error { s := old; s.Session = anotherOfA; _, err := a.Put(t.Context(), s); return err },
		"a deletion of what is not":   func() error { return a.Delete(t.Context(), anotherOfA, old.Revision) },
		"a revision of years to come": func() error { s := old; s.Revision = 1 << 60; _, err := a.Put(t.Context(), s); return err },
	} {
		if err := write(); !errors.Is(err, cluster.ErrSeatTaken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := a.get(sessionOfA); got.Owner != nodeB || got.Revision != theirs.Revision {
		t.Errorf("%+v, want b's", got)
	}
	if err := b.Delete(t.Context(), sessionOfA, theirs.Revision); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Get(t.Context(), sessionOfA); !errors.Is(err, cluster.ErrNoSeat) {
		t.Errorf("after the deletion: %v", err)
	}
	if err := b.Delete(t.Context(), sessionOfA, 0); err != nil {
		t.Errorf("of a seat that was never written: %v", err)
	}
}

func yes() bool { return true }

// The engine has done what it was asked for, and its answer did not arrive.
func TestWriteWhoseAnswerIsLostIsFound(t *testing.T) {
	e := clustertest.NewSeats()
	a, b := newNode(t, e, nodeA), newNode(t, e, nodeB)
	a.link.Loses = yes
	seat := a.put(seatOf(nodeA, sessionOfA))
	seat.Epoch = 3
	seat = a.put(seat)
	if got := b.get(sessionOfA); got.Epoch != 3 || got.Revision != seat.Revision {
		t.Errorf("%+v, want revision %d", got, seat.Revision)
	}
}

// Two claims are alike, but for their random bytes: who lost must not take the other's for its own.
func TestLostAnswerDoesNotMakeAnothersWriteOnesOwn(t *testing.T) {
	e := clustertest.NewSeats()
	a, twin := newNode(t, e, nodeA), newNode(t, e, nodeA)
	a.link.Before, a.link.Loses = func() { twin.put(seatOf(nodeA, sessionOfA)) }, yes
	if _, err := a.Put(t.Context(), seatOf(nodeA, sessionOfA)); !errors.Is(err, cluster.ErrSeatTaken) {
		t.Errorf("%v, want that it was taken", err)
	}
}

// A write that is not there when its answer fails to come may be done later: nobody may say that it is lost.
func TestWriteThatMayStillComeIsNeitherDoneNorRefused(t *testing.T) {
	e := clustertest.NewSeats()
	a, b := newNode(t, e, nodeA), newNode(t, e, nodeB)
	seat := a.put(seatOf(nodeA, sessionOfA))
	b.link.Late = yes
	if _, err := b.Put(t.Context(), claimed(seat, nodeB)); err == nil || errors.Is(err, cluster.ErrSeatTaken) {
		t.Errorf("%v, want that it is unclear", err)
	}
	b.link.Land()
	if got := a.get(sessionOfA); got.Owner != nodeB {
		t.Errorf("%+v, want b's", got)
	}
}

func TestWriteThatComesTooLateWasTaken(t *testing.T) {
	e := clustertest.NewSeats()
	a, b, c := newNode(t, e, nodeA), newNode(t, e, nodeB), newNode(t, e, nodeC)
	seat := a.put(seatOf(nodeA, sessionOfA))
	b.link.Before, b.link.Late = func() { c.put(claimed(seat, nodeC)) }, yes
	if _, err := b.Put(t.Context(), claimed(seat, nodeB)); !errors.Is(err, cluster.ErrSeatTaken) {
		t.Errorf("%v, want that it was taken", err)
	}
	b.link.Land()
	if got := a.get(sessionOfA); got.Owner != nodeC {
		t.Errorf("%+v, want c's", got)
	}
}

// A leader that has just lost its place returns a record from before the revision that the writer knows.
func TestAnswerFromThePastProvesNothing(t *testing.T) {
	e := clustertest.NewSeats()
	a := newNode(t, e, nodeA)
	seat := a.put(seatOf(nodeA, sessionOfA))
	old := e.Records()[sessionOfA]
	seat = a.put(seat)
	a.link.Late = yes
	a.link.Answer = func(string, cluster.StoredSeat, error) (cluster.StoredSeat, error) { return old, nil }
	if _, err := a.Put(t.Context(), seat); err == nil || errors.Is(err, cluster.ErrSeatTaken) {
		t.Errorf("%v, want that it is unclear", err)
	}
}

func TestEngineThatIsAwayIsNoVerdict(t *testing.T) {
	e := clustertest.NewSeats()
	a := newNode(t, e, nodeA)
	seat := a.put(seatOf(nodeA, sessionOfA))
	e.SetAway(true)
	_, get := a.Get(t.Context(), sessionOfA)
	_, put := a.Put(t.Context(), seat)
	_, renew := a.Renew(t.Context(), seat)
	for name, err := range map[string]error{"get": get, "put": put, "renew": renew, "delete": a.Delete(t.Context(), sessionOfA, seat.Revision)} {
		if err == nil || errors.Is(err, cluster.ErrNoSeat) || errors.Is(err, cluster.ErrSeatTaken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e.SetAway(false)
	if got := a.get(sessionOfA); got.Revision != seat.Revision {
		t.Errorf("revision %d, want %d", got.Revision, seat.Revision)
	}
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
		stale := mine
		stale.Revision = 99 // from before the engine lost it
		revision, err := a.Renew(t.Context(), stale)
		got := b.get(sessionOfA)
		switch {
		case c.taken && (!errors.Is(err, cluster.ErrSeatTaken) || got.Owner != c.there.Owner || got.Epoch != c.there.Epoch || got.Ended != c.there.Ended):
			t.Errorf("%s: %v, and now %+v", name, err, got)
		case !c.taken && (err != nil || got.Owner != nodeA || got.Epoch != 5 || got.Ended != 0 || got.Revision != revision):
			t.Errorf("%s: %v, and now %+v", name, err, got)
		}
	}
}

// Its end is the owner's to write, over its own record.
func TestRenewWritesTheEnd(t *testing.T) {
	e := clustertest.NewSeats()
	a := newNode(t, e, nodeA)
	seat := a.put(seatOf(nodeA, sessionOfA))
	seat.Ended = 4404
	for range 2 {
		if _, err := a.Renew(t.Context(), seat); err != nil || a.get(sessionOfA).Ended != 4404 {
			t.Errorf("%v, %+v", err, a.get(sessionOfA))
		}
	}
}

func TestRenewStartsAgainAfterItWasOvertaken(t *testing.T) {
	e := clustertest.NewSeats()
	a, b := newNode(t, e, nodeA), newNode(t, e, nodeB)
	seat := a.put(seatOf(nodeA, sessionOfA))
	tries := 0
	write := func(f func(cluster.Seat) cluster.Seat) {
		tries++
		if _, err := b.Put(t.Context(), f(b.get(sessionOfA))); err != nil {
			t.Error(err)
		}
	}
	same := func(s cluster.Seat) cluster.Seat { return s }
	a.link.Before = func() {
		if tries < 2 {
			write(same) // the node's own, from elsewhere in it
		}
	}
	if _, err := a.Renew(t.Context(), seat); err != nil || tries != 2 {
		t.Errorf("%v after %d tries", err, tries)
	}
	a.link.Before = func() { write(func(s cluster.Seat) cluster.Seat { return claimed(s, nodeB) }) }
	if _, err := a.Renew(t.Context(), seat); !errors.Is(err, cluster.ErrSeatTaken) {
		t.Errorf("claimed meanwhile: %v", err)
	}
	seat = b.get(sessionOfA)
	a.link.Before = func() { write(same) }
	if _, err := a.Renew(t.Context(), seat); err == nil || errors.Is(err, cluster.ErrSeatTaken) {
		t.Errorf("written each time: %v", err)
	}
}

// A record that is sealed by a key which this node does not have may be a claim, or anybody's: it decides nothing.
func TestRenewRespectsWhatItCannotOpen(t *testing.T) {
	e := clustertest.NewSeats()
	a, b := newNode(t, e, nodeA, "old"), newNode(t, e, nodeB, "new", "old")
	seat := a.put(seatOf(nodeA, sessionOfA))
	b.put(claimed(seat, nodeB))
	if _, err := a.Renew(t.Context(), seat); err == nil || errors.Is(err, cluster.ErrSeatTaken) {
		t.Errorf("%v, want that it cannot be read", err)
	}
	if got := b.get(sessionOfA); got.Owner != nodeB {
		t.Errorf("%+v, want b's", got)
	}
	b = newNode(t, e, nodeB, "old")
	seat.Revision = e.Records()[sessionOfA].Revision
	b.put(claimed(seat, nodeB))
	changed := bytes.Clone(e.Records()[sessionOfA].Value)
	changed[len(changed)-1] ^= 1
	e.Set(sessionOfA, changed)
	if _, err := a.Renew(t.Context(), seat); err != nil || a.get(sessionOfA).Owner != nodeA {
		t.Errorf("over a changed record: %v", err)
	}
	for value, overwritten := range map[string]bool{"": true, "\x01": true, "\x01\xff": true, "{}": false, "\x02anything": false} {
		e.Set(sessionOfA, []byte(value))
		_, err := a.Renew(t.Context(), seat)
		if written := string(e.Records()[sessionOfA].Value) != value; written != overwritten || (err == nil) != overwritten || errors.Is(err, cluster.ErrSeatTaken) {
			t.Errorf("over %q: written %v, %v", value, written, err)
		}
	}
}

// After the engine was emptied, owners write their seats again, and claims go on.
func TestEmptiedEngineIsFilledAgain(t *testing.T) {
	e := clustertest.NewSeats()
	a, b := newNode(t, e, nodeA), newNode(t, e, nodeB)
	seat := a.put(seatOf(nodeA, sessionOfA))
	e.Empty()
	if _, err := a.Put(t.Context(), seat); !errors.Is(err, cluster.ErrSeatTaken) {
		t.Errorf("on the old revision: %v", err)
	}
	if _, err := a.Renew(t.Context(), seat); err != nil {
		t.Fatal(err)
	}
	b.put(claimed(b.get(sessionOfA), nodeB))
	if _, err := a.Renew(t.Context(), seat); !errors.Is(err, cluster.ErrSeatTaken) {
		t.Errorf("after a claim: %v", err)
	}
}

func TestSeatIsReadWithEachKeyThatIsLoaded(t *testing.T) {
	e := clustertest.NewSeats()
	a, b := newNode(t, e, nodeA, "old"), newNode(t, e, nodeB, "new", "old")
	seat := a.put(seatOf(nodeA, sessionOfA))
	if got := b.get(sessionOfA); !bytes.Equal(got.Body, seat.Body) {
		t.Errorf("%+v", got)
	}
	b.put(seatOf(nodeB, anotherOfA))
	if _, err := a.Get(t.Context(), anotherOfA); err == nil || errors.Is(err, cluster.ErrNoSeat) || !strings.Contains(err.Error(), "--token-key-file") {
		t.Errorf("without the key: %v", err)
	}
	a.keys = keyring{"old", "new"} // as a reload does
	if got := a.get(anotherOfA); got.Owner != nodeB {
		t.Errorf("%+v", got)
	}
	b.keys = keyring{"new"} // the rotation is over: what nobody has written since is lost
	if _, err := b.Get(t.Context(), sessionOfA); err == nil || errors.Is(err, cluster.ErrNoSeat) {
		t.Errorf("sealed by a key that was taken away: %v", err)
	}
	a.keys = nil
	if _, err := a.Put(t.Context(), seat); err == nil || !strings.Contains(err.Error(), "--token-key-file") {
		t.Errorf("without a key: %v", err)
	}
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

// Who can write to the engine cannot make a seat of his own: not move one, not change one.
func TestRecordCannotBeMovedOrChanged(t *testing.T) {
	e := clustertest.NewSeats()
	a := newNode(t, e, nodeA)
	seat := seatOf(nodeA, sessionOfA)
	seat.Epoch, seat.Ended, seat.Reason = 3, 4404, "over"
	a.put(seat)
	other := seatOf(nodeB, sessionOfA[:39]+"0")
	a.put(other)
	value := e.Records()[sessionOfA].Value
	refused := func(what, session string, value []byte) {
		e.Set(session, value)
		if got, err := a.Get(t.Context(), session); err == nil || errors.Is(err, cluster.ErrNoSeat) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
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
		if _, err := a.Get(t.Context(), session); !errors.Is(err, cluster.ErrNoSeat) {
			t.Errorf("get %q: %v", session, err)
		}
		if _, err := a.Put(t.Context(), seatOf(nodeA, session)); err == nil {
			t.Errorf("put %q", session)
		}
		if _, err := a.Renew(t.Context(), seatOf(nodeA, session)); err == nil {
			t.Errorf("renew %q", session)
		}
		if err := a.Delete(t.Context(), session, 1); err != nil {
			t.Errorf("delete %q: %v", session, err)
		}
	}
	if n := len(e.Records()); n != 0 {
		t.Errorf("%d records", n)
	}
}

func TestFormerOwnerIsToldOfAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a, b, c := newNode(t, e, nodeA), newNode(t, e, nodeB), newNode(t, e, nodeC)
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
		if want := []string{"a" + sessionOfA + "7"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		e.SetAway(true)
		b.Fence(nodeA, sessionOfA, 8) // must not block, or panic
	})
}

// A node that meets its id at another one draws a new id before it joins.
func TestClaimReachesTheIDThatStandsInTheSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		id, fenced := nodeC, ""
		link := e.Link()
		a := cluster.NewSeats(func() string { return id }, link, (&keyring{"key"}).derive, slog.New(slog.DiscardHandler))
		b := newNode(t, e, nodeB)
		a.OnFenced(func(session string, _ uint64) { fenced += session })
		id = nodeA
		if _, err := a.Put(t.Context(), seatOf(nodeA, sessionOfA)); err != nil {
			t.Fatal(err)
		}
		b.Fence(nodeC, anotherOfA, 1) // the other node's affair
		synctest.Wait()
		b.Fence(nodeA, sessionOfA, 1)
		synctest.Wait()
		if fenced != sessionOfA {
			t.Errorf("fenced %q", fenced)
		}
	})
}

// Only what the engine has confirmed is contact, from when it was begun.
func TestContactIsTheNewestWriteThatWasConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		if !a.Contact().IsZero() {
			t.Errorf("%v before any", a.Contact())
		}
		a.link.Before = func() { time.Sleep(time.Second) }
		began := time.Now()
		seat := a.put(seatOf(nodeA, sessionOfA))
		if !a.Contact().Equal(began) {
			t.Errorf("contact %v ago", time.Since(a.Contact()))
		}
		a.get(sessionOfA)
		a.link.SetCut(true)
		a.Put(t.Context(), seat)
		if !a.Contact().Equal(began) {
			t.Errorf("contact %v ago", time.Since(a.Contact()))
		}
	})
}

func TestListHasWhatANodeBeganOrOwns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := clustertest.NewSeats()
		a := newNode(t, e, nodeA)
		var want []string
		for i := range 40 {
			own, other := fmt.Sprintf("%s%032x", nodeA, i), fmt.Sprintf("%s%032x", nodeB, i)
			switch i % 4 {
			case 0: // it stays
				a.put(seatOf(nodeA, own))
				want = append(want, own)
			case 1: // claimed from it
				a.put(seatOf(nodeC, own))
				want = append(want, own)
			case 2: // claimed by it
				a.put(seatOf(nodeA, other))
				want = append(want, other)
			case 3:
				a.put(seatOf(nodeB, other))
				e.Set(own, []byte("malformed"))
			}
		}
		newNode(t, e, nodeC, "another key").put(seatOf(nodeA, anotherOfA))
		var got []string
		for s, err := range a.List(t.Context(), nodeA) {
			if err != nil || len(s.Body) == 0 || s.Revision == 0 {
				t.Fatalf("%+v, %v", s, err)
			}
			got = append(got, s.Session)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		for range a.List(t.Context(), nodeA) {
			break
		}
		e.SetAway(true)
		n := 0
		for s, err := range a.List(t.Context(), nodeA) {
			if n++; err == nil || s.Session != "" {
				t.Errorf("while the engine is away: %+v, %v", s, err)
			}
		}
		if n != 1 {
			t.Errorf("%d errors, want 1", n)
		}
	})
}
