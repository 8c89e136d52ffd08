// Package server implements the command reseat: it reads the settings, opens keys and
// listeners, serves, and drains.
package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reseat/gateway"
	"reseat/gateway/admin"
	"reseat/gateway/asynclog"
	"reseat/gateway/config"
	"reseat/gateway/control"
	"reseat/gateway/demo"
	"reseat/gateway/dev"
	"reseat/gateway/faults"
	"reseat/gateway/listen"
	"reseat/gateway/registry"
	"reseat/gateway/secure"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
	"reseat/gateway/upgrade"
	"reseat/gateway/webhook"
	"reseat/tokens"
	"reseat/web"
)

const (
	headerTimeout = 5 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	maxStreams    = 32      // concurrent, per HTTP/2 connection: each may hold a connection to the game server
	maxLog        = 4 << 20 // bytes of queued log lines
	logTimeout    = 2 * time.Second
)

// Run is the whole program. It returns the exit status: 0 after a drain, 1 if it could not
// start or serve, 2 for invalid settings.
func Run(args, environ []string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	if len(args) > 0 && args[0] == "check" {
		return check(args[1:], environ, stdout, stderr, signals)
	}
	if len(args) > 0 && args[0] == "rehearse" {
		return rehearse(args[1:], stdout, stderr, signals)
	}
	set, status := parse(args, environ, stdout, stderr)
	if set == nil {
		return status
	}
	file := watchConfig(set.Config, args, environ) // at once: what changes from now on is a change
	lines := asynclog.New(stderr, maxLog, func(n int) []byte {
		var line bytes.Buffer
		newLogger(set, &line, isTerminal(stderr)).Warn("log.lines_dropped", "lines", n, "text", "the log's reader is too slow")
		return line.Bytes()
	})
	defer lines.Close(logTimeout)
	log := newLogger(set, lines, isTerminal(stderr))
	set.Gateway.Log, set.TLS.Log = log, log
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	own, err := open(ctx, set)
	if err != nil {
		return fail(stderr, 2, err)
	}
	ups := upgrade.Settings{
		Version: config.Version(), Listen: map[string]string{upgrade.Clients: set.Listen, upgrade.Admin: set.Admin, upgrade.Nodes: set.Cluster.Listen},
		Takeover: set.Takeover, Socket: set.UpgradeSocket, Timeout: set.UpgradeTimeout, Pump: set.UpgradePump,
		BufferTotal: set.Gateway.BufferTotal, Webhook: set.Webhook != nil, Log: log, Args: args, Environ: environ, Stderr: stderr,
	}
	p, older, err := startOrInherit(set, ups, own, log, lines)
	if err != nil {
		return fail(stderr, 1, err)
	}
	if older != nil {
		older.Adopt()
	}
	p.announce(set)
	if p.recorder != nil {
		go p.recorder.Run(ctx)
	}
	p.config = file
	var watches sync.WaitGroup
	watches.Go(func() { tuneCollector(ctx, environ, p.gateway.Watch().BufferBytes) })
	watches.Go(func() { p.api.Run(ctx) })
	watches.Go(func() { logUnreachable(ctx, log, set.Gateway.Routes) })
	watches.Go(func() { p.config.watch(ctx, log) })
	defer watches.Wait()
	defer stop()
	return p.serve(signals, older, environ)
}

// startOrInherit starts a gateway. If there is a predecessor, the gateway has all of its sessions when
// startOrInherit returns. If that process crashes before, the start is an ordinary one.
func startOrInherit(set *config.Settings, ups upgrade.Settings, own *secrets, log *slog.Logger, lines *asynclog.Writer) (*process, *upgrade.Predecessor, error) {
	older, err := upgrade.Meet(ups)
	if older == nil && err == nil {
		p, err := start(set, ups, own, lines, log, nil)
		return p, nil, err
	}
	var p *process
	if err == nil {
		if p, err = start(set, ups, own, lines, log, older); err != nil {
			return nil, nil, older.Refuse(err)
		}
		if err = older.Receive(p.upgrader); err == nil {
			return p, older, nil
		}
		p.close()
	}
	if !errors.Is(err, upgrade.ErrCrashed) {
		return nil, nil, err
	}
	log.Error("upgrade.failed", "err", err, "text", "an ordinary start follows")
	for end := time.Now().Add(releaseTime); ; time.Sleep(releasePoll) {
		p, err = start(set, ups, own, lines, log, nil)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return p, nil, err
		}
	}
}

