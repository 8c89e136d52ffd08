package gateway

import (
	"log/slog"
	"net/netip"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/tokens"
	"reseat/tokens/login"
	"reseat/upstream"
)

// A Driver is what moves the bytes between sockets and sessions.
type Driver = transport.Kind

// The drivers.
const (
	DriveAuto = transport.Auto // what costs least: DrivePoll
	DriveNet  = transport.Net  // goroutines
	DrivePoll = transport.Poll // event loops for plain TCP on Linux, else goroutines
)

// Config is what a Gateway is made from. It is not changed after New.
type Config struct {
	// Routes are matched by chi's rules, the most specific pattern first
	// whatever their order here. A path that none matches gets 404.
	Routes []Route

	// Default is the policy that holds where no route is known yet: the Origin
	// check of a resume whose path matches no route.
	Default Policy

	// Keys sign and verify resume tokens. Required.
	Keys *tokens.Keys
	// TokenTTL is the life of a token; it is lengthened to twice the grace
	// period where that is longer. Zero means one hour.
	TokenTTL time.Duration

	// UpstreamAllow are the upstreams that a session made ahead of its client may
	// name: HOST:PORT in lower case. A * in the host never goes across a dot; alone
	// it stands for any host, and as the port for any port.
	UpstreamAllow []string

	// BufferTotal bounds the memory of all replay buffers together, in bytes.
	// Zero means 1 GiB.
	BufferTotal int64

	// MaxSessions and MaxSessionsPerIP bound the living sessions, all together and
	// those begun from one address, or one /64 of IPv6. Zero is no bound.
	MaxSessions, MaxSessionsPerIP int

	// Descriptors is how many the process may open. New sessions, of two each, are
	// refused where they would touch a reserve for resumes and for the admin
	// address. Zero is no bound.
	Descriptors int

	// Hosts are the allowed Host values; empty means any.
	Hosts []string
	// TrustedProxies are the peers whose X-Forwarded-* headers are believed.
	TrustedProxies []netip.Prefix

	// TrustedHeaders are further headers of a trusted proxy's that pass to the upstream,
	// such as X-Real-IP. A client's own never do.
	TrustedHeaders []string

	// UnsafePaths lets paths through that programs may read in different ways
	// (encoded slashes, backslashes, empty segments): upstream.NormalPath. Then a route
	// is no policy, and an upstream's path no fence.
	UnsafePaths bool

	// Drain is how long Drain waits for sessions to end by themselves.
	// Zero means 10 seconds.
	Drain time.Duration

	logins []*login.Verifier // made by OpenLogins

	// Driver says what moves the bytes. Zero is DriveAuto.
	Driver Driver

	// Log receives one line for each session event. Nil means slog.Default.
	Log *slog.Logger
}

// A Route sends the paths that match Pattern to Upstream.
type Route struct {
	// Pattern is a chi pattern such as "/match/*" or "/room/{id}".
	Pattern string
	// Upstream is the game server.
	Upstream upstream.Target
	// Policy holds the route's own settings, all of them filled in.
	Policy Policy
}

// MaxGrace is the longest grace period, no matter who asks for it: a flag, the control API or
// the upstream.
const MaxGrace = 365 * 24 * time.Hour

// A Policy is what can be set globally and for a single route:
// docs/flags.md, the flags marked (R).
type Policy struct {
	// Grace is how long a detached session is kept; zero keeps none.
	Grace time.Duration
	// GraceBeforeStart is the same until the game server has marked the session
	// started. Nil means the same as Grace.
	GraceBeforeStart *time.Duration
	// Hard closes the upstream connection while a session is detached, and
	// dials it anew at the resume: --disconnect hard.
	Hard bool
	// Rate is how much a client may send.
	Rate session.Rate
	// PlainResume keeps plain clients, by a cookie: --plain-resume.
	PlainResume bool
	// Tell has a line logged for each data message.
	Tell session.Telling
	// IdleTimeout ends a session in which no data message passed for so long;
	// zero is off.
	IdleTimeout time.Duration
	// Auth says how the players' own JWTs are verified; nil asks for none.
	// OpenLogins makes a Login of it.
	Auth *Auth
	// Login verifies the players' own JWTs; nil asks nobody.
	Login Login
	// Duplicate says what a second session of the same player means.
	Duplicate Duplicate
	// Words are sent to the upstream when its client goes, comes back, or does
	// not. {session} and {player} in them stand for the two, escaped for JSON.
	Words session.Words
	// Replies and Beats are heartbeats of the game's own, answered and sent
	// while the client is away; {session} and {player} as in Words.
	Replies []session.Reply
	Beats   []session.Beat
	// BufferBytes and BufferMessages bound one session's replay buffer.
	BufferBytes    int64
	BufferMessages int
	// Overflow says what the first message that does not fit does while detached.
	Overflow session.Overflow
	// MaxMessage is the largest message in bytes, either way.
	MaxMessage int64
	// Compression agrees on permessage-deflate with a client that offers it.
	Compression bool
	// Heartbeat: a client silent for twice as long is detached.
	Heartbeat time.Duration
	// AnswerTimeout: a client that owes an answer (to a ping, or an ack) is detached
	// after this long in silence; zero leaves it to the heartbeat. Protocol section 5,
	// answer_ms.
	AnswerTimeout time.Duration
	// UpstreamHeartbeat pings an upstream silent for this long; zero is off.
	UpstreamHeartbeat time.Duration
	// DialTimeout is the time to reach the upstream and have its 101.
	DialTimeout time.Duration
	// Origins are the allowed Origin patterns; empty means same host.
	Origins []string
	// HTTPOff answers requests that are no WebSocket handshake with 426
	// instead of proxying them.
	HTTPOff bool
}
