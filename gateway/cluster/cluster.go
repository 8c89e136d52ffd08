package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
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
	// Known is what the predecessor knew of other nodes: the engine may be away.
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

const (
	beatEvery   = 500 * time.Millisecond
	recordEvery = 3 * time.Second
	// hideAfter is how long a node is listed that nothing is heard of, while the engine is up. It is
	// known for longer, since grace periods are: it may live and be cut off from the engine alone.
	hideAfter     = time.Minute
	forgetAfter   = time.Hour
	rememberHeard = 10000
	// The limits of a judgement.
	probeTime = 750 * time.Millisecond
	askTime   = time.Second
	// idleConns is how many connections to a node are kept for the next request: a drain makes as many at a time.
	idleConns    = 32
	refusedPause = 150 * time.Millisecond
	maxJudges    = 32 // at a time
	judgedFor    = time.Second
	// maxWaiting is how many clients of one node may wait for a judgement, at most 1.7 seconds: all players
	// of a node that has died. Those who are refused come back, which costs more.
	maxWaiting = 10000
	// maxDials is how many connections to a node are made at once. When the players of a node come
	// back all at once, the others wait for their turn for dialTurn, in order: a slow node does not
	// fill this one.
	maxDials = 64
	dialTurn = 3 * time.Second
	// refusedEvery limits the log lines about one address with other keys.
	refusedEvery = time.Minute
	// refusedKept bounds how many such addresses are remembered.
	refusedKept = 64
)

const (
	// SkewWarning is how far the clocks of this machine and of the engine may differ without a warning.
	SkewWarning = time.Second
	// SkewRefusal is from where a node may not join.
	SkewRefusal = 30 * time.Second
)

// HelloPath is the path at a node's listener that says which node it is.
const HelloPath = "/node/v1/hello"

// A Hello is the answer at HelloPath.
type Hello struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Cluster string    `json:"cluster"`
	Version string    `json:"version"`
	Level   int       `json:"level"`
	Formats []int     `json:"formats"`
	Time    time.Time `json:"time"`
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
	lost      bool                 // it was said in the log that the engine is
	refused   map[string]time.Time // when it was said in the log that an address has other keys
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
	left     bool               // it has said that it is gone
	dials    chan struct{}      // a place for each connection being made; nil before the first
	reach    context.Context    // of the connections being made; nil if there was none since the last cut
	cut      context.CancelFunc // ends reach
	judging  chan struct{}      // closed when the judgement under way is there
	waiting  int
	judged   Judgement
	judgedAt time.Time
	settled  time.Time // when its address was asked last who is there
}

