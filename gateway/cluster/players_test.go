package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
)

// A fakeStore is an engine in memory.
type fakeStore struct {
	mu      sync.Mutex
	away    bool
	records map[string][]byte
	at      map[string]uint64
	last    uint64
	// before, if set, runs before each write: another node's may come first.
	before func()
}

var errAway = errors.New("no responders")

func newFakeStore() *fakeStore {
	return &fakeStore{records: make(map[string][]byte), at: make(map[string]uint64)}
}

func (s *fakeStore) GetPlayer(_ context.Context, key string) ([]byte, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, 0, errAway
	}
	if s.at[key] == 0 {
		return nil, 0, ErrNoRecord
	}
	return s.records[key], s.at[key], nil
}

func (s *fakeStore) PutPlayer(_ context.Context, key string, value []byte, revision uint64) (uint64, error) {
	s.mu.Lock()
	before := s.before
	s.before = nil
	s.mu.Unlock()
	if before != nil {
		before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.away:
		return 0, errAway
	case s.at[key] != revision:
		return 0, ErrOvertaken
	}
	s.last++
	s.records[key], s.at[key] = value, s.last
	return s.last, nil
}

func (s *fakeStore) DeletePlayer(_ context.Context, key string, revision uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at[key] == revision {
		delete(s.records, key)
		delete(s.at, key)
	}
	return nil
}

// A table is where nodes of a test have their sessions.
type table struct {
	mu      sync.Mutex
	ended   map[string]bool // sessions that were superseded
	answers map[string]bool
}

func (n *table) Supersede(node, session string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended[node+"/"+session] = true
}

func (n *table) Answers(_ context.Context, node, session string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.answers[node+"/"+session]
}

var ada = Player{Name: "ada"}

// What Hold is given for --duplicate takeover and reject.
const newestWins, oldestWins = false, true

// newPair returns the Players of two nodes, a and b.
func newPair() (a, b *Players, s *fakeStore, n *table) {
	s, n = newFakeStore(), &table{ended: make(map[string]bool), answers: make(map[string]bool)}
	quiet := slog.New(slog.DiscardHandler)
	self := func(id string) func() string { return func() string { return id } }
	return NewPlayers(self("a"), s, n, derivedOf("k"), quiet), NewPlayers(self("b"), s, n, derivedOf("k"), quiet), s, n
}

// inPair runs f in a bubble of synctest with the Players of two nodes.
func inPair(t *testing.T, f func(t *testing.T, a, b *Players, s *fakeStore, n *table)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b, s, n := newPair()
		f(t, a, b, s, n)
	})
}

// wantEnded checks which sessions were superseded.
func (n *table) wantEnded(t *testing.T, want ...string) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(n.ended)); !slices.Equal(got, want) {
		t.Errorf("ended %v, want %v", got, want)
	}
}

// holds has a node hold a session for ada.
func holds(t *testing.T, p *Players, session string, oldest bool, want bool) {
	t.Helper()
	wstest.Equal(t, session+" is held", p.Hold(t.Context(), ada, session, oldest), want)
}

func TestNewerSessionAtAnotherNodeEndsTheOlderOne(t *testing.T) {
	inPair(t, func(t *testing.T, a, b *Players, _ *fakeStore, n *table) {
		holds(t, a, "s1", newestWins, true)
		holds(t, b, "s2", newestWins, true)
		n.wantEnded(t, "a/s1")
		a.Release(ada, "s1")
		synctest.Wait() // its end must not delete b's record
		holds(t, a, "s3", newestWins, true)
		n.wantEnded(t, "a/s1", "b/s2")
	})
}

func TestSecondSessionIsRefusedWhileTheFirstClientAnswers(t *testing.T) {
	inPair(t, func(t *testing.T, a, b *Players, _ *fakeStore, n *table) {
		holds(t, a, "s1", oldestWins, true)
		n.answers["a/s1"] = true
		holds(t, b, "s2", oldestWins, false)
		n.answers["a/s1"] = false
		holds(t, b, "s2", oldestWins, true)
		n.wantEnded(t, "a/s1")
	})
}

