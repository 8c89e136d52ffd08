package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"sync"
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
	// Known has the predecessor's knowledge of other nodes: the engine may be away.
	Known []Known
	// DeadAfter is --node-dead-after. Zero means 1.5 s.
	DeadAfter time.Duration
	Engine    Engine
	Identity  *Identity
	// Derive is tokens.Keys.Derive: what nodes write in the engine is sealed with its keys, and nothing else is
	// believed (sealed.go). Nil: all is, which is for tests.
	Derive func(purpose string, n int) ([][]byte, error)
	// Load reports this node's work, for its record. Nil: none.
	Load func() Load
	// Draining reports whether this node takes no new sessions. Nil: it does.
	Draining func() bool
	// Dialer connects to nodes. Nil: net.Dialer.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
	// Log is required.
	Log *slog.Logger
}

// A Cluster is this node's view of its cluster. All methods are safe for concurrent use.
type Cluster struct {
	cfg  Config
	ctx  context.Context
	stop context.CancelFunc
	run  sync.WaitGroup

	sealer *sealer       // the engine of cfg; nil without Derive
	judges chan struct{} // a place for each judgement under way

	mu        sync.Mutex
	id        string
	joined    bool
	joinAgain time.Time
	draining  bool
	left      bool
	synced    bool
	up        bool                 // the engine
	upSince   time.Time            // nothing could be heard before
	lost      bool                 // it was logged that the engine is
	refused   map[string]time.Time // when it was logged that an address has other keys
	peers     map[string]*peer
	heard     map[string]time.Time // also of nodes that the table has forgotten
	asked     map[string]time.Time // when nodes were first asked for that were never heard of
	unsynced  time.Time            // since when synced is false
	warned    bool                 // about the clock
	onUp      []func()
	onSynced  []func()
	onLost    []func(Node)
}

// A peer is another node.
type peer struct {
	record
	recordAt time.Time
	silent   bool               // not heard, while others are
	gone     string             // the evidence, "" while it may live
	left     bool               // it has announced its end
	reach    context.Context    // of the connections being made; nil if there was none since the last cut
	cut      context.CancelFunc // ends reach
	judging  chan struct{}      // closed when the judgement under way is there
	waiting  int
	judged   Judgement
	judgedAt time.Time
	settled  time.Time // when its address was asked last who is there
}

// New makes a node with a random id, without connecting to anything.
func New(cfg Config) (*Cluster, error) {
	if cfg.DeadAfter == 0 {
		cfg.DeadAfter = 1500 * time.Millisecond
	}
	if cfg.Load == nil {
		cfg.Load = func() Load { return Load{} }
	}
	if cfg.Draining == nil {
		cfg.Draining = func() bool { return false }
	}
	if cfg.Dialer == nil {
		cfg.Dialer = new(net.Dialer).DialContext
	}
	if cfg.Lineage == "" {
		cfg.Lineage = randomHex(8)
	}
	c := &Cluster{cfg: cfg, id: cfg.ID, judges: make(chan struct{}, maxJudges), peers: make(map[string]*peer), refused: make(map[string]time.Time), heard: make(map[string]time.Time), asked: make(map[string]time.Time)}
	if c.id == "" {
		c.id = randomHex(IDLen / 2)
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	for _, k := range cfg.Known {
		c.heard[k.ID] = k.Heard
		c.peers[k.ID] = &peer{record: k.record, recordAt: k.Heard, gone: k.Gone, left: k.State == stateLeft}
	}
	if cfg.Derive != nil {
		c.sealer = newSealer(c, cfg.Engine, cfg.Derive)
		c.cfg.Engine = c.sealer
	}
	return c, cfg.Identity.Load(c.id)
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// ID is this node's id. It changes only before the node has joined, if another node has it.
func (c *Cluster) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// Lineage identifies this node among all that may have drawn its id. An upgrade keeps it.
func (c *Cluster) Lineage() string { return c.cfg.Lineage }

// ReloadEngine has the engine read its files again.
func (c *Cluster) ReloadEngine() error { return c.cfg.Engine.Reload() }

// Engine describes the connection to the engine.
func (c *Cluster) Engine() EngineStatus { return c.cfg.Engine.Status() }

// Stop announces no end: a successor continues this node.
func (c *Cluster) Stop() {
	c.stop()
	c.run.Wait()
	c.cfg.Engine.Close()
}