// cutDials ends the connections being made.
func (p *peer) cutDials() {
	if p.reach != nil {
		p.cut()
		p.reach, p.cut = nil, nil
	}
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
		c.peers[k.ID] = &peer{record: k.record(), recordAt: k.Heard, gone: k.Gone, left: k.State == stateLeft}
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

// Join connects to the engine and takes this node's place, within wait. If the engine is away
// the node joins later by itself, and Join returns nil after a warning. An error means that
// this node may not join: its clock is wrong, the other nodes have other keys, or the engine is
// of no use to it.
func (c *Cluster) Join(wait time.Duration) error {
	if err := c.cfg.Engine.Start(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, wait)
	defer cancel()
	err := c.cfg.Engine.Ready(ctx)
	if err == nil {
		err = c.enter(ctx)
	}
	switch {
	case errors.Is(err, errRefused), errors.Is(err, ErrUnusable):
		return err
	case err != nil:
		c.mu.Lock()
		c.lost = true
		c.mu.Unlock()
		c.cfg.Log.Warn("engine.lost", "err", err, "text", "this node serves alone, and joins once it can use NATS")
	default:
		if err := c.checkPeers(ctx); err != nil {
			return err
		}
	}
	c.run.Go(c.loop)
	return nil
}

var errRefused = errors.New("this node may not join")

// enter writes this node's first record. Another node may have its id.
func (c *Cluster) enter(ctx context.Context) error {
	if skew, ok := c.cfg.Engine.Skew(); ok && skew.Abs() >= SkewRefusal {
		return fmt.Errorf("%w the cluster: its clock is %v off", errRefused, skew.Round(time.Second))
	}
	for {
		existing, err := c.cfg.Engine.CreateNode(ctx, c.ID(), c.ownRecord(""))
		switch {
		case errors.Is(err, ErrExists):
			r, bad := parseRecord(c.ID(), existing)
			switch {
			case len(existing) == 0: // it may be this node's own: sessions and seats have that id
				return fmt.Errorf("the record of node %s is there, and cannot be read: %w", c.ID(), ErrEngineDown)
			case bad == nil && r.Lineage == c.cfg.Lineage: // of a predecessor, or from before the engine was lost
			case c.cfg.ID != "":
				return fmt.Errorf("%w the cluster: another node has its id %s", errRefused, c.ID())
			default:
				c.mu.Lock()
				c.id = randomHex(IDLen / 2)
				c.mu.Unlock()
				if err := c.cfg.Identity.Load(c.ID()); err != nil {
					return err
				}
				continue
			}
		case err != nil:
			return err
		}
		// Only this one is passed on to the other nodes.
		if err := c.cfg.Engine.PutNode(ctx, c.ID(), c.ownRecord("")); err != nil {
			return err
		}
		c.mu.Lock()
		c.joined = true
		n := len(c.peers)
		c.mu.Unlock()
		c.cfg.Log.Info("cluster.joined", "cluster", c.cfg.Name, "node", c.ID(), "name", c.cfg.NodeName, "address", c.cfg.Address, "nodes", n+1)
		return nil
	}
}

// checkPeers fails if all other nodes refuse this one's certificate. It notes in the log if another
// node answers at this one's address.
func (c *Cluster) checkPeers(ctx context.Context) error {
	c.run.Go(c.checkAddress)
	const enough = 8
	var list []string
	for _, n := range c.Nodes() {
		if !n.Self && n.State == StateUp {
			list = append(list, n.Address)
		}
	}
	if c.sealer != nil {
		list = append(list, c.sealer.strangers()...)
	}
	list = list[:min(len(list), enough)]
	answers := make(chan error, enough)
	for _, address := range list {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, probeTime)
			defer cancel()
			_, err := c.hello(ctx, address)
			answers <- err
		}()
	}
	refused := 0
	for range list {
		if otherKeys(<-answers) {
			refused++
		}
	}
	if len(list) > 0 && refused == len(list) {
		return fmt.Errorf("%w the cluster: no node accepts its certificate; do all have the same --token-key-file?", errRefused)
	}
	return nil
}

func (c *Cluster) loop() {
	beat, put := time.NewTicker(beatEvery), time.NewTicker(recordEvery)
	defer beat.Stop()
	defer put.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-beat.C:
			c.mu.Lock()
			joined := c.joined && !c.left
			c.mu.Unlock()
			if joined {
				c.cfg.Engine.Beat(c.ID())
			}
			c.joinLater(time.Now())
			c.sweep(time.Now())
			c.noteDraining()
		case <-put.C:
			c.publish()
			c.checkClock()
		}
	}
}

// joinLater joins once the engine has come, if it was away at the start.
func (c *Cluster) joinLater(now time.Time) {
	c.mu.Lock()
	wait := c.joined || !c.synced || now.Before(c.joinAgain)
	if !wait {
		c.joinAgain = now.Add(recordEvery)
	}
	c.mu.Unlock()
	if wait {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, recordEvery)
	defer cancel()
	err := c.enter(ctx)
	if err == nil {
		err = c.checkPeers(ctx)
	}
	if err != nil && c.ctx.Err() == nil {
		c.cfg.Log.Error("cluster.not_joined", "err", err)
	}
}

// checkAddress asks who answers where the others connect to this node: such an address may have been
// copied from another node. No answer means nothing, since this node may not reach itself by it.
func (c *Cluster) checkAddress() {
	h, err := c.Ask(c.ctx, c.cfg.Address)
	if err == nil && h.ID != c.ID() {
		c.cfg.Log.Error("node.address_taken", "address", c.cfg.Address, "node", h.ID, "name", h.Name,
			"text", "another node answers at this one's --node-advertise: no other node reaches the sessions of this one")
	}
}