func TestEndedSessionLeavesNoRecord(t *testing.T) {
	inPair(t, func(t *testing.T, a, _ *Players, s *fakeStore, _ *table) {
		holds(t, a, "s1", newestWins, true)
		holds(t, a, "s2", newestWins, true) // a newer one of the same node
		a.Release(ada, "s1")
		synctest.Wait()
		wstest.Equal(t, "records, of s2", len(s.records), 1)
		a.Release(ada, "s2")
		synctest.Wait()
		wstest.Equal(t, "records", len(s.records), 0)
		s.before = func() {
			a.Release(ada, "s3")
			synctest.Wait()
		} // it ends while it begins
		a.Hold(t.Context(), ada, "s3", newestWins)
		wstest.Equal(t, "records", len(s.records), 0)
	})
}

// Two sessions of a player begin at one node, which ends the older one itself. That one's slower write
// must not hide the newer one from other nodes.
func TestOlderSessionDoesNotHideTheNewerOne(t *testing.T) {
	inPair(t, func(t *testing.T, a, b *Players, s *fakeStore, n *table) {
		s.before = func() { a.Hold(t.Context(), ada, "s2", newestWins) }
		a.Hold(t.Context(), ada, "s1", newestWins)
		a.Release(ada, "s1")
		synctest.Wait()
		b.Hold(t.Context(), ada, "s3", newestWins)
		n.wantEnded(t, "a/s2")
	})
}

// The record of a node that was lost stays. It ends nobody's session. Nor does that of a session of the node itself,
// which is older than one that began unchecked.
func TestOlderRecordEndsNoSession(t *testing.T) {
	for _, own := range []bool{false, true} {
		inPair(t, func(t *testing.T, a, b *Players, s *fakeStore, n *table) {
			if own {
				b = a
				n.answers["a/s1"] = true
			}
			holds(t, a, "s1", oldestWins, true)
			time.Sleep(time.Second)
			s.away = true
			b.Hold(t.Context(), ada, "s2", oldestWins) // s1 did not answer this node
			s.away = false
			b.Announce(t.Context(), func(session string) { t.Errorf("%s was ended", session) })
			if own {
				n.wantEnded(t)
			}
		})
	}
}

// While the engine is away each node decides for itself. Afterwards one session of each player
// stays: the newest under takeover, the oldest under reject.
func TestSessionsBegunWithoutTheEngineMeetOnItsReturn(t *testing.T) {
	for oldest, ended := range map[bool]string{newestWins: "a/s1", oldestWins: "b/s2"} {
		for _, first := range []string{"a", "b"} {
			t.Run(fmt.Sprint(oldest, first), func(t *testing.T) {
				inPair(t, func(t *testing.T, a, b *Players, s *fakeStore, n *table) {
					n.answers["a/s1"], n.answers["b/s2"] = true, true
					unchecked := 0
					a.Unchecked = func() { unchecked++ }
					s.away = true
					a.Hold(t.Context(), ada, "s1", oldest)
					time.Sleep(time.Second)
					holds(t, b, "s2", oldest, true)
					wstest.Equal(t, "counted", unchecked, 1)
					s.away = false
					order := []string{"a", "b"}
					if first == "b" {
						slices.Reverse(order)
					}
					for _, node := range order {
						map[string]*Players{"a": a, "b": b}[node].Announce(t.Context(), func(session string) { n.Supersede(node, session) })
					}
					n.wantEnded(t, ended)
				})
			})
		}
	}
}

// A bucket that has lost everything is filled again, and ends nobody's session.
func TestAnnounceFillsAnEmptiedStore(t *testing.T) {
	inPair(t, func(t *testing.T, a, b *Players, s *fakeStore, n *table) {
		a.Hold(t.Context(), ada, "s1", newestWins)
		b.Hold(t.Context(), Player{Name: "bob"}, "s2", newestWins)
		clear(s.records)
		clear(s.at)
		for _, p := range []*Players{a, b} {
			p.Announce(t.Context(), func(session string) { t.Errorf("%s was ended", session) })
		}
		wstest.Equal(t, "records", len(s.records), 2)
		n.wantEnded(t)
		a.Release(ada, "s1")
		synctest.Wait()
		wstest.Equal(t, "records, by the new revision", len(s.records), 1)
	})
}

// Two begin at the same time: the one whose write comes second meets the other's session.
func TestOvertakenSessionMeetsTheOther(t *testing.T) {
	for oldest, ended := range map[bool][]string{newestWins: {"b/s2"}, oldestWins: nil} {
		inPair(t, func(t *testing.T, a, b *Players, s *fakeStore, n *table) {
			n.answers["b/s2"] = true
			s.before = func() { b.Hold(t.Context(), ada, "s2", oldest) }
			holds(t, a, "s1", oldest, !oldest)
			n.wantEnded(t, ended...)
		})
	}
}
