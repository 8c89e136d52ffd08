package gateway

import (
	"log/slog"
	"net/netip"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/owner"
	"reseat/gateway/policy"
	"reseat/gateway/transport"
	"reseat/tokens"
	"reseat/tokens/login"
)

// An openLogin verifies the logins of some routes, with the keys that a flag names.
type openLogin struct {
	*login.Verifier
	flag string
}

// Config configures a Gateway. It must not change after New.
type Config struct {
	// Routes are matched by chi's rules: the most specific pattern wins, whatever the
	// order here. A path that matches none gets 404.
	Routes []policy.Route

	// Default is the policy if no route is known: for the Origin check of a resume
	// whose path matches no route.
	Default policy.Policy

	// Cluster has the other nodes, nil without a cluster.
	Cluster owner.Cluster

	// Seats keeps the records of durable sessions, nil without a cluster or durable routes.
	Seats *cluster.Seats

	// NodeName is sent to clients as the route of their session, protocol section 5.1. It is
	// not if it is empty, if it is no valid route, or without a cluster.
	NodeName string

	// Players applies --duplicate in the whole cluster, nil without one.
	Players owner.Players

	// Keys sign and verify resume tokens. Required.
	Keys *tokens.Keys
	// TokenTTL is the lifetime of a token, raised to twice the grace period if that is
	// longer. Zero means one hour.
	TokenTTL time.Duration

	// UpstreamAllow lists the upstreams that a CreateRequest may name: HOST:PORT in
	// lower case. A * in the host does not match dots, but alone it matches any host,
	// and as the port any port.
	UpstreamAllow []string

	// BufferTotal is the maximum memory of all replay buffers together, in bytes.
	// Zero means 1 GiB.
	BufferTotal int64

	// MaxSessions and MaxSessionsPerIP limit the living sessions in total, and per
	// client address (per /64 for IPv6). Zero means no limit.
	MaxSessions, MaxSessionsPerIP int

	// Descriptors is the process's limit of open files. A session needs two. New
	// sessions are refused if they would use the reserve for resumes and for the admin
	// address. Zero means no limit.
	Descriptors int

	// Hosts are the allowed Host values; empty allows any.
	Hosts []string
	// TrustedProxies are the peers whose X-Forwarded-* headers the gateway uses.
	TrustedProxies []netip.Prefix

	// TrustedHeaders are further headers, such as X-Real-IP, that pass from a trusted
	// proxy to the upstream. The same headers from a client never pass, whatever their name.
	TrustedHeaders []string

	// Drain limits the wait of Drain for sessions to end.
	// Zero means 10 seconds.
	Drain time.Duration

	logins []openLogin // made by OpenLogins

	// Driver selects what moves the bytes between sockets and sessions.
	Driver transport.Kind
	// Loops is the number of event loops of that driver. Zero means as many as the load
	// needs, up to the number of processors.
	Loops int

	// Clock is the sessions' clock. A successor continues its predecessor's.
	// Nil means a new one.
	Clock *transport.Clock

	// Log receives one line per session event. Nil means slog.Default.
	Log *slog.Logger
}