// noteDraining publishes at once that this node has begun to drain, or goes on.
func (c *Cluster) noteDraining() {
	now := c.cfg.Draining()
	c.mu.Lock()
	changed := c.draining != now
	c.draining = now
	c.mu.Unlock()
	if changed {
		c.publish()
	}
}

func (c *Cluster) publish() {
	c.mu.Lock()
	joined := c.joined && !c.left
	c.mu.Unlock()
	if joined {
		ctx, cancel := context.WithTimeout(c.ctx, recordEvery)
		defer cancel()
		c.cfg.Engine.PutNode(ctx, c.ID(), c.ownRecord("")) // the engine says when it is away
	}
}

func (c *Cluster) checkClock() {
	skew, ok := c.cfg.Engine.Skew()
	c.mu.Lock()
	bad := ok && skew.Abs() >= SkewWarning
	say := bad && !c.warned
	c.warned = bad
	c.mu.Unlock()
	if say {
		c.cfg.Log.Warn("clock.skewed", "skew", skew.Round(time.Millisecond), "text", "this machine's clock differs from the NATS server's")
	}
}

// sweep notes which nodes have fallen silent, and forgets those that were for long. While the engine
// is away nobody is heard, and so nobody is silent; the same if this node hears none of the others.
func (c *Cluster) sweep(now time.Time) {
	c.mu.Lock()
	var fell []Node
	for id, p := range c.peers {
		switch {
		case !c.up:
		case now.Sub(c.lastLocked(id, p)) > forgetAfter:
			p.cutDials()
			delete(c.peers, id)
		case p.gone == "" && !p.silent && c.quietLocked(id, now) > c.cfg.DeadAfter && c.hearsOthersLocked(id, now):
			p.silent = true
			fell = append(fell, c.nodeLocked(p, now))
		}
	}
	for _, m := range []map[string]time.Time{c.heard, c.asked} {
		if len(m) > rememberHeard {
			clear(m)
		}
	}
	c.mu.Unlock()
	for _, n := range fell {
		c.cfg.Log.Warn("node.silent", "node", n.ID, "name", n.Name, "address", n.Address, "heartbeat_age", n.HeartbeatAge.Round(time.Millisecond), "sessions", n.Sessions)
		c.run.Go(func() { c.Judge(c.ctx, n.ID) }) // perhaps it was killed: nobody may ask for its sessions
	}
}

// lastLocked is when anything was heard of a peer.
func (c *Cluster) lastLocked(id string, p *peer) time.Time {
	if h := c.heard[id]; h.After(p.recordAt) {
		return h
	}
	return p.recordAt
}

// quietLocked is for how long a node was not heard that could have been.
func (c *Cluster) quietLocked(id string, now time.Time) time.Duration {
	since := c.heard[id]
	if c.upSince.After(since) {
		since = c.upSince
	}
	return now.Sub(since)
}

// EngineUp implements EngineHandler.
func (c *Cluster) EngineUp(s EngineStatus) {
	c.mu.Lock()
	c.up, c.synced, c.upSince = true, false, time.Now()
	back := c.lost
	c.lost = false
	calls := slices.Clone(c.onUp)
	c.mu.Unlock()
	if back {
		c.cfg.Log.Info("engine.back", "server", s.URL, "version", s.Version)
	}
	for _, f := range calls {
		go f()
	}
}

// OnEngineUp registers f, which is called in a goroutine each time the engine is connected: messages may
// have been lost before.
func (c *Cluster) OnEngineUp(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onUp = append(c.onUp, f)
}

// OnSynced registers f, which is called in a goroutine each time the engine has its buckets, which may be
// new or have had no leader for a while.
func (c *Cluster) OnSynced(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onSynced = append(c.onSynced, f)
}

