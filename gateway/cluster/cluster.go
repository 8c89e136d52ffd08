package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"
)

// Config configures a Cluster.
type Config struct {
	// Name is --cluster-name: nodes of another name are not part of this cluster.
	Name string
	// NodeName, Address, Version and Formats describe this node: see Node.
	NodeName, Address, Version string
	Formats                    []int
	// ID and Lineage continue a node after an upgrade. Empty: a new node.
	ID, Lineage string
	// DeadAfter is --node-dead-after. Zero means 1.5 s.
	DeadAfter time.Duration
	Engine    Engine
	Identity  *Identity
	// Load reports this node's work, for its record. Nil: none.
	Load func() Load
	// Log is required.
	Log *slog.Logger
}

// A Cluster is this node's view of its cluster. All methods are safe for concurrent use.
type Cluster struct {
	cfg Config
}

// New makes a node with a random id, without connecting to anything.
func New(cfg Config) (*Cluster, error) { return &Cluster{cfg: cfg}, nil }

// ID is this node's id. It changes only before the node has joined, if another node has it.
func (c *Cluster) ID() string { return "" }

// Nodes lists all nodes that are known, this one first, the others by name.
func (c *Cluster) Nodes() []Node { return nil }

// Find returns a node by its id or its name. Of several with one name, one that is up is preferred.
func (c *Cluster) Find(idOrName string) (Node, bool) { return Node{}, false }

// Dial returns a TLS connection to a node's --node-listen. Both sides are verified, and the node has
// this id. The error is ErrUnknown, ErrBusy, ErrOtherNode, or that of the connection.
func (c *Cluster) Dial(ctx context.Context, id string) (net.Conn, error) { return nil, ErrUnknown }

// Judge decides whether a node still lives, when a connection to it has failed.
func (c *Cluster) Judge(ctx context.Context, id string) Judgement { return Judgement{} }

// SetDraining publishes whether this node takes new sessions.
func (c *Cluster) SetDraining(on bool) {}

// Leave publishes that this node has left, and stops.
func (c *Cluster) Leave(ctx context.Context) {}

// Errors of Dial.
var (
	// ErrUnknown: the table has no address for this id.
	ErrUnknown = errors.New("no such node is known")
	// ErrBusy: too many connections to that node are being made.
	ErrBusy = errors.New("too many connections to that node are being made")
	// ErrOtherNode: another node answers at its address.
	ErrOtherNode = errors.New("another node answers at that address")
)

// A Verdict says whether a node lives.
type Verdict uint8

const (
	// Unclear: nothing is certain. The client may come back, perhaps through another node.
	Unclear Verdict = iota
	// Alive: it has answered.
	Alive
	// Silent: it sends no heartbeats and answers no connections. It may be cut off: a session of it is
	// not known to be lost.
	Silent
	// Gone: it has said so, was replaced, or its machine refuses connections.
	Gone
)

var verdictNames = [...]string{Unclear: "unclear", Alive: "alive", Silent: "silent", Gone: "gone"}

func (v Verdict) String() string { return verdictNames[v] }

// A Judgement is a verdict with its reason.
type Judgement struct {
	Verdict Verdict
	// Evidence is for the log, such as "its address refuses connections".
	Evidence string
	// Heard is when anything was last heard of the node: a heartbeat, a record or an answer. Zero: never.
	// A session of a Silent node may live until Heard plus its grace period.
	Heard time.Time
}

// An Identity is the certificates of this node, and the authorities of the others.
type Identity struct{}
