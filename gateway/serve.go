package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"reseat/gateway/dial"
	"reseat/gateway/front"
	"reseat/gateway/gate"
	"reseat/gateway/handshake"
	"reseat/gateway/owner"
	"reseat/gateway/registry"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/upgrade"
	"reseat/gateway/watch"
	"reseat/upstream"
)

// turnsPerProcessor bounds the handshakes inside the gate, for each processor:
// enough to keep it busy while some of them wait for their loop.
const turnsPerProcessor = 16

// New makes a Gateway and starts its background work, which Close stops. The error names
// a route without upstream, an invalid or repeated pattern, or a missing field of cfg.
func New(cfg Config) (*Gateway, error) {
	if cfg.Keys == nil {
		return nil, errors.New("Config.Keys is missing")
	}
	cfg = cfg.withDefaults()
	ctx, stop := context.WithCancel(context.Background())
	g := &Gateway{
		cfg: cfg, id: registry.NewID(), log: cfg.Log, keys: cfg.Keys,
		clock: cfg.Clock,
		table: front.NewTable(),
		pages: make(map[string]http.Handler),
		ctx:   ctx, stop: stop,
	}
	g.driver = transport.NewDriver(cfg.Driver, cfg.Loops, g.clock)
	g.gate = gate.New(turnsPerProcessor * runtime.GOMAXPROCS(0))
	g.memory = &relief{clock: g.clock, log: g.log, pressed: make(chan struct{}, 1)}
	g.store = replay.NewStore(cfg.BufferTotal, g.memory.press)
	g.reg = registry.New(g.clock, registry.Limits{Sessions: cfg.MaxSessions, PerAddr: cfg.MaxSessionsPerIP, Open: SessionsWithin(cfg.Descriptors)})
	g.watch = watch.New(watch.Options{
		Log: g.log, Registry: g.reg, Store: g.store, Table: g.table, Routes: cfg.Routes,
		ID: g.id, DrainTime: cfg.Drain, MaxSessions: cfg.MaxSessions, Descriptors: cfg.Descriptors,
		Drain: g.DrainInfo, Forwarded: func() (in, out int) { return g.owner.Forwarded() }, Windows: g.windows.Load, Loops: g.driver.LoopStats,
	})
	g.memory.store, g.memory.reg, g.memory.watch = g.store, g.reg, g.watch
	g.trackConns()
	g.refuse = refuser{g.watch, g.conns, g.log}
	g.issuer = newIssuer(&cfg, g.clock)
	g.owner = owner.New(owner.Options{
		Cluster: cfg.Cluster, Seats: cfg.Seats, Players: cfg.Players,
		Ctx: ctx, Running: &g.running, Log: g.log, Watch: g.watch, Gate: g.gate, Clock: g.clock, Driver: g.driver, Keys: g.keys,
		Registry: g.reg, Store: g.store, Table: g.table, Default: cfg.Default, TokenTTL: cfg.TokenTTL,
		Observe:    g.observe,
		Dialling:   func(e *registry.Record) bool { return g.dialer.Dialling(e) },
		Late:       func(id string) bool { return g.upgrade.Late.Has(id) },
		HandedOver: func() bool { return g.upgrade.HandedOver() },
		Draining:   g.draining.Load, MemoryLow: g.memory.low,
	})
	g.dialer = dial.New(dial.Options{
		Ctx: ctx, Running: &g.running, Conns: g.conns, Gate: g.gate, Clock: g.clock, Log: g.watch.Limited,
		Request: g.upstreamRequest, Numbered: g.owner.Numbered,
	})
	g.upgrade = upgrade.New(upgrade.Options{
		Options: g.owner.Options, Owner: g.owner, Dialer: g.dialer, Conns: g.conns, AdminConns: g.adminConns,
		CommitSession: g.commit, Renew: g.issuer.renew, RenewTokens: g.RenewTokens,
		Renewing: func() bool { return g.renewals.Load() > 0 }, ResumeAnswered: g.ResumeAnswered,
	})
	for _, r := range cfg.Routes {
		if err := g.addRoute(r); err != nil {
			g.Close()
			return nil, err
		}
	}
	g.running.Go(func() { g.memory.run(ctx) })
	g.owner.Start()
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
	if c.Clock == nil {
		c.Clock = transport.NewClock()
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Page serves path at the client address by h, before all routes. It must be called
// before the first request.
func (g *Gateway) Page(path string, h http.Handler) { g.pages[path] = h }

// ServeHTTP serves the client address.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !framingCertain(req) {
		w.Header().Set("Connection", "close")
	}
	r := front.Read(req, g.cfg.TrustedProxies, g.table)
	if r.Loops(g.id) {
		g.refuseLoop(w, r)
		return
	}
	if !handshake.HostAllowed(g.cfg.Hosts, r.Host) {
		g.refuse.http(w, r, http.StatusMisdirectedRequest, "host_not_allowed", "this host is not served here", "host", front.Clip(r.Host))
		return
	}
	if isProbe(r) {
		answerProbe(w, r)
		return
	}
	if r.Method == http.MethodConnect {
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH")
		g.refuse.http(w, r, http.StatusMethodNotAllowed, "bad_handshake", "CONNECT is not supported")
		return
	}
	if page := g.pages[req.URL.EscapedPath()]; page != nil && !r.WebSocket { // exact spelling only
		answerWithin(w, upstream.WriteTimeout)
		page.ServeHTTP(w, req)
		return
	}
	g.serve(w, r)
}

