package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"reseat/gateway/events"
	"reseat/gateway/handshake"
	"reseat/gateway/listen"
	"reseat/gateway/registry"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/tokens"
	"reseat/upstream"
)

// A Gateway is the http.Handler of the client address. It owns the sessions:
// it makes them, finds them for a resume, and remembers for a while how they
// ended.
type Gateway struct {
	cfg     Config
	id      string // of this process: see ViaHeader
	log     *slog.Logger
	keys    *tokens.Keys
	clock   *transport.Clock
	driver  *transport.Driver
	store   *replay.Store
	metrics *metrics
	events  *events.Hub
	reg     *registry.Registry

	conns, adminConns *listen.ConnTracker // that wait

	refused      refusalRing
	refusals     *limitedLog
	exhaustedLog *limitedLog   // --buffer-total
	shedLog      *limitedLog   // of connections that wait
	replays      *rate.Limiter // of token.replayed

	table   *table
	pages   map[string]http.Handler
	proxies []interface{ Close() }
	signing chan struct{} // as many as may sign a token at once

	draining  atomic.Bool // new sessions are refused; drain.go sets it
	drain     drain
	dials     dials
	redials   redialer
	tags      atomic.Uint64   // of the sessions' data: never one twice
	exhausted chan struct{}   // one slot: the store has refused somebody
	ctx       context.Context // until Close
	stop      context.CancelFunc
	began     time.Time
	running   sync.WaitGroup
}

// New makes a Gateway and starts what it needs in the background; Close stops
// it. It fails for a route pattern that cannot be.
func New(cfg Config) (*Gateway, error) {
	cfg = cfg.withDefaults()
	ctx, stop := context.WithCancel(context.Background())
	g := &Gateway{
		cfg: cfg, id: newID(), log: cfg.Log, keys: cfg.Keys,
		clock:     transport.NewClock(),
		events:    events.New(time.Now),
		table:     newTable(cfg.UnsafePaths),
		pages:     make(map[string]http.Handler),
		signing:   make(chan struct{}, runtime.GOMAXPROCS(0)),
		exhausted: make(chan struct{}, 1),
		ctx:       ctx, stop: stop, began: time.Now(),
	}
	g.driver = transport.NewDriver(cfg.Driver, g.clock)
	g.store = replay.NewStore(cfg.BufferTotal, g.noteExhausted)
	g.reg = registry.New(g.clock, registry.Limits{Sessions: cfg.MaxSessions, PerAddr: cfg.MaxSessionsPerIP, Open: SessionsWithin(cfg.Descriptors)})
	g.metrics = newMetrics(g)
	g.refusals = &limitedLog{log: g.log, limit: rate.NewLimiter(refusalsPerSecond, refusalsAtOnce), total: g.metrics.unlogged}
	g.exhaustedLog = &limitedLog{log: g.log, limit: rate.NewLimiter(rate.Every(10*time.Second), 1), total: g.metrics.unlogged}
	g.shedLog = &limitedLog{log: g.log, limit: rate.NewLimiter(rate.Every(10*time.Second), 1), total: g.metrics.unlogged}
	g.trackConns()
	g.dials.conns = g.conns
	g.redials = redialer{of: make(map[*registry.Record]*redial), ctx: ctx, running: &g.running, dials: &g.dials, request: g.upstreamRequest}
	g.replays = rate.NewLimiter(replaysPerSecond, replaysAtOnce)
	for _, r := range cfg.Routes {
		g.addRoute(r)
	}
	g.running.Go(func() { g.relieve(ctx) })
	return g, nil
}

func (c Config) withDefaults() Config {
	if c.TokenTTL == 0 {
		c.TokenTTL = time.Hour
	}
	if c.BufferTotal == 0 {
		c.BufferTotal = 1 << 30
	}
	if c.Drain == 0 {
		c.Drain = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Page has path served by h at the client address, before all routes. It must
// be called before the first request.
func (g *Gateway) Page(path string, h http.Handler) { g.pages[path] = h }

// ServeHTTP serves the client address.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !endIsCertain(r) {
		w.Header().Set("Connection", "close")
	}
	if g.loops(r) {
		g.refuseLoop(w, r)
		return
	}
	if !handshake.HostAllowed(g.cfg.Hosts, r.Host) {
		g.refuseHTTP(w, r, http.StatusMisdirectedRequest, "host_not_allowed", "this host is not served here", "host", clip(r.Host))
		return
	}
	if r.Method == http.MethodConnect {
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH")
		g.refuseHTTP(w, r, http.StatusMethodNotAllowed, "bad_handshake", "no tunnels here")
		return
	}
	if page := g.pages[r.URL.EscapedPath()]; page != nil && !handshake.Requested(r) { // in no other spelling
		answerWithin(w, upstream.WriteTimeout)
		page.ServeHTTP(w, r)
		return
	}
	r, rt, unsafe := g.locate(r)
	g.serve(w, r, rt, unsafe)
}

// endIsCertain reports whether everybody on the way must have found the end of r in
// the same place. A chunked request may have had a Content-Length, too, which net/http
// does not show, and what stands in front may have gone by that (RFC 9112 section 6.1);
// of HTTP/1.0 net/http does not even show that it was chunked. What follows on such a
// connection is not taken for another request.
func endIsCertain(r *http.Request) bool {
	return r.ProtoMajor > 1 || r.ProtoAtLeast(1, 1) && len(r.TransferEncoding) == 0
}

// Reload reads the key files again and gives attached clients tokens by the
// new key. The token keys are one set, and so are those of each login: where one is no
// good its old keys stay in force, and the others are read all the same. The errors, one
// for each set, name their flags.
func (g *Gateway) Reload() (errs []error) {
	before := g.keys.SigningKeyID()
	if err := g.keys.Reload(); err != nil {
		errs = append(errs, fmt.Errorf("--token-key-file: %w", err))
	} else {
		g.log.Info("keys.reloaded", "kid", g.keys.SigningKeyID())
	}
	for _, v := range g.cfg.logins {
		if err := v.Reload(); err != nil {
			errs = append(errs, fmt.Errorf("--auth-key-file or --auth-jwks: %w", err))
		}
	}
	if g.keys.SigningKeyID() != before {
		g.running.Go(func() {
			for _, e := range g.reg.All() {
				g.renew(e)
			}
		})
	}
	return errs
}

// Close drops every session without ceremony, one that is just being made as soon
// as it is, and stops what runs in the background. Drain comes first where it is to
// be done in order. The last events are those of the sessions that it has ended.
func (g *Gateway) Close() {
	g.endDrain()
	for _, e := range g.reg.All() {
		e.BreakFirst()
		e.Do(func(core *session.Session, now session.Time) { core.Drain(now, 0) })
	}
	g.driver.Close()
	g.stop()
	g.reg.Close()
	g.closeIdle()
	for _, v := range g.cfg.logins {
		v.Close()
	}
	g.running.Wait()
	g.takenLeave()
	g.events.Close()
}

// newID makes a session id: 128 random bits.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
