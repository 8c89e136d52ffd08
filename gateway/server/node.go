package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reseat/gateway"
	"reseat/gateway/cluster"
	"reseat/gateway/cluster/engine"
	"reseat/gateway/config"
	"reseat/gateway/demo"
	"reseat/gateway/hop"
	"reseat/gateway/link"
	"reseat/gateway/owner"
	"reseat/gateway/secure"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/upgrade"
	"reseat/tokens"
)

const (
	// The start waits for NATS for joinWait. Without it the node serves alone at first.
	joinWait = 3 * time.Second
	// The exit waits for NATS for leaveWait.
	leaveWait   = time.Second
	playersPath = "/node/v1/players/"
	// Seats that nobody comes back for are looked for every sweepEvery.
	sweepEvery = 30 * time.Second
)

// A member is this process's place in a cluster.
type member struct {
	*cluster.Cluster
	identity *cluster.Identity
	players  *cluster.Players
	seats    *cluster.Seats // nil without durable routes
	stop     func()         // ends the sweeps
	log      *slog.Logger
	gateway  *gateway.Gateway // set once, before the node joins
	http     *http.Client     // to other nodes
	engine   *engine.Engine
	seconds  *prometheus.HistogramVec // what its operations took
	api      http.Handler             // the control API of this node alone; set before the listener is served
	demo     http.Handler             // what pages ask other nodes; nil without --demo and --dev
	server   *http.Server
	ln       net.Listener
	served   bool // the listener
	links    *link.Links
	// elsewhere: another process is this node, a predecessor or a successor.
	elsewhere atomic.Bool
}

// newNode makes the node that the settings describe, on an open listener. older is the
// predecessor, nil if there is none. It connects to nothing yet.
func newNode(set *config.Settings, keys *tokens.Keys, ln net.Listener, log *slog.Logger, older *upgrade.Predecessor) (*member, error) {
	c, name := set.Cluster, nameOf(set.Cluster)
	n := &member{log: log, identity: cluster.DerivedIdentity(keys.Derive)}
	n.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "reseat_cluster_engine_seconds", Help: "How long operations of NATS took, by operation.", Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 13),
	}, []string{"op"})
	o := engineOptions(c, log)
	o.Seats = set.Durable()
	o.Observe = func(op string, took time.Duration) { n.seconds.WithLabelValues(op).Observe(took.Seconds()) }
	e, err := engine.New(o)
	if err != nil {
		return nil, err
	}
	cfg := cluster.Config{
		Name: c.Name, NodeName: name, Address: advertise(c, ln.Addr().String()), Version: config.Version(), Formats: session.Formats, DeadAfter: c.DeadAfter,
		Engine: e, Identity: n.identity, Derive: keys.Derive, Log: log, Load: n.load, Draining: func() bool { return n.gateway.Draining() }, Dialer: transport.DialLayered,
	}
	if older != nil {
		is := older.Node()
		cfg.ID, cfg.Lineage, cfg.Known = is.NodeID, is.NodeLineage, is.Nodes
		n.elsewhere.Store(cfg.ID != "")
	}
	if n.Cluster, err = cluster.New(cfg); err != nil {
		return nil, err
	}
	n.engine, n.http = e, &http.Client{Transport: n.Transport()}
	n.players = cluster.NewPlayers(n.ID, e, n, keys.Derive, log)
	if o.Seats {
		n.seats = cluster.NewSeats(n.ID, e, keys.Derive, log)
		n.seats.OnFenced(func(session string, epoch uint64) { n.gateway.Owner().Fenced(session, epoch) })
		n.OnSynced(func() { n.gateway.Owner().RenewSeats() })
	}
	n.OnSynced(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		n.players.Announce(ctx, n.gateway.Owner().Supersede)
	})
	n.links = link.NewLinks(link.Options{
		Listener: ln.Addr(), Dial: n.Cluster.Dial, Retired: n.elsewhere.Load, Host: func(l *link.Link, c net.Conn) bool { return n.gateway.Driver().HostLink(l, c) },
	})
	n.ln = secure.Terminate(ln, n.identity.Server(n.ID, n.Refused))
	n.server = &http.Server{
		Handler: n, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, ErrorLog: serverLog(log),
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 alone
	}
	return n, nil
}

