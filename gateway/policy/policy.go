// Package policy holds the settings of a route: how long sessions are kept, how much they
// may hold, and who may begin them. It makes no decisions.
package policy

import (
	"context"
	"net/http"
	"time"

	"reseat/gateway/newest"
	"reseat/gateway/session"
	"reseat/tokens/login"
	"reseat/upstream"
)

// A Route maps the paths that match Pattern to Upstream.
type Route struct {
	// Pattern is a chi pattern such as "/match/*" or "/room/{id}".
	Pattern string
	// Upstream is the game server.
	Upstream upstream.Target
	// Policy holds the route's settings, all of them filled in.
	Policy Policy
}

// MaxGrace is the maximum grace period, by flag, control API or upstream.
const MaxGrace = 365 * 24 * time.Hour

// GraceUnconfirmed bounds the grace period while the client has confirmed no hello: protocol section 11.
const GraceUnconfirmed = 5 * time.Second

// Compression says whether permessage-deflate is negotiated with clients that offer it, and how many bytes of
// earlier messages each direction keeps for messages to refer to: deflate.Options.
type Compression struct {
	On     bool
	Window int
}

// A Policy is the settings that can differ by route: docs/flags.md, the flags marked (R).
type Policy struct {
	// A detached session is kept for Grace; zero ends it at once.
	Grace time.Duration
	// GraceBeforeStart replaces Grace until the game server has marked the session
	// started. Nil means Grace.
	GraceBeforeStart *time.Duration
	// Hard closes the upstream connection while a session is detached, and dials again at
	// the resume: --disconnect hard.
	Hard bool
	// Redial replaces an upstream connection that ends while the session continues, trying for
	// RedialFor: --upstream-lost redial.
	Redial    bool
	RedialFor time.Duration
	// Durable lets sessions outlive their node: --durable. With Redeliver the next node writes
	// unacked messages of the client again: --failover-redeliver.
	Durable, Redeliver bool
	// Rate limits what a client sends.
	Rate session.Rate
	// PlainResume lets plain clients resume by a cookie: --plain-resume.
	PlainResume bool
	// MessageLog selects what is logged of each data message: --log-messages.
	MessageLog session.MessageLog
	// IdleTimeout ends a session without a data message for this long; zero turns it
	// off.
	IdleTimeout time.Duration
	// Auth says how the players' JWTs are verified; nil requires none. OpenLogins sets
	// Login from it.
	Auth *Auth
	// Login verifies the players' JWTs; nil requires none.
	Login Login
	// Duplicate decides about a second session of the same player.
	Duplicate Duplicate
	// Notices are sent to the upstream when the client disconnects, resumes, or does not
	// resume. {session} and {player} in them are replaced, escaped for JSON.
	Notices session.Notices
	// KeepaliveReplies and Keepalives answer and send the game's own heartbeats while the client is
	// detached; {session} and {player} as in Notices.
	KeepaliveReplies []session.KeepaliveReply
	Keepalives       []session.Keepalive
	// Keepalive selects how the keepalives of clients are treated: --keepalive-send.
	Keepalive session.KeepaliveMode
	// BufferBytes and BufferMessages limit one session's replay buffer.
	BufferBytes    int64
	BufferMessages int
	// Overflow decides about a message that does not fit while detached.
	Overflow session.Overflow
	// Newest says of which messages only the newest counts; nil: of none.
	Newest *newest.Rules
	// MaxMessage is the maximum message size in bytes, in either direction.
	MaxMessage int64
	// Compression applies to connections with clients.
	Compression Compression
	// Heartbeat: pings an idle client; one that is silent for twice as long is detached.
	Heartbeat time.Duration
	// AnswerTimeout: a client that owes an answer (to a ping, or an ack) is detached
	// after this long in silence; zero leaves that to Heartbeat. Protocol section 5,
	// answer_ms.
	AnswerTimeout time.Duration
	// UpstreamHeartbeat pings an upstream that is silent for this long; zero turns it off.
	UpstreamHeartbeat time.Duration
	// DialTimeout limits connecting to the upstream and waiting for its 101.
	DialTimeout time.Duration
	// Origins are the allowed Origin patterns; empty allows the same host.
	Origins []string
	// HTTPOff answers requests that are not WebSocket handshakes with 426 instead of
	// proxying them.
	HTTPOff bool
}

// Conceal removes what the upstream must not see, from handshakes and ordinary requests:
// the gateway's own cookies, and with --auth-forward off the login.
func (p *Policy) Conceal(ask *upstream.Request) {
	upstream.DropOwnCookies(ask.Header)
	if p.Login != nil {
		p.Login.Conceal(ask)
	}
}

// A Login verifies players' JWTs, --auth-*. It must be safe for concurrent use.
type Login interface {
	// Find returns the JWT of a request. Its errors, and those of Verify, are those of
	// package login.
	Find(r *http.Request) (token string, err error)
	// Verify returns the player that a JWT names.
	Verify(ctx context.Context, token string) (player string, err error)
	// VerifyExpired is Verify for a JWT that may have expired.
	VerifyExpired(ctx context.Context, token string) (player string, err error)
	// Conceal removes the JWT from what the upstream sees: always from the offered
	// subprotocols, and from the rest unless it is forwarded.
	Conceal(ask *upstream.Request)
	// Only returns r without any login but token ("": without any): the upstream must
	// not see an unverified one. It does not change r.
	Only(r *http.Request, token string) *http.Request
	// InCookie reports whether r has its JWT in a cookie.
	InCookie(r *http.Request) bool
	// Realm identifies the source of the players' names: equal for two Logins if a
	// name means the same player to both. It is comparable.
	Realm() any
}

// An Auth describes a Login: the flags --auth-*. Either JWKS or KeyFile is set.
type Auth struct {
	JWKS, KeyFile    string
	Issuer, Audience string
	From             login.Sources
	Conceal          bool // --auth-forward off
}

// Flag names the flag that says where the keys are.
func (a *Auth) Flag() string {
	if a.KeyFile != "" {
		return "--auth-key-file"
	}
	return "--auth-jwks"
}

// Duplicate is a policy about second sessions of the same player: --duplicate.
type Duplicate uint8

// The policies of --duplicate.
const (
	// Allow permits any number of sessions per player.
	Allow Duplicate = iota
	// Takeover ends the older sessions once the game server has accepted the newest. Of
	// any number that begin at once, the newest stays.
	Takeover
	// Reject refuses a session if its player has one that is attached and answers a ping
	// in time, or that is about to begin. It ends any other.
	Reject
)
