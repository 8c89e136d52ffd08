// Package clustertest plays the engine of a cluster in memory.
package clustertest

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/cluster"
)

// ErrAway is what operations return while the engine is away, or has no leader.
var ErrAway = errors.New("no responders")

// ErrNoAnswer is what a write returns whose answer was lost.
var ErrNoAnswer = context.DeadlineExceeded

// Seats are the records of seats that all nodes of a test share. Safe for concurrent use. Time is that of
// the test, which may run under synctest.
type Seats struct {
	mu      sync.Mutex
	records map[string]cluster.StoredSeat
	last    uint64
	links   map[*Link]bool
	away    bool
}

// NewSeats returns an engine without records.
func NewSeats() *Seats {
	return &Seats{records: make(map[string]cluster.StoredSeat), links: make(map[*Link]bool)}
}

// SetAway has operations of all nodes fail, or succeed again. Nothing is lost meanwhile but messages.
func (s *Seats) SetAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// Empty loses all records. Revisions go on, as those of the engine do.
func (s *Seats) Empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.records)
}

// Records returns a copy of all records, by session.
func (s *Seats) Records() map[string]cluster.StoredSeat {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.records)
}

// Set writes a record as it stands, for a test that plays another node, or an intruder.
func (s *Seats) Set(session string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(session, value)
}

func (s *Seats) set(session string, value []byte) uint64 {
	s.last++
	s.records[session] = cluster.StoredSeat{Session: session, Value: slices.Clone(value), Revision: s.last, Written: time.Now()}
	return s.last
}

// Link returns the engine as one node has it.
func (s *Seats) Link() *Link {
	l := &Link{s: s, subscribed: make(map[*subscription]bool)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links[l] = true
	return l
}

// A Link implements cluster.SeatStore for one node.
type Link struct {
	s          *Seats
	subscribed map[*subscription]bool
	contact    time.Time
	cut        bool

	before atomic.Pointer[func()]

	// The hooks are set while nothing is under way. Loses reports whether the answer of a write is lost, and Late whether that write
	// is not done, but left to Land. Answer gets what each read would return, and returns something else: a
	// leader that has lost its place may answer.
	Loses  func() bool
	Late   func() bool
	Answer func(session string, stored cluster.StoredSeat, err error) (cluster.StoredSeat, error)

	late []func()
}

type subscription struct {
	subject string
	f       func(string, []byte)
	next    sync.Mutex
}

// SetCut has operations of this node alone fail, or succeed again.
func (l *Link) SetCut(cut bool) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.cut = cut
}

// SetBefore has f run before each write is decided: another node's may come first. nil: nothing.
func (l *Link) SetBefore(f func()) {
	if f == nil {
		l.before.Store(nil)
		return
	}
	l.before.Store(&f)
}

// Land does the writes that Late has left, in order.
func (l *Link) Land() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	for _, f := range l.late {
		f()
	}
	l.late = nil
}

func (l *Link) awayLocked() bool { return l.s.away || l.cut }

// GetSeat implements cluster.SeatStore.
func (l *Link) GetSeat(ctx context.Context, session string) (cluster.StoredSeat, error) {
	stored, err := l.read(ctx, session)
	if l.Answer != nil {
		return l.Answer(session, stored, err)
	}
	return stored, err
}

func (l *Link) read(ctx context.Context, session string) (cluster.StoredSeat, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	stored, ok := l.s.records[session]
	switch {
	case ctx.Err() != nil:
		return cluster.StoredSeat{}, ctx.Err()
	case l.awayLocked():
		return cluster.StoredSeat{}, ErrAway
	case !ok:
		return cluster.StoredSeat{}, cluster.ErrNoRecord
	}
	stored.Value = slices.Clone(stored.Value)
	return stored, nil
}

// PutSeat implements cluster.SeatStore.
func (l *Link) PutSeat(ctx context.Context, session string, value []byte, revision uint64) (written uint64, err error) {
	return l.write(ctx, session, revision, func() uint64 { return l.s.set(session, value) })
}

// DeleteSeat implements cluster.SeatStore.
func (l *Link) DeleteSeat(ctx context.Context, session string, revision uint64) error {
	_, err := l.write(ctx, session, revision, func() uint64 {
		delete(l.s.records, session)
		return 0
	})
	return err
}

// write calls f if the record has this revision.
func (l *Link) write(ctx context.Context, session string, revision uint64, f func() uint64) (written uint64, err error) {
	began := time.Now()
	if f := l.before.Load(); f != nil {
		(*f)()
	}
	lost, late := l.Loses != nil && l.Loses(), l.Late != nil && l.Late()
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case l.awayLocked():
		return 0, ErrAway
	}
	decide := func() {
		if l.s.records[session].Revision != revision {
			err = cluster.ErrOvertaken
			return
		}
		written = f()
	}
	if late {
		l.late = append(l.late, decide)
		return 0, ErrNoAnswer
	}
	decide()
	switch {
	case lost:
		return 0, ErrNoAnswer
	case err == nil:
		l.contact = began
	}
	return written, err
}

// ListSeats implements cluster.SeatStore.
func (l *Link) ListSeats(ctx context.Context, bucket int) iter.Seq2[cluster.StoredSeat, error] {
	return func(yield func(cluster.StoredSeat, error) bool) {
		for _, session := range slices.Sorted(maps.Keys(l.s.Records())) {
			if cluster.SeatBucket(session) != bucket {
				continue
			}
			stored, err := l.GetSeat(ctx, session)
			if errors.Is(err, cluster.ErrNoRecord) {
				continue
			}
			if !yield(stored, err) || err != nil {
				return
			}
		}
	}
}

// Contact implements cluster.SeatStore.
func (l *Link) Contact() time.Time {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.contact
}

// Publish implements cluster.SeatStore. The sender gets no message of its own.
func (l *Link) Publish(subject string, data []byte) error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.awayLocked() {
		return ErrAway
	}
	for other := range l.s.links {
		if other == l || other.cut {
			continue
		}
		for sub := range other.subscribed {
			if sub.subject == subject {
				go func() {
					sub.next.Lock()
					defer sub.next.Unlock()
					sub.f(subject, slices.Clone(data))
				}()
			}
		}
	}
	return nil
}

// Subscribe implements cluster.SeatStore, without wildcards.
func (l *Link) Subscribe(subject string, f func(subject string, data []byte)) (func(), error) {
	sub := &subscription{subject: subject, f: f}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.subscribed[sub] = true
	return func() {
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		delete(l.subscribed, sub)
	}, nil
}