const (
	// releaseTime limits the wait for the system to close the listeners of a process that has
	// crashed: its many other connections may come first.
	releaseTime = 10 * time.Second
	releasePoll = 20 * time.Millisecond
)

// parse reads the settings. If it returns none, it has printed what there is to say, and
// the exit status is the one it returns.
func parse(args, environ []string, stdout, stderr io.Writer) (*config.Settings, int) {
	set, err := config.Parse(args, environ)
	switch {
	case errors.Is(err, config.ErrHelp), errors.Is(err, config.ErrVersion):
		fmt.Fprintln(stdout, err)
		return nil, 0
	case err != nil:
		return nil, fail(stderr, 2, err)
	}
	return set, 0
}

// secrets are the contents of files that are read before the gateway serves.
type secrets struct {
	keys    *tokens.Keys
	callers *admin.Credentials   // of the admin address; nil if it requires none
	certs   *secure.Certificates // nil without TLS
	webhook *webhook.Secrets     // nil without --webhook
	dev     dev.Tokens           // nil without --dev-token-file
}

// open reads the files that the settings name. What it opens lives as long as ctx. The
// error names the flag.
func open(ctx context.Context, set *config.Settings) (*secrets, error) {
	if err := refuseWritable(set); err != nil {
		return nil, err
	}
	own := new(secrets)
	var err error
	if own.keys, err = tokens.Load(set.TokenKeyFiles, tokens.Options{Audience: set.TokenAudience}); err != nil {
		return nil, fmt.Errorf("--token-key-file: %w", err)
	}
	if err = checkNodeFiles(set.Cluster, own.keys); err != nil {
		return nil, err
	}
	if err = gateway.OpenLogins(ctx, &set.Gateway); err != nil {
		return nil, err
	}
	if own.callers, err = admin.LoadCredentials(set.AdminTokenFile, set.ViewerTokenFile); err != nil {
		return nil, err
	}
	if own.dev, err = dev.LoadTokens(set.DevTokenFile); err != nil {
		return nil, err
	}
	if set.Webhook != nil {
		if own.webhook, err = webhook.LoadSecrets(set.WebhookSecretFile); err != nil {
			return nil, err
		}
	}
	if set.TLS.Enabled() {
		own.certs, err = secure.Open(set.TLS)
	}
	return own, err
}

// fail prints an error in one line.
func fail(stderr io.Writer, status int, err error) int {
	fmt.Fprintln(stderr, "reseat: "+withCure(err))
	return status
}

