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

func (n *table) endedOf() []string { return slices.Sorted(maps.Keys(n.ended)) }

// newPair returns the Players of two nodes, a and b.
func newPair() (a, b *Players, s *fakeStore, n *table) {
	s, n = newFakeStore(), &table{ended: make(map[string]bool), answers: make(map[string]bool)}
	quiet := slog.New(slog.DiscardHandler)
	self := func(id string) func() string { return func() string { return id } }
	return NewPlayers(self("a"), s, n, quiet), NewPlayers(self("b"), s, n, quiet), s, n
}

func TestNewerSessionAtAnotherNodeEndsTheOlderOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _, n := newPair()
		if !a.Hold(t.Context(), "ada", "s1", NewestWins) || !b.Hold(t.Context(), "ada", "s2", NewestWins) {
			t.Fatal("refused")
		}
		if got := n.endedOf(); !slices.Equal(got, []string{"a/s1"}) {
			t.Errorf("ended %v", got)
		}
		a.Release(t.Context(), "ada", "s1") // its end must not delete b's record
		if !a.Hold(t.Context(), "ada", "s3", NewestWins) {
			t.Fatal("refused")
		}
		if got := n.endedOf(); !slices.Equal(got, []string{"a/s1", "b/s2"}) {
			t.Errorf("ended %v: the record was lost", got)
		}
	})
}

func TestSecondSessionIsRefusedWhileTheFirstClientAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _, n := newPair()
		a.Hold(t.Context(), "ada", "s1", OldestWins)
		n.answers["a/s1"] = true
		if b.Hold(t.Context(), "ada", "s2", OldestWins) {
			t.Error("a second session was accepted")
		}
		n.answers["a/s1"] = false
		if !b.Hold(t.Context(), "ada", "s2", OldestWins) {
			t.Error("refused, though the first client does not answer")
		}
		if got := n.endedOf(); !slices.Equal(got, []string{"a/s1"}) {
			t.Errorf("ended %v", got)
		}
	})
}

// Two begin at the same time: the one whose write comes second meets the other's session.
func TestOvertakenSessionMeetsTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range []PlayerPolicy{NewestWins, OldestWins} {
			a, b, s, n := newPair()
			n.answers["b/s2"] = true
			s.before = func() { b.Hold(t.Context(), "ada", "s2", policy) }
			held := a.Hold(t.Context(), "ada", "s1", policy)
			switch policy {
			case NewestWins:
				if got := n.endedOf(); !held || !slices.Equal(got, []string{"b/s2"}) {
					t.Errorf("held %v, ended %v", held, got)
				}
			case OldestWins:
				if got := n.endedOf(); held || len(got) > 0 {
					t.Errorf("held %v, ended %v", held, got)
				}
			}
		}
	})
}

func TestEndedSessionLeavesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, s, _ := newPair()
		a.Hold(t.Context(), "ada", "s1", NewestWins)
		a.Hold(t.Context(), "ada", "s2", NewestWins) // a newer one of the same node
		a.Release(t.Context(), "ada", "s1")
		if len(s.records) != 1 {
			t.Errorf("%d records, want that of s2", len(s.records))
		}
		a.Release(t.Context(), "ada", "s2")
		if len(s.records) != 0 {
			t.Errorf("%d records are left", len(s.records))
		}
	})
}

// Two sessions of a player begin at one node, which ends the older one itself. That one's slower write
// must not hide the newer one from other nodes.
func TestOlderSessionDoesNotHideTheNewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, s, n := newPair()
		s.before = func() { a.Hold(t.Context(), "ada", "s2", NewestWins) }
		a.Hold(t.Context(), "ada", "s1", NewestWins)
		a.Release(t.Context(), "ada", "s1")
		b.Hold(t.Context(), "ada", "s3", NewestWins)
		if got := n.endedOf(); !slices.Equal(got, []string{"a/s2"}) {
			t.Errorf("ended %v, want the node's newer session", got)
		}
	})
}

