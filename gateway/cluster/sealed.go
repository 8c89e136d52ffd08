package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Nodes believe little of what they read in the engine: only what a node with the same token keys
// has written there, and nothing twice. What others write there is ignored.
//
// A sealed message is a JSON object, which any reader of the engine sees, with a member "sealed": a format
// (1 byte), the id of the key (kidSize bytes), a nonce, and sealed by AES-256-GCM a stamp (8 bytes) and the
// message itself. What is sealed cannot be moved to another place. A heartbeat is a node's id and the sealed
// part. The stamps of a node are microseconds and always grow: a heartbeat or record that is sent again has
// an old one.

const (
	messagePurpose = "reseat message v1"
	messageFormat  = 1
	// staleAfter limits the age of a node's first message: clocks differ, and records are kept for a while.
	staleAfter = 2 * time.Minute
	// maxStrangers bounds how many addresses of nodes with other keys are remembered.
	maxStrangers = 16
)

var errUnsealed = errors.New("it is not sealed")

// message returns a message, sealed, that only nodes can read and write, for this place alone.
func (s seal) message(place string, stamp uint64, message []byte) ([]byte, error) {
	kid, own, err := s.close(messagePurpose, place)
	if err != nil {
		return nil, err
	}
	out := append([]byte{messageFormat}, kid...)
	return append(out, own.Seal(nil, nil, append(binary.BigEndian.AppendUint64(nil, stamp), message...), out)...), nil
}

// openMessage returns what message has sealed for a place.
func (s seal) openMessage(place string, sealed []byte) (stamp uint64, message []byte, err error) {
	const outside = 1 + kidSize
	switch {
	case len(sealed) < outside:
		return 0, nil, errUnsealed
	case sealed[0] != messageFormat:
		return 0, nil, errNewerFormat
	}
	plain, err := s.open(messagePurpose, place, sealed[1:outside], sealed[outside:], sealed[:outside])
	switch {
	case err != nil:
		return 0, nil, err
	case len(plain) < 8:
		return 0, nil, errForged
	}
	return binary.BigEndian.Uint64(plain), plain[8:], nil
}

// object returns a JSON object that is not empty, with what message seals of it.
func (s seal) object(place string, stamp uint64, object []byte) ([]byte, error) {
	sealed, err := s.message(place, stamp, object)
	if err != nil {
		return nil, err
	}
	out := append(bytes.Clone(object[:len(object)-1]), `,"sealed":"`...)
	return append(base64.StdEncoding.AppendEncode(out, sealed), `"}`...), nil
}

// openObject returns what is sealed in an object.
func (s seal) openObject(place string, object []byte) (stamp uint64, message []byte, err error) {
	var part struct {
		Sealed []byte `json:"sealed"`
	}
	if err := json.Unmarshal(object, &part); err != nil {
		return 0, nil, err
	}
	return s.openMessage(place, part.Sealed)
}

// A sealer is the Engine of a Cluster, and the EngineHandler of the engine below.
type sealer struct {
	Engine
	EngineHandler // c
	c             *Cluster
	seal          seal

	mu      sync.Mutex
	stamp   uint64            // of the newest message
	beats   map[string]uint64 // the same of other nodes
	records map[string]uint64 // the same of their records
	strange []string          // addresses that records name which are sealed by another key
	said    time.Time         // when it was said in the log that a record is not believed
}

func newSealer(c *Cluster, e Engine, derive func(string, int) ([][]byte, error)) *sealer {
	return &sealer{Engine: e, EngineHandler: c, c: c, seal: seal{derive}, beats: make(map[string]uint64), records: make(map[string]uint64)}
}

// next is the stamp of the next message.
func (s *sealer) next() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamp = max(s.stamp+1, uint64(time.Now().UnixMicro()))
	return s.stamp
}

// isNew reports whether a stamp is newer than the last one of a node, and notes it.
func (s *sealer) isNew(last map[string]uint64, id string, stamp uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := last[id]
	if !known {
		before = uint64(time.Now().Add(-staleAfter).UnixMicro())
	}
	if stamp <= before {
		return false
	}
	if len(last) > rememberHeard {
		clear(last)
	}
	last[id] = stamp
	return true
}