func newLogger(set *config.Settings, w io.Writer, terminal bool) *slog.Logger {
	opts := &slog.HandlerOptions{Level: set.LogLevel, ReplaceAttr: readable}
	if set.LogFormat == "text" || set.LogFormat == "" && terminal {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// readable formats durations as flags accept them, in JSON too.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
	}
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// A process is a started gateway with its servers.
type process struct {
	*secrets
	log             *slog.Logger
	reloads         *prometheus.CounterVec
	gateway         *gateway.Gateway
	recorder        *admin.Recorder // nil if --admin is off
	show            *demo.Showcase  // nil without --demo
	lines           *faults.Lines   // nil without --demo and --dev
	place           *demo.Place     // nil without them, and outside a cluster
	hook            *webhook.Hook   // nil without --webhook
	hookEnds        sync.Once
	node            *member // nil without --cluster
	api             *admin.Handler
	clients, admin  *http.Server
	listen, adminLn net.Listener // adminLn is nil if --admin is off
	config          *configFile
	failed          chan error

	listeners map[string]*listen.Listener // at the bottom of listen and adminLn
	handed    map[string]*listen.Queue    // connections that a predecessor has accepted
	upgrader  *upgrade.Upgrader
}

// start opens the ports, or inherits those of older, which may be nil. If it fails, it closes
// what it has opened.
func start(set *config.Settings, ups upgrade.Settings, own *secrets, lines *asynclog.Writer, log *slog.Logger, older *upgrade.Predecessor) (p *process, err error) {
	p = &process{
		secrets: own, log: log, failed: make(chan error, 3),
		listeners: make(map[string]*listen.Listener), handed: make(map[string]*listen.Queue),
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if err = p.openAll(set, older); err != nil {
		return p, err
	}
	cfg := set.Gateway
	if older != nil {
		cfg.Clock = older.Clock()
	}
	cfg.Keys, cfg.Log, cfg.Descriptors = own.keys, log, listen.Descriptors()
	if set.Demo {
		if p.show, err = demo.Start(&cfg); err != nil {
			return p, err
		}
	}
	if set.Demo || set.Dev {
		p.lines = faults.NewLines()
		p.listen = p.lines.Listener(p.listen)
		cfg.Driver = transport.Net // a loop needs a socket
	}
	if set.Cluster.Enabled() {
		if err = p.openNode(set, &cfg, older); err != nil {
			return p, err
		}
	}
	if p.gateway, err = gateway.New(cfg); err != nil {
		return p, err
	}
	m := p.gateway.Watch().Metrics
	p.reloads = addVitals(m, lines, own.certs)
	if p.node != nil {
		p.node.use(p.gateway)
	}
	if set.Webhook != nil {
		p.hook = webhook.Start(webhook.Config{Target: set.Webhook, Secrets: own.webhook, Events: p.gateway.Watch().Events.Hub, Counter: m.Vec, Log: log, Hold: older != nil && older.Posts()})
		p.hook.Register(m.Registry)
	}
	p.addPages(set)
	p.trackClients(set)
	p.makeAdmin(set, ups)
	if p.node != nil {
		if older == nil { // other nodes connect as soon as they know this one
			p.listenForNodes()
		}
		err = p.node.Join(joinWait)
		p.node.keepSwept()
	}
	return p, err
}

// openNode opens the port for other nodes, and makes this process a node of cfg.
func (p *process) openNode(set *config.Settings, cfg *gateway.Config, older *upgrade.Predecessor) error {
	ln, err := p.open(upgrade.Nodes, set.Cluster.Listen, older)
	if err != nil {
		return fmt.Errorf("--node-listen: %w", err)
	}
	if p.lines != nil {
		ln = p.lines.Listener(ln)
	}
	if p.node, err = newNode(set, p.keys, ln, p.log, older); err != nil {
		return err
	}
	cfg.Cluster, cfg.Players, cfg.Seats, cfg.NodeName = p.node, p.node.players, p.node.seats, set.Cluster.NodeName
	return nil
}

// trackClients puts the gateway's ConnTracker and TLS on the client address, and makes its server.
func (p *process) trackClients(set *config.Settings) {
	conns := p.gateway.Conns()
	if ln, ok := p.listen.(*listen.Listener); ok && p.certs == nil {
		p.gateway.AcceptOnLoops(ln)
	}
	p.listen = conns.Listen(p.listen, p.certs == nil)
	if p.certs != nil {
		p.listen = p.certs.Listen(p.listen)
	}
	var h http.Handler = p.gateway
	if p.lines != nil {
		h = dev.Front(p.devOptions(set), h)
	}
	p.clients = server(h, conns, p.log)
	if p.lines != nil {
		p.clients.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return faults.ConnContext(listen.ConnContext(ctx, c), rawconn.Lowest(c))
		}
	}
}

// devOptions are those of the panel.
func (p *process) devOptions(set *config.Settings) dev.Options {
	o := dev.Options{Gateway: p.gateway, Lines: p.lines, Keys: p.keys, Origins: set.Gateway.Default.Origins, Tokens: p.dev, Pages: set.Dev, Log: p.log}
	if p.place != nil {
		o.Others = func(r *http.Request, session string) []string { return p.place.Others(p.gateway, r, session) }
	}
	return o
}

// faultOptions are what faults act on.
func (p *process) faultOptions() faults.Options {
	o := faults.Options{
		Cluster: p.node != nil,
		Client:  func(session string) net.Conn { return rawconn.Lowest(p.gateway.Control().ClientConn(session)) },
		Close:   p.closeClient,
	}
	if p.show != nil {
		o.Restart = p.show.Restart
	}
	return o
}

// closeClient closes the connection of a client with 1001, if a session has it.
func (p *process) closeClient(conn net.Conn) bool {
	visit := p.gateway.Enter()
	if visit == nil {
		return false
	}
	defer visit.Leave()
	c := p.gateway.Control()
	list, _ := c.Sessions(registry.Filter{State: session.Attached.String(), Limit: math.MaxInt})
	for _, s := range list {
		if rawconn.Lowest(c.ClientConn(s.ID)) == conn {
			return c.CloseClient(s.ID, 1001, "closed by a fault") == control.Done
		}
	}
	return false
}

// addPages adds the client's scripts to the gateway, the panel and the demo's pages.
func (p *process) addPages(set *config.Settings) {
	for path, h := range web.Client() {
		p.gateway.Page(path, h)
	}
	if p.lines == nil {
		return
	}
	if p.node != nil {
		host, _, _ := net.SplitHostPort(p.node.Nodes()[0].Address)
		p.place = &demo.Place{Cluster: demoNodes{p.node}, URL: addressAt(p.listen, p.certs, host) + "/", Origins: set.Gateway.Default.Origins}
		p.node.demo = p.place.NodeHandler(p.gateway)
	}
	p.lines.Serve(p.faultOptions())
	dev.Serve(p.devOptions(set))
	if set.Demo {
		demo.Serve(p.gateway, p.place)
	}
}

// openAll opens the listeners for clients and for the admin address.
func (p *process) openAll(set *config.Settings, older *upgrade.Predecessor) (err error) {
	if p.listen, err = p.open(upgrade.Clients, set.Listen, older); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if set.Admin == "" {
		return nil
	}
	if p.adminLn, err = p.open(upgrade.Admin, set.Admin, older); err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	return nil
}

// makeAdmin makes the control API and what serves it: to operators at the admin address, if
// there is one, and to the other nodes of a cluster.
func (p *process) makeAdmin(set *config.Settings, ups upgrade.Settings) {
	if p.adminLn != nil {
		p.adminLn = p.gateway.AdminConns().Listen(p.adminLn, true)
		p.recorder = admin.NewRecorder(p.gateway)
	}
	p.upgrader = upgrade.NewUpgrader(ups, upgrade.Parts{Sessions: p.gateway.Upgrade(), Server: p, Listeners: p.listeners, Recorder: p.recorder})
	host, _ := os.Hostname() // empty if the system does not know it
	o := admin.Options{
		Credentials: p.callers, Recorder: p.recorder, Log: p.log, Host: host, Version: config.Version(),
		Listen: p.listen.Addr().String(), Upgrade: p.upgrader.Status,
	}
	if set.Dev {
		o.Faults = p.lines
	}
	if p.node != nil {
		o.Cluster = newPeers(p.node, set.Gateway.Routes)
	}
	p.api = admin.New(p.gateway, o)
	if p.node != nil {
		p.node.api = p.api.NodeHandler()
	}
	p.admin = server(p.api, p.gateway.AdminConns(), p.log)
}

// open returns the listener of a setting, inherited if older has it.
func (p *process) open(name, addr string, older *upgrade.Predecessor) (net.Listener, error) {
	var ln *listen.Listener
	if older != nil {
		ln = older.Listener(name)
	}
	if ln == nil {
		var err error
		if ln, err = listen.Listen(addr); err != nil {
			return nil, err
		}
	}
	p.listeners[name], p.handed[name] = ln, listen.NewQueue(ln.Addr())
	return ln, nil
}

func server(h http.Handler, conns *listen.ConnTracker, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: conns.Handler(h), ConnState: conns.ConnState, ConnContext: listen.ConnContext,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog: serverLog(log),
	}
}