// framingCertain reports whether every program on the way must agree where r ends. A chunked
// request may also have had a Content-Length, which net/http does not show, and a proxy in
// front may have used that (RFC 9112 section 6.1); for HTTP/1.0 net/http does not even show
// chunking. Such a connection is closed after the answer, so that smuggled bytes are not
// taken for another request.
func framingCertain(r *http.Request) bool {
	return r.ProtoMajor > 1 || r.ProtoAtLeast(1, 1) && len(r.TransferEncoding) == 0
}

// Reload reads the key files again and sends attached clients tokens signed by the new
// key. The token keys are one set, and each login's keys are another. A set with a fault
// keeps its old keys; the other sets are replaced all the same. Each error names the flag
// of its set.
func (g *Gateway) Reload() (errs []error) {
	before := g.keys.SigningKeyID()
	if err := g.keys.Reload(); err != nil {
		errs = append(errs, fmt.Errorf("--token-key-file: %w", err))
	} else {
		g.log.Info("keys.reloaded", "kid", g.keys.SigningKeyID())
	}
	for _, v := range g.cfg.logins {
		if err := v.Reload(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", v.flag, err))
		}
	}
	if g.keys.SigningKeyID() != before {
		g.RenewTokens()
	}
	return errs
}

// RenewTokens sends all attached clients new tokens. It does not wait.
func (g *Gateway) RenewTokens() {
	g.renewals.Add(1)
	g.running.Go(func() {
		defer g.renewals.Add(-1)
		for _, e := range g.reg.All() {
			g.issuer.renew(e)
		}
	})
}

// Close ends every session at once, also those still being created, and stops the
// background work. Call Drain first for an orderly shutdown. The events of the sessions
// that Close ends are published before it returns.
func (g *Gateway) Close() {
	g.endDrain()
	for _, e := range g.reg.All() {
		e.CancelFirstDial()
		e.Do(func(core *session.Session, now session.Time) { core.Drain(now, 0) })
	}
	g.driver.Close()
	g.stop()
	g.reg.Close()
	g.closeIdle()
	g.dialer.Close()
	g.owner.Close()
	for _, v := range g.cfg.logins {
		v.Close()
	}
	g.running.Wait()
	g.awaitClosed()
	g.watch.Events.Close()
}

// refuseLoop refuses a request that has passed this gateway before.
func (g *Gateway) refuseLoop(w http.ResponseWriter, r *front.Request) {
	g.watch.Limited.Warn("upstream.loop", "path", r.ShownPath(), "text", "the upstream of a route is this gateway itself; check --upstream and --route against --listen")
	g.refuse.http(w, r, http.StatusLoopDetected, "loop", "this gateway is its own game server")
}