// EngineDown implements EngineHandler.
func (c *Cluster) EngineDown(err error) {
	c.mu.Lock()
	was := c.up && c.ctx.Err() == nil
	if c.synced {
		c.unsynced = time.Now()
	}
	c.up, c.synced = false, false
	c.lost = c.lost || was
	c.mu.Unlock()
	if was {
		c.cfg.Log.Error("engine.lost", "err", err, "text", "sessions and resumes go on; new nodes are not seen, and nobody is judged silent")
	}
}

// Record implements EngineHandler.
func (c *Cluster) Record(id string, value []byte) {
	if value == nil {
		return // the table goes by what it hears
	}
	r, err := parseRecord(id, value)
	if err != nil {
		c.cfg.Log.Warn("node.bad_record", "err", err)
		return
	}
	now := time.Now()
	c.mu.Lock()
	if id == c.id {
		c.mu.Unlock()
		return
	}
	p, known := c.peers[id]
	if !known {
		p = &peer{}
		c.peers[id] = p
	}
	left := r.State == stateLeft
	back := p.silent || p.gone != "" && !left
	said := left && !p.left
	p.record, p.recordAt, p.silent, p.left, p.judgedAt = r, now, false, left, time.Time{}
	switch c.heard[id] = now; {
	case !left:
		p.gone = "" // it lives after all
	case p.gone == "":
		p.gone = "it has left"
	}
	settle := p.gone == "" && c.hasRivalLocked(p, now)
	c.mu.Unlock()
	if settle {
		go c.settle(r.Address)
	}
	switch {
	case said && known:
		c.cfg.Log.Info("node.gone", "node", id, "name", r.Name, "address", r.Address, "evidence", "it has left", "sessions", r.Sessions)
	case left:
	case !known || back:
		c.logUp(r)
	}
}

func (c *Cluster) logUp(r record) {
	c.cfg.Log.Info("node.up", "node", r.ID, "name", r.Name, "address", r.Address, "version", r.Version)
}

// lose notes that a node has ended without having left. Its sessions are lost, as many as it had at its
// last record, which may be 3 seconds old.
func (c *Cluster) lose(n Node, evidence string) {
	c.cfg.Log.Warn("node.gone", "node", n.ID, "name", n.Name, "address", n.Address, "evidence", evidence, "sessions", n.Sessions)
	c.mu.Lock()
	calls := slices.Clone(c.onLost)
	c.mu.Unlock()
	for _, f := range calls {
		f(n)
	}
}

// OnLost registers f, which is called for each node that ended without having left. f must return soon.
func (c *Cluster) OnLost(f func(Node)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onLost = append(c.onLost, f)
}

// Synced implements EngineHandler.
func (c *Cluster) Synced() {
	c.mu.Lock()
	if !c.synced { // the outage counts for no grace period
		for id, at := range c.asked {
			c.asked[id] = at.Add(time.Since(c.unsynced))
		}
	}
	c.synced = true
	calls := slices.Clone(c.onSynced)
	c.mu.Unlock()
	for _, f := range calls {
		go f()
	}
}

// Heartbeat implements EngineHandler.
func (c *Cluster) Heartbeat(id string) {
	c.mu.Lock()
	p := c.peers[id]
	if id == c.id || len(id) != IDLen || p != nil && p.left {
		c.mu.Unlock()
		return
	}
	c.heard[id] = time.Now()
	back := p != nil && (p.silent || p.gone != "")
	var r record
	if back {
		p.silent, p.gone, p.judgedAt = false, "", time.Time{}
		r = p.record
	}
	c.mu.Unlock()
	if back {
		c.logUp(r)
	}
}

// ID is this node's id. It changes only before the node has joined, if another node has it.
func (c *Cluster) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// Lineage identifies this node among all that may have drawn its id. An upgrade keeps it.
func (c *Cluster) Lineage() string { return c.cfg.Lineage }

// Hello describes this node to others.
func (c *Cluster) Hello() Hello {
	return Hello{ID: c.ID(), Name: c.cfg.NodeName, Cluster: c.cfg.Name, Version: c.cfg.Version, Level: Level, Formats: c.cfg.Formats, Time: time.Now().UTC()}
}

