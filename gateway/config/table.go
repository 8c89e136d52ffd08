package config

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/tokens/login"
	"reseat/upstream"
)

// A flag is one row of the table, with everything about one setting.
type flag struct {
	// name is the flag's name without --, also for the environment and routes.
	name  string
	group string
	// arg names the value in the help. A row without it is a boolean.
	arg string
	// def is the default as given on the command line. "" leaves the zero value, and the
	// help prints shows instead.
	def, shows string
	help       string
	// repeat: the flag may be given several times, and collects the values.
	repeat bool
	// needs is another flag, without which this one has no effect and is refused.
	needs string

	// A row has one of these: setLocal if a route can have its own value, marked (R), else
	// set. --help and --version have neither.
	set      setter[draft]
	setLocal setter[local]
	// off turns a global text or timer off for a route with an empty value (on-detach=).
	// Nil if a route cannot.
	off func(*local)
}

// A setter parses the values of one flag, one or more, and replaces the field's value.
type setter[O any] func(o *O, values []string) error

// perRoute reports whether a route can have its own value: (R).
func (f *flag) perRoute() bool { return f.setLocal != nil }

// onlyArg reports whether f is for the command line only: --help and --version.
func (f *flag) onlyArg() bool { return f.set == nil && f.setLocal == nil }

// local holds the settings that can be global and per route.
type local struct {
	policy.Policy
	auth policy.Auth
	host upstream.HostPolicy
	ca   *x509.CertPool
}

