package gateway

import (
	"log/slog"
	"net/netip"
	"time"

	"reseat/gateway/policy"
	"reseat/gateway/transport"
	"reseat/tokens"
	"reseat/tokens/login"
)

// Config is what a Gateway is made from. It is not changed after New.
type Config struct {
	// Routes are matched by chi's rules, the most specific pattern first
	// whatever their order here. A path that none matches gets 404.
	Routes []policy.Route

	// Default is the policy that holds where no route is known yet: the Origin
	// check of a resume whose path matches no route.
	Default policy.Policy

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

	// Driver says what moves the bytes between sockets and sessions.
	Driver transport.Kind

	// Log receives one line for each session event. Nil means slog.Default.
	Log *slog.Logger
}