// announce logs the addresses, and what an operator should know at the start.
func (p *process) announce(set *config.Settings) {
	url := address(p.listen, p.certs)
	p.log.Info("listen.clients", "addr", p.listen.Addr().String(), "http", url, "ws", "ws"+strings.TrimPrefix(url, "http"))
	if p.adminLn != nil {
		p.log.Info("listen.admin", "addr", p.adminLn.Addr().String(), "http", address(p.adminLn, nil), "tokens", p.callers != nil)
		p.log.Info("dashboard.ready", "url", address(p.adminLn, nil)+"/", "text", "open it in a browser")
	}
	p.warnOfTokens()
	if n := listen.Descriptors(); n > 0 {
		p.log.Info("descriptors.limit", "limit", n)
	}
	for _, r := range set.Gateway.Routes {
		p.log.Info("route.configured", "pattern", r.Pattern, "upstream", r.Upstream.URL.Redacted(), "grace", r.Policy.Grace)
	}
	for _, w := range warnings(set) {
		p.log.Warn("settings.warning", "flag", "--"+w.Flag, "text", w.Text)
	}
	if p.keys.Ephemeral() {
		p.log.Warn("token.key_ephemeral", "flag", "--token-key-file", "text", "no key file: sessions cannot be resumed after a restart, or at another gateway")
	}
	if set.Dev {
		p.log.Warn("dev.enabled", "flag", "--dev", "url", url+"/", "text", "not for production: pages get a panel that cuts their connections, and sees their sessions")
	}
	if set.Demo {
		p.log.Info("demo.ready", "url", url+"/", "text", "open it in a browser")
	}
}

