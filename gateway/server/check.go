package server

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"reseat/gateway/admin"
	"reseat/gateway/config"
	"reseat/gateway/handover"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/secure"
	"reseat/gateway/session"
	"reseat/gateway/watch"
	"reseat/gateway/webhook"
	"reseat/tokens"
	"reseat/tokens/login"
)

const (
	// directoryTimeout limits a check of an ACME CA's directory.
	directoryTimeout = 10 * time.Second
	// askTimeout and maxAnswer limit what is asked of a gateway that may run.
	askTimeout = time.Second
	maxAnswer  = 1 << 20
)

// check reports on stdout, one line each, whether the settings, the ports, the keys, the
// certificates and the upstreams would work. It serves nothing. The exit status is 2
// if a start would fail with 2, 1 if the gateway would start but something does not work
// now, and 0 otherwise.
func check(args, environ []string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	paths, args, err := tried.take(args)
	var sessions []string
	if err == nil {
		sessions, args, err = asked.take(args)
	}
	if err != nil {
		return fail(stderr, 2, err)
	}
	set, status := parse(args, environ, stdout, stderr)
	if set == nil {
		return status
	}
	ctx, stop := untilSignal(signals)
	defer stop()
	r := &report{out: stdout, log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	r.settings(set)
	r.ports(ctx, set)
	if err := refuseWritable(set); err != nil {
		r.say("files with secrets", "", 2, err)
	}
	r.tokenKeys(set)
	r.callers(set)
	r.logins(ctx, set.Gateway.Routes)
	r.certificates(ctx, set.TLS)
	r.upstreams(ctx, set.Gateway.Routes)
	for _, path := range paths {
		r.try(ctx, set, path)
	}
	r.webhook(ctx, set)
	r.upgrade(set)
	r.running(ctx, set)
	for _, id := range sessions {
		r.session(ctx, set, id)
	}
	r.cluster(ctx, set)
	return r.status
}

// untilSignal returns a context that any signal cancels.
func untilSignal(signals <-chan os.Signal) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		select {
		case <-signals:
			stop()
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

// A report collects the findings of check.
type report struct {
	out    io.Writer
	log    *slog.Logger
	status int
}

// say reports one finding: ok with a note, or FAIL with err, which sets the exit status.
func (r *report) say(what, note string, status int, err error) {
	mark := "ok  "
	if err != nil {
		mark, note = "FAIL", withCure(err)
		r.status = max(r.status, status)
	}
	fmt.Fprintf(r.out, "%s  %s: %s\n", mark, what, note)
}

// warn reports a setting that is allowed but probably not what the operator wants.
func (r *report) warn(what, note string) { fmt.Fprintf(r.out, "WARN  %s: %s\n", what, note) }

func (r *report) settings(set *config.Settings) {
	note := plural(len(set.Gateway.Routes), "route")
	if set.Demo {
		note += " and the built-in demo"
	}
	r.say("settings", note, 0, nil)
	for _, w := range warnings(set) {
		r.warn("--"+w.Flag, w.Text)
	}
}

// ports listens at each port for a moment. A gateway that runs may have them.
func (r *report) ports(ctx context.Context, set *config.Settings) {
	var free []string
	for _, p := range []struct{ flag, addr string }{{"--listen", set.Listen}, {"--admin", set.Admin}, {"--node-listen", nodeAddr(set)}} {
		if _, port, _ := net.SplitHostPort(p.addr); strings.Trim(port, "0") == "" {
			continue // off, or any that is free
		}
		ln, err := net.Listen("tcp", p.addr)
		switch {
		case err == nil:
			ln.Close()
			free = append(free, p.addr)
		case errors.Is(err, syscall.EADDRINUSE) && gatewayRuns(ctx, set):
			r.warn(p.flag+" "+p.addr, "in use while a Reseat gateway runs here: right for one that hands its sessions over to it, or that it replaces, else choose another port")
		default:
			r.say(p.flag+" "+p.addr, "", 1, err)
		}
	}
	if free != nil {
		r.say("ports", strings.Join(free, ", ")+" can be opened", 0, nil)
	}
}

// nodeAddr returns the address for other nodes, "" without --cluster.
func nodeAddr(set *config.Settings) string {
	if set.Cluster.Enabled() {
		return set.Cluster.Listen
	}
	return ""
}

// gatewayRuns reports whether a gateway listens at the upgrade socket, or shows its dashboard
// at the admin address.
func gatewayRuns(ctx context.Context, set *config.Settings) bool {
	for _, socket := range []string{set.Takeover, set.UpgradeSocket} {
		if socket != "" && handover.Probe(socket) == nil {
			return true
		}
	}
	return bytes.Contains(askAdmin(ctx, set, "/"), []byte("<title>Reseat"))
}

// askAdmin returns what is served at a path of --admin, nil if nothing is. It sends no token, since
// nobody knows who listens there.
func askAdmin(ctx context.Context, set *config.Settings, path string) []byte {
	host, port, err := net.SplitHostPort(set.Admin)
	if err != nil || port == "0" {
		return nil
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return nil
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	return body
}

// running warns of keepalives and of states that the gateway at --admin has noticed, and that the settings
// do not have: check sees no clients.
func (r *report) running(ctx context.Context, set *config.Settings) {
	var found struct{ Routes []watch.RouteFigures }
	if json.Unmarshal(askAdmin(ctx, set, "/api/v1/overview?limit=0&node=self"), &found) != nil {
		return
	}
	noticed := make(map[string]watch.RouteFigures)
	for _, f := range found.Routes {
		noticed[f.Pattern] = f
	}
	for _, route := range set.Gateway.Routes {
		p := &route.Policy
		if flag := noticed[route.Pattern].NewestHint; flag != "" && p.Newest == nil {
			r.warn("--newest", fmt.Sprintf("route %s: most of what waits for clients of the gateway at --admin %s looks like states. If only the newest of each counts, set %s", route.Pattern, set.Admin, flag))
		}
		flag := noticed[route.Pattern].Keepalive
		has := slices.ContainsFunc(p.Keepalives, func(k session.Keepalive) bool { return registry.KeepaliveFlag(k) == flag })
		if flag != "" && !has && p.Keepalive == session.KeepaliveHint && !p.Hard {
			r.warn("--keepalive-send", fmt.Sprintf("route %s: clients of the gateway at --admin %s send the same at a steady pace. A game server that waits for it closes the connection of a client who is away: set %s, or --keepalive-send auto", route.Pattern, set.Admin, flag))
		}
	}
}

func (r *report) tokenKeys(set *config.Settings) {
	keys, err := tokens.Load(set.TokenKeyFiles, tokens.Options{Audience: set.TokenAudience})
	note := ""
	switch {
	case err != nil:
	case keys.Ephemeral():
		note = "not set: a new key is made at each start, which invalidates older tokens"
	default:
		note = plural(len(set.TokenKeyFiles), "key") + "; " + set.TokenKeyFiles[0] + " signs"
	}
	r.say("--token-key-file", note, 2, err)
}

func (r *report) callers(set *config.Settings) {
	callers, err := admin.LoadCredentials(set.AdminTokenFile, set.ViewerTokenFile)
	switch {
	case err != nil:
		r.say("tokens of the admin address", "", 2, err)
	case callers != nil:
		for flag, text := range callers.Warnings() {
			r.warn("--"+flag, text)
		}
		r.say("tokens of the admin address", "read", 0, nil)
	}
}

// logins reads each set of keys once, even if several routes use it.
func (r *report) logins(ctx context.Context, routes []policy.Route) {
	seen := map[[2]string]bool{}
	for _, route := range routes {
		a := route.Policy.Auth
		if a == nil || seen[[2]string{a.JWKS, a.KeyFile}] {
			continue
		}
		seen[[2]string{a.JWKS, a.KeyFile}] = true
		status := 2
		found, err := login.Probe(ctx, login.Config{JWKS: a.JWKS, KeyFile: a.KeyFile, Log: r.log})
		if found.Remote {
			status = 1 // a start would keep retrying
		}
		r.say(a.Flag(), found.Source+", "+plural(found.Keys, "key"), status, err)
	}
}

func (r *report) certificates(ctx context.Context, c secure.Config) {
	switch {
	case len(c.Domains) > 0:
		r.authority(ctx, c)
	case c.CertFile != "":
		c.Log = slog.New(slog.DiscardHandler) // the line below replaces its warning
		certs, err := secure.Open(c)
		if err != nil {
			r.say("certificate", "", 2, err)
			return
		}
		leaf := certs.Leaf()
		r.say("--tls-cert "+c.CertFile, secure.Describe(leaf), 1, valid(leaf))
	}
}

func valid(leaf *x509.Certificate) error {
	if err := secure.Valid(leaf, time.Now()); err != nil {
		return fmt.Errorf("%s: %w", secure.Describe(leaf), err)
	}
	return nil
}

func (r *report) authority(ctx context.Context, c secure.Config) {
	if err := secure.CheckCache(c); err != nil {
		r.say("certificate", "", 2, err)
	}
	ctx, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	r.say("certificate for "+strings.Join(c.Domains, ", "), "the CA's directory responds; no certificate was ordered", 1, secure.CheckDirectory(ctx, c))
}

func (r *report) upstreams(ctx context.Context, routes []policy.Route) {
	for _, p := range probeAll(ctx, routes) {
		err := p.err
		if err != nil {
			err = fmt.Errorf("%w; %s", err, unreachableText)
		}
		r.say("upstream "+p.url, "accepts connections; no WebSocket handshake was sent", 1, err)
	}
}

// webhook reads the secrets, and connects to the receiver without posting.
func (r *report) webhook(ctx context.Context, set *config.Settings) {
	if set.Webhook == nil {
		return
	}
	secrets, err := webhook.LoadSecrets(set.WebhookSecretFile)
	if err != nil {
		r.say("webhook", "", 2, err)
	} else {
		r.say("--webhook-secret-file", plural(secrets.Count(), "secret"), 2, nil)
	}
	r.say("--webhook "+webhook.Shown(set.Webhook), "accepts connections; nothing was posted", 1, webhook.Probe(ctx, set.Webhook))
}

// upgrade looks at the upgrade sockets without connecting.
func (r *report) upgrade(set *config.Settings) {
	if set.Takeover != "" {
		what, err := "--takeover "+set.Takeover, handover.Probe(set.Takeover)
		if errors.Is(err, handover.ErrNobody) {
			r.warn(what, "nobody listens there: this would be an ordinary start, without the sessions of another process")
		} else {
			r.say(what, "a process of this user listens there; nothing was sent", 1, err)
		}
	}
	if set.UpgradeSocket != "" {
		r.say("--upgrade-socket "+set.UpgradeSocket, "can be made", 1, handover.ProbeListen(set.UpgradeSocket))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