// use makes g the node's gateway, and adds the node's metrics to its own.
func (n *member) use(g *gateway.Gateway) {
	n.gateway = g
	m := g.Watch().Metrics
	m.Registry.MustRegister(n.seconds, nodeMetrics{n})
	n.players.Unchecked = m.Vec("reseat_duplicates_unchecked_total", "Sessions of players that began without NATS, which --duplicate could not compare with those at other nodes.", "", "").WithLabelValues().Inc
}

// Dial implements owner.Cluster. Clients that are passed on share a link.
func (n *member) Dial(ctx context.Context, node string) (net.Conn, error) {
	reach, err := n.Reach(ctx, node)
	if err != nil {
		return nil, err
	}
	return n.links.Open(reach, node)
}

func nameOf(c config.Cluster) string {
	if c.NodeName != "" {
		return c.NodeName
	}
	name, _ := os.Hostname()
	return name
}

func engineOptions(c config.Cluster, log *slog.Logger) engine.Options {
	return engine.Options{URLs: c.URLs, Name: c.Name, CredsFile: c.CredsFile, CAFile: c.CAFile, Plaintext: c.Plaintext, NodeName: nameOf(c), Log: log}
}

// checkNodeFiles reads the files for NATS, and makes certificates of the token keys. The error names the flag.
func checkNodeFiles(c config.Cluster, keys *tokens.Keys) error {
	if !c.Enabled() {
		return nil
	}
	o := engineOptions(c, nil)
	return errors.Join(o.Check(), cluster.DerivedIdentity(keys.Derive).Load(""))
}

// advertise is the address of the node listener for other nodes.
func advertise(c config.Cluster, listen string) string {
	if c.Advertise != "" {
		return c.Advertise
	}
	host, port, _ := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return net.JoinHostPort(host, port)
	}
	for _, raw := range c.URLs {
		u, err := url.Parse(raw)
		if err != nil {
			continue
		}
		conn, err := net.Dial("udp", u.Host) // sends nothing
		if err != nil {
			continue
		}
		defer conn.Close()
		return net.JoinHostPort(conn.LocalAddr().(*net.UDPAddr).IP.String(), port)
	}
	name, _ := os.Hostname()
	return net.JoinHostPort(name, port)
}

// reload makes the certificates again of the token keys, and reads the files for NATS.
func (n *member) reload() error {
	err := n.identity.Load(n.ID())
	if err == nil {
		err = n.ReloadEngine()
	}
	return err
}

// end leaves the cluster, unless another process goes on as this node.
func (n *member) end() {
	if n.stop != nil {
		n.stop()
	}
	if n.elsewhere.Load() {
		n.Stop()
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
		n.Leave(ctx)
		cancel()
	}
	n.server.Close()
	n.links.Close()
	n.http.CloseIdleConnections()
}

func (n *member) load() cluster.Load {
	in, out := n.gateway.Owner().Forwarded()
	return cluster.Load{Sessions: n.gateway.Living(), ForwardsIn: in, ForwardsOut: out}
}

// ServeHTTP serves the node listener. TLS has made sure that a node asks.
func (n *member) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch id, isPlayer := strings.CutPrefix(r.URL.Path, playersPath); {
	case hop.Passed(r.Header):
		n.gateway.Owner().ServeNode(w, r, n.gateway)
	case r.URL.Path == link.Path:
		n.links.ServeHTTP(w, r)
	case r.URL.Path == cluster.HelloPath && r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(n.Hello())
	case strings.HasPrefix(r.URL.Path, apiPath):
		n.api.ServeHTTP(w, r)
	case n.demo != nil && strings.HasPrefix(r.URL.Path, demo.NodePath):
		n.demo.ServeHTTP(w, r)
	case r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, owner.HandoffPath):
		n.gateway.Owner().ServeHandoff(w, r)
	case isPlayer && r.Method == http.MethodDelete:
		n.gateway.Owner().Supersede(id)
		w.WriteHeader(http.StatusNoContent)
	case isPlayer && r.Method == http.MethodGet && n.gateway.Owner().Answers(r.Context(), id):
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