// warnOfTokens logs which tokens of the admin address are easy to guess.
func (p *process) warnOfTokens() {
	if p.callers == nil {
		return
	}
	for flag, text := range p.callers.Warnings() {
		p.log.Warn("admin.tokens_weak", "flag", "--"+flag, "text", text)
	}
}

// address returns the URL of a listener, for a browser on this machine.
func address(ln net.Listener, certs *secure.Certificates) string {
	return addressAt(ln, certs, "localhost")
}

// addressAt does the same for a listener that has all addresses of the machine, one of which is
// host.
func addressAt(ln net.Listener, certs *secure.Certificates, host string) string {
	scheme, standard := "http", "80"
	bound, port, _ := net.SplitHostPort(ln.Addr().String())
	if ip := net.ParseIP(bound); ip != nil && !ip.IsUnspecified() {
		host = bound
	}
	if certs != nil {
		scheme, standard = "https", "443"
		host = certs.Host(host)
	}
	if port == standard && !strings.Contains(host, ":") {
		return scheme + "://" + host
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// serve serves until a signal, until a listener fails, or until a successor has the sessions.
// older is the predecessor of p, nil if there was none; otherwise p serves already.
func (p *process) serve(signals <-chan os.Signal, older *upgrade.Predecessor, environ []string) int {
	if older == nil {
		p.listenAll()
		p.upgrader.Settle()
	}
	if err := p.upgrader.Listen(older != nil); err != nil {
		p.log.Error("upgrade.socket_failed", "flag", "--upgrade-socket", "err", err)
	}
	if err := notifySystemd(environ); err != nil {
		p.log.Error("systemd.notify_failed", "err", err)
	}
	if older != nil {
		older.Serving()
	}
	for {
		select {
		case h := <-p.upgrader.HandedOver():
			return p.retire(h, signals)
		case err := <-p.failed:
			p.log.Error("listen.failed", "err", err)
			p.close()
			return 1
		case s := <-signals:
			switch s {
			case syscall.SIGHUP:
				p.reload()
				continue
			case upgradeSignal:
				go p.upgrader.Upgrade()
				continue
			}
			if h := p.upgrader.Abort(); h != nil {
				ended := make(chan os.Signal, 1)
				ended <- s
				return p.retire(h, ended)
			}
			p.log.Info("shutdown.started", "signal", s.String(), "text", "a second signal exits at once")
			return p.drain(signals)
		}
	}
}

// listenAll begins to accept connections.
func (p *process) listenAll() {
	go p.listenOn(p.clients, p.listen)
	go p.listenOn(p.clients, p.gateway.Conns().Listen(p.handed[upgrade.Clients], true))
	if p.adminLn != nil {
		go p.listenOn(p.admin, p.adminLn)
		go p.listenOn(p.admin, p.gateway.AdminConns().Listen(p.handed[upgrade.Admin], true))
	}
	if p.node != nil {
		p.listenForNodes()
	}
}

// listenForNodes begins to accept connections of other nodes, once.
func (p *process) listenForNodes() {
	if !p.node.served {
		p.node.served = true
		go p.listenOn(p.node.server, p.node.ln)
		go p.listenOn(p.node.server, p.node.links)
	}
}

func (p *process) listenOn(s *http.Server, ln net.Listener) {
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		p.failed <- err
	}
}

// reload reads the files again, each independently: an invalid one leaves its old content
// in use.
func (p *process) reload() {
	p.config.compare(p.log, true)
	result := "ok"
	failed := func(key string, err error) {
		result = "failed"
		p.log.Error(key, "err", err, "text", "the old content stays in use")
	}
	for _, err := range p.gateway.Reload() {
		failed("keys.reload_failed", err)
	}
	if p.certs != nil {
		if err := p.certs.Reload(); err != nil {
			failed("cert.reload_failed", err)
		}
	}
	if p.node != nil {
		if err := p.node.reload(); err != nil {
			failed("node.reload_failed", err)
		}
	}
	if p.hook != nil {
		if err := p.hook.Reload(); err != nil {
			failed("webhook.secrets_reload_failed", err)
		} else {
			p.log.Info("webhook.secrets_reloaded")
		}
	}
	if p.callers != nil {
		errs := p.callers.Reload()
		for _, err := range errs {
			failed("admin.tokens_reload_failed", err)
		}
		if len(errs) == 0 {
			p.log.Info("admin.tokens_reloaded")
			p.warnOfTokens()
		}
	}
	p.reloads.WithLabelValues(result).Inc()
}

// drain shuts down in order: sessions first, then the servers.
func (p *process) drain(signals <-chan os.Signal) int {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.gateway.Drain(context.Background())
		p.FinishPosts(false)
	}()
	for {
		select {
		case <-done:
			p.close()
			p.log.Info("shutdown.finished")
			return 0
		case s := <-signals:
			if s != syscall.SIGHUP {
				p.log.Warn("shutdown.forced", "signal", s.String())
				return 1
			}
		}
	}
}

