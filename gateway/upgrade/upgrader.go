package upgrade

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/handover"
	"reseat/gateway/listen"
	"reseat/gateway/watch"
	"reseat/gateway/webhook"
)

// A Server is the process around the sessions, as an upgrade sees it.
type Server interface {
	// Refusal says why no other process can replace this one, nil if one can.
	Refusal() error
	// Node describes the process as a node; the zero Node is in no cluster.
	Node() Node

	// LeaveNode leaves the cluster to the successor, which is the node from now on.
	LeaveNode()
	// FinishRequests answers the requests in flight, and closes connections as they become
	// idle. It closes quiet as soon as no request can come any more but on a connection that had
	// one in flight.
	FinishRequests(quiet chan<- struct{})
	// FinishPosts ends the webhook. With handOver it returns what is not delivered, instead of
	// posting it.
	FinishPosts(handOver bool) []webhook.Queued

	// Serve begins to accept connections, as the node that the predecessor was.
	Serve()
	// Inject has the server of a listener accept a connection.
	Inject(listener string, c net.Conn)
	// ContinuePosts begins the webhook with what the predecessor has not delivered.
	ContinuePosts([]webhook.Queued)
}

// A Node is a process's place in a cluster: see cluster.Config.
type Node struct {
	NodeID      string // "": it is in none
	NodeLineage string
	Nodes       []cluster.Known // the other nodes
}

// Settings configure the upgrades of a process.
type Settings struct {
	Version     string
	Listen      map[string]string // of the listeners, by name
	Takeover    string            // --takeover
	Socket      string            // --upgrade-socket
	Timeout     time.Duration     // --upgrade-timeout
	Pump        time.Duration     // --upgrade-pump
	BufferTotal int64             // --buffer-total
	Webhook     bool              // --webhook is set
	Log         *slog.Logger

	// For a process that SIGUSR2 starts.
	Args, Environ []string
	Stderr        io.Writer
}

// Parts are the parts of a process that an Upgrader acts on.
type Parts struct {
	Sessions  *Sessions
	Server    Server
	Listeners map[string]*listen.Listener // by name
	Recorder  interface {                 // of the dashboard's history
		Samples() []watch.Totals
		Restore([]watch.Totals)
	}
}

// The names of listeners.
const (
	Clients = "clients"
	Admin   = "admin"
	Nodes   = "nodes"
)

// A Status describes the last upgrade of the process, docs/control-api.md.
type Status struct {
	State    string         `json:"state"` // none, running, ok, refused or aborted
	From     string         `json:"from"`  // version of the older process
	To       string         `json:"to"`    // version of the newer process; "" if not known
	Sessions StatusSessions `json:"sessions"`
	FreezeMS float64        `json:"freeze_ms"` // how long all sessions stood still
	Error    string         `json:"error"`     // "" if there was none
}

// StatusSessions counts the sessions of an upgrade.
type StatusSessions struct {
	Moved  int `json:"moved"`
	Pumped int `json:"pumped"` // those of which the older process forwards a connection's bytes
	Kept   int `json:"kept"`   // those that followed later
}

// An Upgrader hands the sessions of this process over to a successor. It runs one upgrade
// at a time.
type Upgrader struct {
	Parts
	set     Settings
	binary  string
	log     *slog.Logger
	metrics *metrics
	pump    *pump
	socket  *handover.Listener // nil without one

	mu      sync.Mutex
	running bool
	cancel  context.CancelFunc // of the upgrade that runs
	ended   chan struct{}      // closed when that has ended
	last    Status
	older   []*handover.Conn // to processes that have not exited yet
	settled bool             // the predecessor has handed everything over
	// forwardedUntil is the time at which older processes stop forwarding for this one; zero:
	// none forwards.
	forwardedUntil time.Time

	handed chan *HandOver
}

// A HandOver is one upgrade, on the predecessor's side.
type HandOver struct {
	u      *Upgrader
	ch     *handover.Conn
	ctx    context.Context
	step   string // for the log, if it fails
	format int
	posts  bool // the successor continues the webhook
	unacked,
	tombstones uint64 // number of the last one sent
	events uint64 // ID of the last one sent

	hold                   func() bool   // keeps a cancelled ctx from interrupting ch from here on; false: it has
	adopted, serving, gone chan struct{} // closed when the successor says so, or has gone
}

// NewUpgrader returns the Upgrader of a process.
func NewUpgrader(set Settings, parts Parts) *Upgrader {
	return &Upgrader{
		Parts: parts, set: set, binary: ownBinary(), log: set.Log, metrics: newMetrics(parts.Sessions.Watch.Metrics), pump: newPump(), handed: make(chan *HandOver, 1),
	}
}

// HandedOver receives the upgrade by which a successor has got all sessions.
func (u *Upgrader) HandedOver() <-chan *HandOver { return u.handed }

// ownBinary returns the path that this process was started by: an upgrade starts what is there
// then, which may be another file, also where the path is a symbolic link.
func ownBinary() string {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		path, _ = os.Executable()
	}
	return path
}

// forwardedFor returns the time for which older processes go on forwarding for this one.
func (u *Upgrader) forwardedFor() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.forwardedUntil.IsZero() {
		return 0
	}
	return max(time.Until(u.forwardedUntil), 0)
}

// Status describes the last upgrade.
func (u *Upgrader) Status() Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last.State == "" {
		return Status{State: None}
	}
	return u.last
}

// Settle notes that no predecessor has anything left to hand over.
func (u *Upgrader) Settle() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.settled = true
}

// watchOlder keeps account of an older process, until that has exited. late is called with what
// it hands over nevertheless, nil if it cannot any more.
func (u *Upgrader) watchOlder(ch *handover.Conn, late func(*handover.Message)) {
	u.mu.Lock()
	if !slices.Contains(u.older, ch) {
		u.older = append(u.older, ch)
	}
	u.mu.Unlock()
	for {
		m, err := ch.Receive()
		if err != nil {
			break
		}
		if late != nil {
			late(&m)
		}
		m.Close()
	}
	ch.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.older = slices.DeleteFunc(u.older, func(other *handover.Conn) bool { return other == ch })
}

// noteForwarding notes how long older processes forward bytes for this one.
func (u *Upgrader) noteForwarding(any bool, pump, older time.Duration) {
	if !any {
		return
	}
	if older > 0 {
		pump = min(pump, older)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forwardedUntil = time.Now().Add(pump)
}

// olderChannels returns duplicates of the channels to older processes: one that exits now closes
// its channel, whose descriptor may be another's by the time it is sent.
func (u *Upgrader) olderChannels() (fds []int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, ch := range u.older {
		if fd, err := ch.Duplicate(); err == nil { // otherwise it has just ended
			fds = append(fds, fd)
		}
	}
	return fds
}