// call sends a request to the node with an id.
func (n *member) call(ctx context.Context, method, id, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+id+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return n.http.Do(r)
}

// HandOff implements owner.Cluster.
func (n *member) HandOff(ctx context.Context, id string, h *owner.Handoff) error {
	body, err := json.Marshal(h)
	if err != nil {
		return err
	}
	resp, err := n.call(ctx, http.MethodPost, id, owner.HandoffPath+h.Session, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return owner.HandoffError(resp)
}

// keepSwept has seats swept until end.
func (n *member) keepSwept() {
	if n.seats == nil {
		return
	}
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	go n.sweepSeats(ctx)
}

// sweepSeats deletes the seats of sessions that nobody comes back for, and reports them as ended.
func (n *member) sweepSeats(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !n.Engine().Up {
				continue
			}
			if err := n.seats.Sweep(ctx, n.Lost, n.Shares, n.gateway.Owner().SeatOver); err != nil && ctx.Err() == nil {
				n.log.Warn("seats.not_swept", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// Supersede implements cluster.PlayerPeers.
func (n *member) Supersede(id, session string) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := n.askPlayer(ctx, http.MethodDelete, id, session); err != nil {
			n.log.Warn("player.not_superseded", "session", session, "node", id, "err", err)
		}
	}()
}

// Answers implements cluster.PlayerPeers.
func (n *member) Answers(ctx context.Context, id, session string) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	status, err := n.askPlayer(ctx, http.MethodGet, id, session)
	return err == nil && status == http.StatusNoContent
}

func (n *member) askPlayer(ctx context.Context, method, id, session string) (status int, err error) {
	resp, err := n.call(ctx, method, id, playersPath+url.PathEscape(session), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// nodeMetrics are the metrics of a node.
type nodeMetrics struct{ *member }

var (
	descNodes    = prometheus.NewDesc("reseat_cluster_nodes", "Nodes of the cluster that this one knows, by state.", []string{"state"}, nil)
	descEngineUp = prometheus.NewDesc("reseat_cluster_engine_up", "1 while this node is connected to NATS, else 0.", nil, nil)
	descBeat     = prometheus.NewDesc("reseat_node_heartbeat_age_seconds", "How long ago the node that was heard last of all was heard; gone nodes do not count.", nil, nil)
	descLinks    = prometheus.NewDesc("reseat_node_links", "Connections that carry the clients which one node passes on to another, by direction: out to nodes, in from nodes.", []string{"direction"}, nil)
	descSkew     = prometheus.NewDesc("reseat_clock_skew_seconds", "How far this machine's clock is ahead of that of the NATS server.", nil, nil)
)

func (m nodeMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descNodes, descEngineUp, descBeat, descLinks, descSkew} {
		ch <- d
	}
}

func (m nodeMetrics) Collect(ch chan<- prometheus.Metric) {
	counts := map[cluster.State]float64{cluster.StateUp: 0, cluster.StateDraining: 0, cluster.StateSilent: 0, cluster.StateGone: 0}
	var oldest time.Duration
	for _, one := range m.Nodes() {
		counts[one.State]++
		if one.State != cluster.StateGone {
			oldest = max(oldest, one.HeartbeatAge)
		}
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for state, count := range counts {
		gauge(descNodes, count, state.String())
	}
	up := 0.0
	if m.engine.Status().Up {
		up = 1
	}
	skew, _ := m.engine.Skew()
	in, out := m.links.Count()
	gauge(descLinks, float64(in), "in")
	gauge(descLinks, float64(out), "out")
	gauge(descEngineUp, up)
	gauge(descBeat, oldest.Seconds())
	gauge(descSkew, skew.Seconds())
}