const (
	// streamsEnd limits the clean end of the event streams.
	streamsEnd = time.Second
	// hookEnd limits the delivery of queued webhook events.
	hookEnd = 5 * time.Second
)

// FinishPosts posts the queued events of the webhook, as far as the receiver accepts them. With handOver
// it returns them instead. The first call decides; it implements upgrade.Server.
func (p *process) FinishPosts(handOver bool) (left []webhook.Queued) {
	if p.hook == nil {
		return nil
	}
	p.hookEnds.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hookEnd)
		defer cancel()
		if handOver {
			left = p.hook.HandOver(ctx)
		} else if n := p.hook.Close(ctx); n > 0 {
			p.log.Warn("webhook.undelivered", "events", n)
		}
	})
	return left
}

func (p *process) close() {
	if p.gateway != nil && p.admin != nil {
		p.gateway.Watch().Events.Close()
		ctx, cancel := context.WithTimeout(context.Background(), streamsEnd)
		p.admin.Shutdown(ctx)
		cancel()
	}
	for _, s := range []*http.Server{p.clients, p.admin} {
		if s != nil {
			s.Close()
		}
	}
	if p.node != nil {
		p.node.end()
	}
	for _, ln := range []net.Listener{p.listen, p.adminLn} {
		if ln != nil {
			ln.Close()
		}
	}
	if p.certs != nil {
		p.certs.Stop()
	}
	if p.gateway != nil {
		p.gateway.Close()
	}
	if p.lines != nil {
		p.lines.Stop()
	}
	p.FinishPosts(false) // if there was no drain
	if p.show != nil {
		p.show.Close()
	}
}
