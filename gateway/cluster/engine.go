package cluster

import (
	"context"
	"errors"
	"time"
)

// An Engine carries records, heartbeats and messages between nodes. Package cluster/engine
// implements it with NATS. All methods are safe for concurrent use.
type Engine interface {
	// Start connects, and reconnects for ever, until Close. It calls the handler's methods one at a
	// time. It returns at once; the error is one of the settings.
	Start(h EngineHandler) error
	// Ready waits until the engine is up, and its bucket of nodes is there. The error says what is
	// missing.
	Ready(ctx context.Context) error
	// CreateNode writes a node's record, unless there is one with this id: then ErrExists, and the
	// record that is there, nil if it cannot be read.
	CreateNode(ctx context.Context, id string, value []byte) (existing []byte, err error)
	// PutNode writes a node's record. It makes the bucket if that was lost.
	PutNode(ctx context.Context, id string, value []byte) error
	// Beat sends a heartbeat: a node's id, with what is sealed behind it. It never blocks.
	Beat(beat string) error
	// Publish sends a message to a subject below the cluster's name, such as "n.<id>".
	// It never blocks.
	Publish(subject string, data []byte) error
	// Subscribe calls f with each message to a subject below the cluster's name, one at a time; "*" is
	// any token. It holds across reconnections. The function it returns ends the subscription.
	Subscribe(subject string, f func(subject string, data []byte)) (func(), error)
	// Status describes the connection.
	Status() EngineStatus
	// Skew returns the difference of this machine's clock to the engine's; negative: behind. False: not
	// measured.
	Skew() (time.Duration, bool)
	// Reload reads the files of credentials and authorities again, for the next connection.
	Reload() error
	Close()
}

// ErrExists means that a node has this id.
var ErrExists = errors.New("a node has this id")

// ErrEngineDown means that the engine is not reachable now.
var ErrEngineDown = errors.New("the cluster's engine is not reachable")

// ErrUnusable means that the engine is reachable, and cannot serve this cluster: it is too old, lacks
// JetStream, or gives this node not the rights that it needs. The error says which.
var ErrUnusable = errors.New("NATS cannot be used")

// An EngineHandler is notified by an Engine. Its methods return soon.
type EngineHandler interface {
	// EngineUp: connected, for the first time or again.
	EngineUp(s EngineStatus)
	// EngineDown: the connection is lost, or could not be made.
	EngineDown(err error)
	// Record has the newest record of a node; nil: it was deleted.
	Record(id string, value []byte)
	// Synced: all records of the bucket were passed to Record since the engine came up. It is called
	// again when operations that have failed may be repeated.
	Synced()
	// Heartbeat has what a node, which may be this one, has given to Beat.
	Heartbeat(beat string)
}

// An EngineStatus describes the connection to the engine.
type EngineStatus struct {
	Up bool
	// Servers counts those of the engine, as far as this client knows.
	Servers  int
	Replicas int
	RTT      time.Duration
	// Since is the time of the last change of Up.
	Since   time.Time
	Version string // of the server that this node is connected to
	URL     string // of that server, without credentials
}