func TestSessionThatEndsWhileItBeginsLeavesNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, s, _ := newPair()
		s.before = func() { a.Release(t.Context(), "ada", "s1") }
		a.Hold(t.Context(), "ada", "s1", NewestWins)
		if len(s.records) != 0 {
			t.Errorf("%d records are left", len(s.records))
		}
	})
}

// The record of a node that was lost stays. It ends nobody's session.
func TestRecordOfALostNodeEndsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, s, _ := newPair()
		a.Hold(t.Context(), "ada", "s1", OldestWins) // then a is killed
		time.Sleep(time.Second)
		s.away = true
		b.Hold(t.Context(), "ada", "s2", OldestWins)
		s.away = false
		b.Announce(t.Context(), func(string) { t.Error("the living session was ended") })
	})
}

// A session that began unchecked is newer than one of its own node that the record names.
func TestNodeDoesNotEndItsNewerSessionForItsOlderOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, s, n := newPair()
		n.answers["a/s1"] = true
		a.Hold(t.Context(), "ada", "s1", OldestWins)
		time.Sleep(time.Second)
		s.away = true
		a.Hold(t.Context(), "ada", "s2", OldestWins) // s1 did not answer this node
		s.away = false
		a.Announce(t.Context(), func(string) { t.Error("the newer session was ended") })
		if len(n.ended) > 0 {
			t.Errorf("ended %v", n.ended)
		}
	})
}

// While the engine is away each node decides for itself. Afterwards one session of each player
// stays: the newest under takeover, the oldest under reject.
func TestSessionsBegunWithoutTheEngineMeetOnItsReturn(t *testing.T) {
	for policy, stays := range map[PlayerPolicy]string{NewestWins: "b/s2", OldestWins: "a/s1"} {
		for _, first := range []string{"a", "b"} {
			t.Run(fmt.Sprint(policy, first), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, b, s, n := newPair()
					n.answers["a/s1"], n.answers["b/s2"] = true, true
					unchecked := 0
					a.Unchecked = func() { unchecked++ }
					s.away = true
					a.Hold(t.Context(), "ada", "s1", policy)
					time.Sleep(time.Second)
					if !b.Hold(t.Context(), "ada", "s2", policy) {
						t.Error("a login was refused because the engine is away")
					}
					if unchecked != 1 {
						t.Errorf("counted %d, want 1", unchecked)
					}
					s.away = false
					local := func(node string) func(string) {
						return func(session string) { n.Supersede(node, session) }
					}
					order := []func(){
						func() { a.Announce(t.Context(), local("a")) }, func() { b.Announce(t.Context(), local("b")) },
					}
					if first == "b" {
						slices.Reverse(order)
					}
					for _, f := range order {
						f()
					}
					ended := n.endedOf()
					if len(ended) != 1 || ended[0] == stays {
						t.Errorf("ended %v, want the other one than %s", ended, stays)
					}
				})
			})
		}
	}
}

// A bucket that has lost everything is filled again, and ends nobody's session.
func TestAnnounceFillsAnEmptiedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, s, n := newPair()
		a.Hold(t.Context(), "ada", "s1", NewestWins)
		b.Hold(t.Context(), "bob", "s2", NewestWins)
		clear(s.records)
		clear(s.at)
		a.Announce(t.Context(), func(string) { t.Error("a session was ended") })
		b.Announce(t.Context(), func(string) { t.Error("a session was ended") })
		if len(s.records) != 2 || len(n.ended) != 0 {
			t.Errorf("%d records, ended %v", len(s.records), n.ended)
		}
		a.Release(t.Context(), "ada", "s1")
		if len(s.records) != 1 {
			t.Error("the new revision was not kept")
		}
	})
}

func TestUnreadableRecordIsAsGoodAsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, s, n := newPair()
		s.records["ada"], s.at["ada"], s.last = []byte("{"), 7, 7
		if !a.Hold(t.Context(), "ada", "s1", OldestWins) || len(n.ended) > 0 {
			t.Errorf("refused, or ended %v", n.ended)
		}
	})
}
