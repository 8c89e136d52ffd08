package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// A Seat is the record of a durable session: its owner, and what another node needs to continue it.
type Seat struct {
	Session string
	Owner   string // id of a node
	Epoch   uint64 // counts owners; 0 before the first claim
	Handoff bool   // the owner got it by a hand-off, not by a claim
	Ended   int    // close code for those who resume, 0 while it lives
	Reason  string // with Ended
	// Keep is the longest of the session's grace periods.
	Keep time.Duration
	// Written is the time of the record in the engine, by its clock. Put does not use it.
	Written time.Time
	// Body is sealed on its way to the engine. Its content is the caller's.
	Body []byte
	// Revision is that of the engine's record; 0: not written yet.
	Revision uint64
}

// Errors of Seats. Any other means that the engine is away, that it is unclear whether a write was
// accepted, or that this node cannot read the record.
var (
	ErrNoSeat    = errors.New("no such seat")
	ErrSeatTaken = errors.New("another node has written the seat")
)

// A SeatStore keeps the records of seats, and carries messages between nodes. Package cluster/engine
// implements it. A record is only ever written on a condition: that decides, not what was read.
type SeatStore interface {
	// GetSeat returns the record of a session, or ErrNoRecord. It asks the leader: a replica's answer
	// may be old.
	GetSeat(ctx context.Context, session string) (StoredSeat, error)
	// PutSeat writes a record if its revision is still this one, 0 for none, and returns the new one,
	// or ErrOvertaken. After any other error the record may be written all the same, even later.
	PutSeat(ctx context.Context, session string, value []byte, revision uint64) (uint64, error)
	// DeleteSeat deletes a record if its revision is still this one, or returns ErrOvertaken.
	DeleteSeat(ctx context.Context, session string, revision uint64) error
	// ListSeats iterates over the records of one of SeatBuckets, as they are when it comes to them. It
	// asks for one after the other, so that the caller sets the pace. An error ends it.
	ListSeats(ctx context.Context, bucket int) iter.Seq2[StoredSeat, error]
	// Contact returns the beginning of the newest operation that most of the engine's servers have confirmed.
	Contact() time.Time
	// Publish and Subscribe are those of Engine.
	Publish(subject string, data []byte) error
	Subscribe(subject string, f func(subject string, data []byte)) (func(), error)
}

// SeatBuckets counts the parts of the records of seats.
const SeatBuckets = 8

// SeatBucket is the part that has a session's record. All nodes, of all versions, agree on it.
func SeatBucket(session string) int {
	h := fnv.New32a()
	h.Write([]byte(session))
	return int(h.Sum32() % SeatBuckets)
}

// A StoredSeat is a record as a SeatStore has it.
type StoredSeat struct {
	Session  string
	Value    []byte
	Revision uint64
	Written  time.Time // by the store's clock
}

// Seats are the records of durable sessions, those of all nodes. Who wrote the newest record of a session
// owns it. Its methods may be called from any goroutine.
type Seats struct {
	self  func() string // this node's id
	store SeatStore
	seal  seal
	log   *slog.Logger

	mu       sync.Mutex
	onFenced func(session string, epoch uint64) // nil: nothing is subscribed to
	listens  string                             // the id that fenced is subscribed for, "" for none
	deaf     func()                             // ends that subscription
	gone     map[string]time.Time               // when Sweep has found that a node is
}

// NewSeats returns the Seats of the node whose id self returns. derive is tokens.Keys.Derive: nodes with
// the same keys read each other's records, and a reader of the engine without them learns the owner of a
// record and until when it is kept, and nothing of its body.
func NewSeats(self func() string, store SeatStore, derive func(purpose string, n int) ([][]byte, error), log *slog.Logger) *Seats {
	return &Seats{self: self, store: store, seal: seal{derive}, log: log, gone: make(map[string]time.Time)}
}

// Get returns the seat of a session, or ErrNoSeat. It asks the leader, which may just have lost its
// place: what must not be wrong is decided by Put.
func (s *Seats) Get(ctx context.Context, session string) (Seat, error) {
	stored, err := s.read(ctx, session)
	if err != nil {
		return Seat{}, err
	}
	return s.seal.seat(stored)
}

func (s *Seats) read(ctx context.Context, session string) (StoredSeat, error) {
	if !validSession(session) {
		return StoredSeat{}, ErrNoSeat
	}
	stored, err := s.store.GetSeat(ctx, session)
	if errors.Is(err, ErrNoRecord) {
		err = ErrNoSeat
	}
	return stored, err
}

// validSession reports whether a session's id can be a key of the engine.
func validSession(id string) bool { return id != "" && strings.Trim(id, "0123456789abcdef") == "" }