// ReloadEngine has the engine read its files again.
func (c *Cluster) ReloadEngine() error { return c.cfg.Engine.Reload() }

// Engine describes the connection to the engine.
func (c *Cluster) Engine() EngineStatus { return c.cfg.Engine.Status() }

// Nodes lists all nodes that are known, this one first, the others by name.
func (c *Cluster) Nodes() []Node {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	self := Node{ID: c.id, Name: c.cfg.NodeName, Address: c.cfg.Address, Version: c.cfg.Version, Formats: c.cfg.Formats, Level: Level, Load: c.cfg.Load(), Self: true}
	if c.draining {
		self.State = StateDraining
	}
	list := []Node{self}
	for id, p := range c.peers {
		if !c.up || c.quietLocked(id, now) <= hideAfter {
			list = append(list, c.nodeLocked(p, now))
		}
	}
	slices.SortFunc(list[1:], func(a, b Node) int {
		if n := strings.Compare(a.Name, b.Name); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Known returns what this node knows of others, for its successor.
func (c *Cluster) Known() []Known {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Known
	for id, p := range c.peers {
		list = append(list, Known{
			ID: id, Name: p.Name, Address: p.Address, Version: p.Version, Formats: p.Formats, Level: p.Level, State: p.State,
			Heard: c.lastLocked(id, p), Gone: p.gone,
		})
	}
	return list
}

func (c *Cluster) nodeLocked(p *peer, now time.Time) Node {
	n := Node{ID: p.ID, Name: p.Name, Address: p.Address, Version: p.Version, Formats: p.Formats, Level: p.Level, Load: p.Load}
	n.HeartbeatAge = now.Sub(c.lastLocked(p.ID, p))
	switch {
	case p.gone != "":
		n.State = StateGone
	case p.silent:
		n.State = StateSilent
	case p.State == StateDraining.String():
		n.State = StateDraining
	}
	return n
}

// Find returns a node by its id or its name. Of several with one name, one that is up is preferred.
func (c *Cluster) Find(idOrName string) (found Node, ok bool) {
	for _, n := range c.Nodes() {
		switch {
		case n.ID == idOrName:
			return n, true
		case n.Name == idOrName && (!ok || n.State < found.State):
			found, ok = n, true
		}
	}
	return found, ok
}

// Leave publishes that this node has left, and stops.
func (c *Cluster) Leave(ctx context.Context) {
	c.mu.Lock()
	joined := c.joined && !c.left
	c.left = true
	c.mu.Unlock()
	if joined {
		c.cfg.Engine.PutNode(ctx, c.ID(), c.ownRecord(stateLeft))
	}
	c.Stop()
}

// Stop stops without a word: a successor continues this node.
func (c *Cluster) Stop() {
	c.stop()
	c.run.Wait()
	c.cfg.Engine.Close()
}

// ownRecord is this node's record, in its present state if that is "".
func (c *Cluster) ownRecord(state string) []byte {
	load := c.cfg.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == "" {
		state = StateUp.String()
		if c.draining {
			state = StateDraining.String()
		}
	}
	b, err := json.Marshal(record{
		ID: c.id, Name: c.cfg.NodeName, Address: c.cfg.Address, Version: c.cfg.Version, Formats: c.cfg.Formats, Level: Level,
		State: state, Lineage: c.cfg.Lineage, Load: load,
	})
	if err != nil {
		panic(err) // it has only strings and numbers
	}
	return b
}

// Dial returns a TLS connection to a node's --node-listen. Both sides are verified, and the node has
// this id. The error is ErrUnknown, ErrGone, ErrBusy, ErrSilent, ErrOtherNode, or that of the connection.
//
// The kernel of a process that stands still goes on taking connections. So a node that is not heard is
// asked for an answer first, once for all, and a judgement ends the connections being made: their
// clients get a retry delay before they give up by themselves.
func (c *Cluster) Dial(ctx context.Context, id string) (net.Conn, error) {
	c.mu.Lock()
	p := c.peers[id]
	if p != nil && p.silent && p.gone == "" {
		c.mu.Unlock()
		if j := c.Judge(ctx, id); j.Verdict != Alive {
			return nil, ErrSilent
		}
		c.mu.Lock()
		p = c.peers[id]
	}
	if p == nil || p.gone != "" {
		c.mu.Unlock()
		if p != nil {
			return nil, ErrGone
		}
		return nil, ErrUnknown
	}
	if p.dials == nil {
		p.dials = make(chan struct{}, maxDials)
	}
	if p.reach == nil {
		p.reach, p.cut = context.WithCancel(c.ctx)
	}
	dials, address, reach := p.dials, p.Address, p.reach
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(reach, cancel)()
	conn, err := c.dial(ctx, id, address, dials)
	if err != nil && reach.Err() != nil {
		err = ErrSilent
	}
	return conn, err
}

// dial connects as soon as there is a place in dials.
func (c *Cluster) dial(ctx context.Context, id, address string, dials chan struct{}) (net.Conn, error) {
	select {
	case dials <- struct{}{}:
		defer func() { <-dials }()
		return c.connect(ctx, id, address)
	case <-time.After(dialTurn):
		return nil, ErrBusy
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Cluster) connect(ctx context.Context, id, address string) (net.Conn, error) {
	conn, err := c.connectOnce(ctx, id, address)
	if errors.Is(err, errNotResumed) { // an upgraded node has lost the key of its sessions
		conn, err = c.connectOnce(ctx, id, address)
	}
	if err != nil && otherKeys(err) {
		c.Refused(address, err)
	}
	return conn, handshakeError(err)
}

func (c *Cluster) connectOnce(ctx context.Context, id, address string) (net.Conn, error) {
	raw, err := c.cfg.Dialer(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, c.cfg.Identity.client(id))
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// Refused notes in the log that a node has other keys.
func (c *Cluster) Refused(address string, err error) {
	now := time.Now()
	c.mu.Lock()
	again := now.Sub(c.refused[address]) < refusedEvery
	if !again {
		if len(c.refused) > refusedKept {
			clear(c.refused)
		}
		c.refused[address] = now
	}
	c.mu.Unlock()
	if !again {
		c.cfg.Log.Error("node.refused", "address", address, "why", "other keys", "err", err)
	}
}

// Transport makes requests to nodes: a URL's host is a node's id.
func (c *Cluster) Transport() *http.Transport {
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			id, _, _ := net.SplitHostPort(address)
			return c.Dial(ctx, id)
		},
		MaxIdleConnsPerHost: idleConns, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: 5 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}

// Ask asks which node answers at an address, and waits for a second at most. This node need not have joined.
func (c *Cluster) Ask(ctx context.Context, address string) (Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return c.hello(ctx, address)
}

// hello asks which node answers at an address.
func (c *Cluster) hello(ctx context.Context, address string) (h Hello, err error) {
	conn, err := c.connect(ctx, "", address)
	if err != nil {
		return h, err
	}
	defer conn.Close()
	if until, ok := ctx.Deadline(); ok {
		conn.SetDeadline(until)
	}
	t := &http.Transport{
		DialTLSContext:    func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10,
	}
	defer t.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://node"+HelloPath, nil)
	if err != nil {
		return h, err
	}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&h)
	return h, err
}

// Errors of Dial.
var (
	// ErrUnknown: the table has no address for this id.
	ErrUnknown = errors.New("no such node is known")
	// ErrGone: that node has ended.
	ErrGone = errors.New("that node is gone")
	// ErrBusy: too many connections to that node are being made, and for too long.
	ErrBusy = errors.New("too many connections to that node are being made")
	// ErrSilent: that node does not answer.
	ErrSilent = errors.New("that node does not answer")
	// ErrOtherNode: another node answers at its address.
	ErrOtherNode = errors.New("another node answers at that address")
)

// ConnectionRefused reports whether a machine has refused a connection: nobody listens there.
func ConnectionRefused(err error) bool { return refused(err) }

func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