// lookup returns the row of a flag, or nil.
func lookup(name string) *flag {
	i := slices.IndexFunc(table, func(f flag) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return &table[i]
}

// one sets a field to the last of the values. All of them must be valid.
func one[O, T any](field func(*O) *T, parse parser[T]) setter[O] {
	return func(o *O, values []string) error {
		for _, raw := range values {
			v, err := parse(raw)
			if err != nil {
				return err
			}
			*field(o) = v
		}
		return nil
	}
}

// every sets a field to the list of all the values.
func every[O, T any](field func(*O) *[]T, parse parser[T]) setter[O] {
	return func(o *O, values []string) error {
		list := make([]T, len(values))
		for i, raw := range values {
			v, err := parse(raw)
			if err != nil && strings.Contains(raw, ",") {
				return fmt.Errorf("%w; repeat the flag for each value, or write an array in a file", err)
			}
			if err != nil {
				return err
			}
			list[i] = v
		}
		*field(o) = list
		return nil
	}
}

// Limits that docs/flags.md leaves open.
const (
	// minHeartbeat bounds the load by pings.
	minHeartbeat = 10 * time.Millisecond
	maxGrace     = policy.MaxGrace
	// maxMessage: a message is held in memory until it is complete.
	maxMessage = gib
	// minTotal is the size of one chunk of a replay buffer.
	minTotal, maxBuffer = 64 * kib, 1024 * gib
	maxMessages         = 1 << 30
	maxLoops            = 256
)

// The groups of the help, in its order.
const (
	groupAddresses = "Addresses"
	groupTLS       = "TLS"
	groupUpstreams = "Game servers"
	groupSessions  = "Sessions"
	groupLimits    = "Limits"
	groupWords     = "Messages to the game server"
	groupTokens    = "Resume tokens"
	groupPlayers   = "Player logins"
	groupCallers   = "Access control"
	groupEvents    = "Events"
	groupUpgrade   = "Upgrades"
	groupCluster   = "Cluster"
	groupSpeed     = "Performance"
	groupRest      = "Config file, log and help"
)

// table is all flags, group by group, in the order of the help.
var table = []flag{
	{name: "listen", group: groupAddresses, arg: "ADDR", def: ":8080",
		help: "address for clients; port 0 picks a free port, which the log shows",
		set:  one(func(d *draft) *string { return &d.Listen }, listenAddr)},
	{name: "admin", group: groupAddresses, arg: "ADDR", def: "127.0.0.1:8081",
		help: "address for metrics, health checks, control API and dashboard; a loopback address unless a token file is set; off for none",
		set:  one(func(d *draft) *string { return &d.Admin }, adminAddr)},
	{name: "admin-token-file", group: groupAddresses, arg: "FILE", shows: "none",
		help: "bearer tokens with full access to --admin, one a line; reread on SIGHUP",
		set:  one(func(d *draft) *string { return &d.AdminTokenFile }, fileName)},
	{name: "viewer-token-file", group: groupAddresses, arg: "FILE", shows: "none",
		help: "bearer tokens with read-only access to --admin, one a line; reread on SIGHUP",
		set:  one(func(d *draft) *string { return &d.ViewerTokenFile }, fileName)},

	{name: "tls-cert", group: groupTLS, arg: "FILE", shows: "none", needs: "tls-key",
		help: "PEM certificate chain, leaf first; enables TLS on --listen; reread on SIGHUP",
		set:  one(func(d *draft) *string { return &d.TLS.CertFile }, fileName)},
	{name: "tls-key", group: groupTLS, arg: "FILE", shows: "none", needs: "tls-cert",
		help: "PEM private key of --tls-cert",
		set:  one(func(d *draft) *string { return &d.TLS.KeyFile }, fileName)},
	{name: "acme-domain", group: groupTLS, arg: "NAME", shows: "none", repeat: true,
		help: "get a certificate for this name from an ACME CA, and accept its terms of service; port 443 of the name must reach --listen",
		set:  every(func(d *draft) *[]string { return &d.TLS.Domains }, domainName)},
	{name: "acme-directory", group: groupTLS, arg: "URL", shows: "Let's Encrypt", needs: "acme-domain",
		help: "directory URL of the ACME CA",
		set:  one(func(d *draft) *string { return &d.TLS.Directory }, directoryURL)},
	{name: "acme-cache", group: groupTLS, arg: "DIR", shows: "reseat-acme in the user's cache directory", needs: "acme-domain",
		help: "directory that keeps the ACME account and certificates across restarts",
		set:  one(func(d *draft) *string { return &d.TLS.Cache }, fileName)},

	{name: "upstream", group: groupUpstreams, arg: "URL", shows: "none",
		help: "game server for all paths: a ws://, wss://, http:// or https:// URL; its path precedes the client's",
		set:  one(func(d *draft) **url.URL { return &d.upstream }, upstream.ParseTarget)},
	{name: "route", group: groupUpstreams, arg: "PATTERN=URL", shows: "none", repeat: true,
		help: "game server for the paths that match, such as /match/* or /room/{id}; settings follow after semicolons (PATTERN=URL;grace=5m); paths without a match get 404",
		set:  every(func(d *draft) *[]string { return &d.routes }, verbatim)},
	{name: "upstream-allow", group: groupUpstreams, arg: "HOST:PORT", shows: "none", repeat: true,
		help: "game servers that sessions created over the control API may name; * in a host does not match a dot; * alone matches any host or port",
		set:  every(func(d *draft) *[]string { return &d.Gateway.UpstreamAllow }, allowedUpstream)},
	{name: "upstream-host", group: groupUpstreams, arg: "client|upstream", def: "client",
		help:     "Host header sent to the game server: the client's, or the game server's own",
		setLocal: one(func(l *local) *upstream.HostPolicy { return &l.host }, choices[upstream.HostPolicy]{{"client", upstream.HostClient}, {"upstream", upstream.HostUpstream}}.parse)},
	{name: "upstream-ca", group: groupUpstreams, arg: "FILE", shows: "the system's",
		help:     "PEM certificates of the CAs to trust for wss:// and https:// game servers",
		setLocal: one(func(l *local) **x509.CertPool { return &l.ca }, authorities)},
	{name: "upstream-heartbeat", group: groupUpstreams, arg: "DUR", def: "0", shows: "0, off",
		help:     "ping a game server that has been silent for this long; its connection is lost after twice as long",
		setLocal: one(func(l *local) *time.Duration { return &l.UpstreamHeartbeat }, or("off", duration(0, day))),
		off:      func(l *local) { l.UpstreamHeartbeat = 0 }},
	{name: "dial-timeout", group: groupUpstreams, arg: "DUR", def: "10s",
		help:     "max time to connect to the game server and receive its 101 response",
		setLocal: one(func(l *local) *time.Duration { return &l.DialTimeout }, duration(time.Millisecond, day))},
	{name: "http", group: groupUpstreams, arg: "proxy|off", def: "proxy",
		help:     "requests that are not WebSocket handshakes: proxy them to the game server, or answer 426",
		setLocal: one(func(l *local) *bool { return &l.HTTPOff }, either("proxy", "off"))},
	{name: "demo", group: groupUpstreams, def: "false", shows: "off",
		help: "serve the built-in demo game and its page at /; excludes --upstream",
		set:  one(func(d *draft) *bool { return &d.Demo }, boolean)},
	{name: "dev", group: groupUpstreams, def: "false", shows: "off",
		help: "for development: pages get a panel that cuts their connection and shows what the player notices; --listen becomes 127.0.0.1:8080 unless given",
		set:  one(func(d *draft) *bool { return &d.Dev }, boolean)},
	{name: "dev-token-file", group: groupUpstreams, arg: "FILE", shows: "none",
		help: "tokens that the panel asks for, one a line; required for --dev at an address that is not loopback",
		set:  one(func(d *draft) *string { return &d.DevTokenFile }, fileName)},

	{name: "grace", group: groupSessions, arg: "DUR", def: "30s",
		help:     "how long to keep a session whose client is disconnected; 0 ends it at once",
		setLocal: one(func(l *local) *time.Duration { return &l.Grace }, duration(0, maxGrace))},
	{name: "grace-before-start", group: groupSessions, arg: "DUR", shows: "same as --grace",
		help:     "grace period of sessions that the game server has not marked as started",
		setLocal: one(func(l *local) **time.Duration { return &l.GraceBeforeStart }, pointer(duration(0, maxGrace))),
		off:      func(l *local) { l.GraceBeforeStart = nil }},
	{name: "disconnect", group: groupSessions, arg: "soft|hard", def: "soft",
		help:     "game server's connection while the client is disconnected: keep it open (soft), or close it and dial again at the resume (hard)",
		setLocal: one(func(l *local) *bool { return &l.Hard }, either("soft", "hard"))},
	{name: "upstream-lost", group: groupSessions, arg: "end|redial", def: "end",
		help:     "when the game server's connection breaks, or closes with 1001 or 1012: end the session, or dial again while the player stays (resumable clients only)",
		setLocal: one(func(l *local) *bool { return &l.Redial }, either("end", "redial"))},
	{name: "redial-for", group: groupSessions, arg: "DUR", def: "30s",
		help:     "how long --upstream-lost redial tries before the session ends",
		setLocal: one(func(l *local) *time.Duration { return &l.RedialFor }, duration(time.Millisecond, day))},
	{name: "durable", group: groupSessions, arg: "off|on", def: "off",
		help:     "sessions outlive their cluster node: another one dials the game server at the next resume; needs --cluster (resumable clients only)",
		setLocal: one(func(l *local) *bool { return &l.Durable }, either("off", "on"))},
	{name: "failover-redeliver", group: groupSessions, arg: "on|off", def: "on",
		help:     "with --durable, after the loss of a node: deliver the client's unacked messages again (on: at least once), or not (off: at most once)",
		setLocal: one(func(l *local) *bool { return &l.Redeliver }, choices[bool]{{"on", true}, {"off", false}}.parse)},
	{name: "plain-resume", group: groupSessions, arg: "off|cookie", def: "off",
		help:     "also resume plain WebSocket clients, by a cookie, at least once; only for games whose page expects nothing on connect",
		setLocal: one(func(l *local) *bool { return &l.PlainResume }, either("off", "cookie"))},
	{name: "idle-timeout", group: groupSessions, arg: "DUR", def: "0", shows: "0, off",
		help:     "end sessions without a data message in either direction for this long",
		setLocal: one(func(l *local) *time.Duration { return &l.IdleTimeout }, or("off", duration(0, maxGrace))),
		off:      func(l *local) { l.IdleTimeout = 0 }},
	{name: "buffer-bytes", group: groupSessions, arg: "SIZE", def: "1MiB",
		help:     "replay buffer of one session, in bytes of payload; a single message always fits",
		setLocal: one(func(l *local) *int64 { return &l.BufferBytes }, size(1, maxBuffer))},
	{name: "buffer-messages", group: groupSessions, arg: "N", def: "4096",
		help:     "replay buffer of one session, in messages",
		setLocal: one(func(l *local) *int { return &l.BufferMessages }, count(1, maxMessages))},
	{name: "buffer-total", group: groupSessions, arg: "SIZE", def: "1GiB",
		help: "memory for all replay buffers and incomplete messages; when exhausted, the sessions that hold most without reading it end",
		set:  one(func(d *draft) *int64 { return &d.Gateway.BufferTotal }, size(minTotal, maxBuffer))},
	{name: "overflow", group: groupSessions, arg: "pause|drop-oldest|end", def: "pause",
		help:     "when the replay buffer is full while the client is disconnected: stop reading the game server, drop the oldest messages, or end the session",
		setLocal: one(func(l *local) *session.Overflow { return &l.Overflow }, choices[session.Overflow]{{"pause", session.Pause}, {"drop-oldest", session.DropOldest}, {"end", session.EndSession}}.parse)},
	{name: "newest", group: groupSessions, arg: "NAME=MATCH", shows: "none", repeat: true,
		help:     "messages of the game server that MATCH are states, of which a disconnected or slow client gets the newest alone; MATCH: the beginning of a text, hex: and that of a binary message, or json:/POINTER, whose value is part of the name, or json:/POINTER=VALUE, several joined by &",
		setLocal: setNewest,
		off:      func(l *local) { l.Newest = nil }},
	{name: "max-message", group: groupSessions, arg: "SIZE", def: "1MiB",
		help:     "max size of a message in either direction, up to 1GiB",
		setLocal: one(func(l *local) *int64 { return &l.MaxMessage }, size(1, maxMessage))},
	{name: "compression", group: groupSessions, arg: "off|on|WINDOW", def: "off",
		help:     "negotiate permessage-deflate with clients that offer it; WINDOW, 1KiB to 32KiB (on: 4KiB), is how far back a message may refer, no-window: not at all",
		setLocal: one(func(l *local) *policy.Compression { return &l.Compression }, compression)},
	{name: "heartbeat", group: groupSessions, arg: "DUR", def: "15s",
		help:     "ping a client when nothing was received from it, or sent to it, for this long; detach it after twice as long without receiving anything",
		setLocal: one(func(l *local) *time.Duration { return &l.Heartbeat }, duration(minHeartbeat, day))},
	{name: "answer-timeout", group: groupSessions, arg: "DUR", def: "5s",
		help:     "detach a client that leaves a ping or message unanswered for this long, with nothing received from it; 0: only --heartbeat detaches",
		setLocal: one(func(l *local) *time.Duration { return &l.AnswerTimeout }, withZero(duration(minHeartbeat, day))),
		off:      func(l *local) { l.AnswerTimeout = 0 }},

	{name: "max-rate", group: groupLimits, arg: "N", def: "off",
		help:     "max data messages per second from a client, with a burst of one second",
		setLocal: one(func(l *local) *float64 { return &l.Rate.Messages }, perSecond(count(1, maxMessages)))},
	{name: "max-bytes-rate", group: groupLimits, arg: "SIZE", def: "off",
		help:     "max payload per second from a client, with a burst of one second",
		setLocal: one(func(l *local) *float64 { return &l.Rate.Bytes }, perSecond(size(1, maxBuffer)))},
	{name: "flood", group: groupLimits, arg: "pace|end", def: "pace",
		help:     "client above --max-rate or --max-bytes-rate: delay its messages, or end the session",
		setLocal: one(func(l *local) *bool { return &l.Rate.End }, either("pace", "end"))},
	{name: "max-sessions", group: groupLimits, arg: "N", def: "0", shows: "0, none",
		help: "max sessions; further clients get 503",
		set:  one(func(d *draft) *int { return &d.Gateway.MaxSessions }, count(0, maxMessages))},
	{name: "max-sessions-per-ip", group: groupLimits, arg: "N", def: "0", shows: "0, none",
		help: "max sessions per client address, or per /64 of IPv6; further clients get 429",
		set:  one(func(d *draft) *int { return &d.Gateway.MaxSessionsPerIP }, count(0, maxMessages))},
	{name: "drain", group: groupLimits, arg: "DUR", def: "10s",
		help: "how long to serve resumes after SIGTERM before closing the remaining sessions",
		set:  one(func(d *draft) *time.Duration { return &d.Gateway.Drain }, nonZero(duration(0, day)))},

	{name: "on-detach", group: groupWords, arg: "MSG", shows: "none",
		help:     "text sent when the client disconnects; {session} and {player} are replaced, escaped for JSON",
		setLocal: one(func(l *local) *string { return &l.Notices.Detach }, message),
		off:      func(l *local) { l.Notices.Detach = "" }},
	{name: "on-resume", group: groupWords, arg: "MSG", shows: "none",
		help:     "text sent when the client resumes, before its next message; placeholders as for --on-detach",
		setLocal: one(func(l *local) *string { return &l.Notices.Resume }, message),
		off:      func(l *local) { l.Notices.Resume = "" }},
	{name: "on-expire", group: groupWords, arg: "MSG", shows: "none",
		help:     "text sent when the grace period is over, before the Close frame; placeholders as for --on-detach",
		setLocal: one(func(l *local) *string { return &l.Notices.Expire }, message),
		off:      func(l *local) { l.Notices.Expire = "" }},
	{name: "keepalive-reply", group: groupWords, arg: "IN=>OUT", shows: "none", repeat: true,
		help:     "while the client is disconnected, answer the text message IN with OUT; engine.io is short for 2=>3",
		setLocal: every(func(l *local) *[]session.KeepaliveReply { return &l.KeepaliveReplies }, keepaliveReply),
		off:      func(l *local) { l.KeepaliveReplies = nil }},
	{name: "keepalive-send", group: groupWords, arg: "DUR:MSG", def: "hint", repeat: true,
		help:     "while the client is disconnected, send MSG every DUR (DUR/binary:HEX, DUR/ping:HEX); hint logs such a value for what a client sends at a steady pace, auto also sends it, off ignores it",
		setLocal: setKeepalives,
		off:      func(l *local) { l.Keepalives, l.Keepalive = nil, session.KeepaliveHint }},

	{name: "token-key-file", group: groupTokens, arg: "FILE", shows: "a key made at start", repeat: true,
		help: "key for resume tokens: Ed25519, RSA or ECDSA in PEM, or 32 or more random bytes; the first signs, all verify; reread on SIGHUP",
		set:  every(func(d *draft) *[]string { return &d.TokenKeyFiles }, fileName)},
	{name: "token-ttl", group: groupTokens, arg: "DUR", def: "1h",
		help: "lifetime of a resume token, or twice --grace if that is longer",
		set:  one(func(d *draft) *time.Duration { return &d.Gateway.TokenTTL }, duration(100*time.Millisecond, 365*day))},
	{name: "token-audience", group: groupTokens, arg: "NAME", def: "reseat",
		help: "audience (aud) of resume tokens; separates environments that share keys",
		set:  one(func(d *draft) *string { return &d.TokenAudience }, identifier)},

	{name: "auth-jwks", group: groupPlayers, arg: "URL|FILE", shows: "none",
		help:     "require a valid JWT from the player for a new session, verified with the JWK set at this URL or in this file",
		setLocal: one(func(l *local) *string { return &l.auth.JWKS }, keySet)},
	{name: "auth-key-file", group: groupPlayers, arg: "FILE", shows: "none",
		help:     "like --auth-jwks, with a single key: PEM public key or certificate, or 32 or more random bytes",
		setLocal: one(func(l *local) *string { return &l.auth.KeyFile }, fileName)},
	{name: "auth-from", group: groupPlayers, arg: "LIST", def: "header",
		help:     "where to find the JWT, separated by commas: header, query:NAME, cookie:NAME, protocol:PREFIX",
		setLocal: one(func(l *local) *login.Sources { return &l.auth.From }, login.ParseSources)},
	{name: "auth-issuer", group: groupPlayers, arg: "NAME", shows: "any",
		help:     "required issuer (iss) of the JWT",
		setLocal: one(func(l *local) *string { return &l.auth.Issuer }, identifier)},
	{name: "auth-audience", group: groupPlayers, arg: "NAME", shows: "any",
		help:     "required audience (aud) of the JWT",
		setLocal: one(func(l *local) *string { return &l.auth.Audience }, identifier)},
	{name: "auth-forward", group: groupPlayers, arg: "on|off", def: "on",
		help:     "whether to pass the JWT on to the game server",
		setLocal: one(func(l *local) *bool { return &l.auth.Conceal }, either("on", "off"))},
	{name: "duplicate", group: groupPlayers, arg: "takeover|reject|allow", def: "allow",
		help:     "new session of a player who has one: end the older ones, refuse it while an older one responds, or allow it; needs a login",
		setLocal: one(func(l *local) *policy.Duplicate { return &l.Duplicate }, choices[policy.Duplicate]{{"takeover", policy.Takeover}, {"reject", policy.Reject}, {"allow", policy.Allow}}.parse)},

	{name: "origin", group: groupCallers, arg: "PATTERN", shows: "same host", repeat: true,
		help:     "allowed Origin, instead of the same host: SCHEME://HOST[:PORT], with * in any part (in a host it does not match a dot), or * for any",
		setLocal: every(func(l *local) *[]string { return &l.Origins }, originPattern)},
	{name: "host", group: groupCallers, arg: "NAME", shows: "any", repeat: true,
		help: "allowed Host header, with or without a port; others get 421",
		set:  every(func(d *draft) *[]string { return &d.Gateway.Hosts }, hostName)},
	{name: "trusted-header", group: groupCallers, arg: "NAME", shows: "none", repeat: true,
		help: "header that passes from a trusted proxy only, such as X-Real-IP; X-Forwarded-For, -Proto and -Host always do",
		set:  every(func(d *draft) *[]string { return &d.Gateway.TrustedHeaders }, headerName)},
	{name: "trusted-proxy", group: groupCallers, arg: "CIDR", shows: "none", repeat: true,
		help: "address or CIDR block of proxies whose X-Forwarded-* headers are trusted",
		set:  every(func(d *draft) *[]netip.Prefix { return &d.Gateway.TrustedProxies }, proxyPrefix)},

	{name: "webhook", group: groupEvents, arg: "URL", shows: "none", needs: "webhook-secret-file",
		help: "URL to post session events to, signed as Standard Webhooks; needs --webhook-secret-file",
		set:  one(func(d *draft) **url.URL { return &d.Webhook }, webhookURL)},
	{name: "webhook-secret-file", group: groupEvents, arg: "FILE", shows: "none", needs: "webhook",
		help: "webhook secrets, whsec_ and base64, one a line; each signs every post; reread on SIGHUP",
		set:  one(func(d *draft) *string { return &d.WebhookSecretFile }, fileName)},

	{name: "takeover", group: groupUpgrade, arg: "PATH", shows: "none",
		help: "start as the successor of the gateway whose --upgrade-socket is PATH, with all its sessions and connections; if there is none, start normally",
		set:  one(func(d *draft) *string { return &d.Takeover }, socketPath)},
	{name: "upgrade-socket", group: groupUpgrade, arg: "PATH", shows: "$RUNTIME_DIRECTORY/upgrade.sock; none without that variable",
		help: "Unix socket at which a new process of the same user asks for all sessions, by --takeover",
		set:  one(func(d *draft) *string { return &d.UpgradeSocket }, socketPath)},
	{name: "upgrade-timeout", group: groupUpgrade, arg: "DUR", def: "10s",
		help: "how long a new process may take to start before the upgrade is aborted",
		set:  one(func(d *draft) *time.Duration { return &d.UpgradeTimeout }, duration(time.Second, time.Hour))},
	{name: "upgrade-pump", group: groupUpgrade, arg: "DUR", def: "10m",
		help: "how long the old process forwards connections that cannot be handed over, such as those over TLS",
		set:  one(func(d *draft) *time.Duration { return &d.UpgradePump }, duration(0, day))},

	{name: "cluster", group: groupCluster, arg: "URL", shows: "none", repeat: true,
		help: "NATS server of the cluster to join: tls://HOST:4222, nats:// on this machine, or plaintext:// in a network that nobody else can read or write; needs --token-key-file",
		set:  every(func(d *draft) *[]string { return &d.Cluster.URLs }, natsURL)},
	{name: "cluster-name", group: groupCluster, arg: "NAME", def: "reseat", needs: "cluster",
		help: "prefix of subjects and buckets in NATS; separates environments",
		set:  one(func(d *draft) *string { return &d.Cluster.Name }, clusterName)},
	{name: "cluster-creds", group: groupCluster, arg: "FILE", shows: "none", needs: "cluster",
		help: "NATS user credentials, or the seed of an nkey; reread on SIGHUP",
		set:  one(func(d *draft) *string { return &d.Cluster.CredsFile }, fileName)},
	{name: "cluster-ca", group: groupCluster, arg: "FILE", shows: "the system's", needs: "cluster",
		help: "PEM certificates of the CAs to trust for NATS servers; reread on SIGHUP",
		set:  one(func(d *draft) *string { return &d.Cluster.CAFile }, fileName)},
	{name: "node-name", group: groupCluster, arg: "NAME", shows: "the host name", needs: "cluster",
		help: "name of this node in log, API and dashboard; if given, clients send it to load balancers (docs/cluster.md)",
		set:  one(func(d *draft) *string { return &d.Cluster.NodeName }, nodeName)},
	{name: "node-listen", group: groupCluster, arg: "ADDR", def: ":8082", needs: "cluster",
		help: "address for other nodes, always mutual TLS",
		set:  one(func(d *draft) *string { return &d.Cluster.Listen }, listenAddr)},
	{name: "node-advertise", group: groupCluster, arg: "HOST:PORT", shows: "the address that reaches NATS, with the port of --node-listen", needs: "cluster",
		help: "where other nodes reach --node-listen",
		set:  one(func(d *draft) *string { return &d.Cluster.Advertise }, advertised)},
	{name: "node-dead-after", group: groupCluster, arg: "DUR", def: "1.5s", needs: "cluster",
		help: "how long a node may send no heartbeat, and not answer, before others may take it for dead",
		set:  one(func(d *draft) *time.Duration { return &d.Cluster.DeadAfter }, duration(time.Second, time.Hour))},

	{name: "driver", group: groupSpeed, arg: "auto|net|poll", def: "auto",
		help: "connection I/O, for diagnosis: goroutines (net), or event loops on Linux (poll, which auto picks there); --demo and --dev always use net",
		set:  one(func(d *draft) *transport.Kind { return &d.Gateway.Driver }, choices[transport.Kind]{{"auto", transport.Auto}, {"net", transport.Net}, {"poll", transport.Poll}}.parse)},
	{name: "loops", group: groupSpeed, arg: "auto|N", def: "auto",
		help: "event loops in use: N, or as many as the load needs, up to the number of processors (auto)",
		set:  one(func(d *draft) *int { return &d.Gateway.Loops }, or("auto", count(1, maxLoops)))},

	{name: "config", group: groupRest, arg: "FILE", shows: "none",
		help: "TOML file with settings, named like the flags",
		set:  one(func(d *draft) *string { return &d.Config }, fileName)},
	{name: "log-level", group: groupRest, arg: "LEVEL", def: "info",
		help: "debug, info, warn or error",
		set:  one(func(d *draft) *slog.Level { return &d.LogLevel }, choices[slog.Level]{{"debug", slog.LevelDebug}, {"info", slog.LevelInfo}, {"warn", slog.LevelWarn}, {"error", slog.LevelError}}.parse)},
	{name: "log-format", group: groupRest, arg: "text|json", shows: "text on a terminal, else json",
		help: "format of log lines",
		set:  one(func(d *draft) *string { return &d.LogFormat }, choices[string]{{"text", "text"}, {"json", "json"}}.parse)},
	{name: "log-messages", group: groupRest, arg: "off|size|prefix:N", def: "off",
		help:     "log each data message: direction, kind, size, and its first N bytes (up to 1024)",
		setLocal: one(func(l *local) *session.MessageLog { return &l.MessageLog }, messageLog)},
	{name: "version", group: groupRest, help: "print the version and exit"},
	{name: "help", group: groupRest, help: "print this help and exit"},
}