func nodePlace(id string) string { return "node " + id }
func beatPlace(id string) string { return "beat " + id }

// Start implements Engine.
func (s *sealer) Start(EngineHandler) error { return s.Engine.Start(s) }

// sealedRecord is a record as the engine gets it.
func (s *sealer) sealedRecord(id string, record []byte) ([]byte, error) {
	return s.seal.object(nodePlace(id), s.next(), record)
}

// openRecord is the other way round.
func (s *sealer) openRecord(id string, value []byte) (stamp uint64, record []byte, err error) {
	return s.seal.openObject(nodePlace(id), value)
}

// CreateNode implements Engine. A record that no node has sealed is not there: the caller writes over it.
func (s *sealer) CreateNode(ctx context.Context, id string, record []byte) (existing []byte, err error) {
	value, err := s.sealedRecord(id, record)
	if err != nil {
		return nil, err
	}
	existing, err = s.Engine.CreateNode(ctx, id, value)
	if !errors.Is(err, ErrExists) || len(existing) == 0 {
		return existing, err
	}
	if _, existing, bad := s.openRecord(id, existing); bad == nil {
		return existing, err
	}
	return nil, nil
}

// PutNode implements Engine.
func (s *sealer) PutNode(ctx context.Context, id string, record []byte) error {
	value, err := s.sealedRecord(id, record)
	if err != nil {
		return err
	}
	return s.Engine.PutNode(ctx, id, value)
}

// Record implements EngineHandler.
func (s *sealer) Record(id string, value []byte) {
	if value == nil {
		s.c.Record(id, nil)
		return
	}
	if err := s.believe(id, value); err != nil && s.limit() {
		s.c.cfg.Log.Warn("node.bad_record", "node", fmt.Sprintf("%.20q", id), "err", err, "text", "NATS has a record that no node has written: it is ignored")
	}
}

// believe passes a record on that a node has written.
func (s *sealer) believe(id string, value []byte) error {
	stamp, record, err := s.openRecord(id, value)
	switch {
	case errors.Is(err, errOtherKey):
		s.noteStranger(id, value)
		return err
	case err != nil:
		return err
	case s.isNew(s.records, id, stamp): // else it was read already
		s.c.Record(id, record)
	}
	return nil
}

// noteStranger notes where a node with other keys may be, for checkPeers.
func (s *sealer) noteStranger(id string, value []byte) {
	r, err := parseRecord(id, value)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && len(s.strange) < maxStrangers && !slices.Contains(s.strange, r.Address) {
		s.strange = append(s.strange, r.Address)
	}
}

// strangers returns where nodes with other keys may be.
func (s *sealer) strangers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.strange)
}

// limit reports whether a line may be logged now.
func (s *sealer) limit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.said) < refusedEvery {
		return false
	}
	s.said = now
	return true
}

// Beat implements Engine.
func (s *sealer) Beat(id string) error {
	sealed, err := s.seal.message(beatPlace(id), s.next(), nil)
	if err != nil {
		return err
	}
	return s.Engine.Beat(id + string(sealed))
}

// Heartbeat implements EngineHandler.
func (s *sealer) Heartbeat(beat string) {
	if len(beat) < IDLen {
		return
	}
	id, sealed := beat[:IDLen], []byte(beat[IDLen:])
	stamp, _, err := s.seal.openMessage(beatPlace(id), sealed)
	if err == nil && s.isNew(s.beats, id, stamp) {
		s.c.Heartbeat(id)
	}
}

// Seal returns a message that only nodes can read and write, for a place in the engine, which names this node.
func (c *Cluster) Seal(place string, message []byte) ([]byte, error) {
	return c.sealer.seal.message(place, c.sealer.next(), message)
}

// Open returns the message that a node has sealed for a place.
func (c *Cluster) Open(place string, sealed []byte) ([]byte, error) {
	_, message, err := c.sealer.seal.openMessage(place, sealed)
	return message, err
}

// Stored takes a record of the engine in, and says why not if no node has written it.
func (c *Cluster) Stored(id string, value []byte) error {
	_, record, err := c.sealer.openRecord(id, value)
	if err == nil {
		c.Record(id, record)
	}
	return err
}