// Put writes a seat if the record's revision is still seat.Revision, 0 for none, and returns the new one.
// With ErrSeatTaken it is not written, and never will be. An answer that was lost is asked for once more,
// so that Put says what is true. After any other error the record may be written, even later: Get says
// how it stands, and Renew writes a seat that this node owns.
func (s *Seats) Put(ctx context.Context, seat Seat) (revision uint64, err error) {
	if !validSession(seat.Session) {
		return 0, fmt.Errorf("the session %.50q cannot have a seat", seat.Session)
	}
	value, err := s.seal.record(seat)
	if err != nil {
		return 0, err
	}
	s.listen()
	revision, err = s.store.PutSeat(ctx, seat.Session, value, seat.Revision)
	switch {
	case err == nil:
		return revision, nil
	case errors.Is(err, ErrOvertaken):
		return 0, ErrSeatTaken
	}
	// The value has random bytes: no other write has the same.
	switch stored, lost := s.store.GetSeat(ctx, seat.Session); {
	case lost != nil:
		return 0, err
	case bytes.Equal(stored.Value, value):
		return stored.Revision, nil
	case stored.Revision > seat.Revision: // a lower one is an answer from the past
		return 0, ErrSeatTaken
	}
	return 0, err
}

// renewTries bounds how often Renew starts again after it was overtaken.
const renewTries = 8

// Renew writes the seat of a session that this node owns, whatever the revision is: the engine was away,
// or was emptied. It returns ErrSeatTaken if the record has a later epoch, another owner of this epoch, or
// says that the session has ended in this epoch and seat does not. It writes over a record that was changed.
func (s *Seats) Renew(ctx context.Context, seat Seat) (revision uint64, err error) {
	for range renewTries {
		stored, err := s.read(ctx, seat.Session)
		if err != nil && !errors.Is(err, ErrNoSeat) {
			return 0, err
		}
		if err == nil {
			switch there, err := s.seal.seat(stored); {
			case errors.Is(err, errNewerFormat), errors.Is(err, errOtherKey): // perhaps of a node that has further keys
				return 0, err
			case err == nil && outranks(there, seat):
				return 0, ErrSeatTaken
			}
		}
		seat.Revision = stored.Revision
		if revision, err = s.Put(ctx, seat); !errors.Is(err, ErrSeatTaken) {
			return revision, err
		}
	}
	return 0, fmt.Errorf("the seat of session %s was written %d times meanwhile", seat.Session, renewTries)
}

// outranks reports whether a record may not be replaced by mine.
func outranks(there, mine Seat) bool {
	if there.Epoch != mine.Epoch {
		return there.Epoch > mine.Epoch
	}
	return there.Owner != mine.Owner || there.Ended != 0 && mine.Ended == 0
}

// Delete deletes the record of a session if its revision is still this one, or returns ErrSeatTaken. A
// revision of 0 has no record.
func (s *Seats) Delete(ctx context.Context, session string, revision uint64) error {
	if revision == 0 || !validSession(session) {
		return nil
	}
	err := s.store.DeleteSeat(ctx, session, revision)
	if errors.Is(err, ErrOvertaken) {
		err = ErrSeatTaken
	}
	return err
}

// Contact returns the time of the last certain contact with the engine: the beginning of the newest write
// that was confirmed. A node that is alone with a part of the engine's servers gets no such confirmation.
// The node's own record is written every 3 seconds. Zero means never.
func (s *Seats) Contact() time.Time { return s.store.Contact() }

// A nodeMessage goes from a node to another one over the engine. Members that a node does not know
// are ignored.
type nodeMessage struct {
	Fenced *fenced `json:"fenced,omitempty"`
}

// fenced says that a session has a later owner.
type fenced struct {
	Session string `json:"session"`
	Epoch   uint64 `json:"epoch"`
}

// Fence notifies a node that a session which it owned is at a later epoch. It never blocks, and the
// message may be lost: its conditional writes fail as well.
func (s *Seats) Fence(node, session string, epoch uint64) {
	b, err := json.Marshal(nodeMessage{&fenced{session, epoch}})
	if err == nil {
		err = s.store.Publish(nodeSubject(node), b)
	}
	if err != nil {
		s.log.Debug("seat.not_fenced", "session", session, "node", node, "err", err)
	}
}

func nodeSubject(node string) string { return "n." + node }

// OnFenced sets f, which is called for each session of this node that another node has claimed, with
// the epoch of the claim. The calls come one at a time, and must return soon.
func (s *Seats) OnFenced(f func(session string, epoch uint64)) {
	s.mu.Lock()
	s.onFenced = f
	s.mu.Unlock()
	s.listen()
}

// listen subscribes to the messages for this node. Its id may have changed before it joined: this is
// called before each write, so that a claimant of a seat reaches the id that stands there.
func (s *Seats) listen() {
	id := s.self()
	s.mu.Lock()
	deaf := s.deaf
	due := s.onFenced != nil && s.listens != id
	if due {
		s.listens, s.deaf = id, nil
	}
	s.mu.Unlock()
	if !due {
		return
	}
	if deaf != nil {
		deaf()
	}
	end, err := s.store.Subscribe(nodeSubject(id), func(_ string, data []byte) { s.message(data) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.listens = "" // at the next write
		s.log.Warn("engine.error", "err", err)
		return
	}
	s.deaf = end
}

func (s *Seats) message(data []byte) {
	var m nodeMessage
	if json.Unmarshal(data, &m) != nil || m.Fenced == nil {
		return
	}
	s.mu.Lock()
	call := s.onFenced
	s.mu.Unlock()
	call(m.Fenced.Session, m.Fenced.Epoch)
}
