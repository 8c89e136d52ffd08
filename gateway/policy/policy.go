// Package policy is what can be set for each route: how long sessions are kept, what
// they may hold, who may begin them. It decides nothing.
package policy

import (
	"context"
	"net/http"
	"time"

	"reseat/gateway/session"
	"reseat/tokens/login"
	"reseat/upstream"
)

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
	// MessageLog logs a line for each data message: --log-messages.
	MessageLog session.MessageLog
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

// Conceal takes out of what the upstream is to see, of handshakes and of ordinary
// requests alike: the gateway's own cookies, and the login where --auth-forward is off.
func (p *Policy) Conceal(ask *upstream.Request) {
	upstream.DropOwnCookies(ask.Header)
	if p.Login != nil {
		p.Login.Conceal(ask)
	}
}

// A Login verifies players' own JWTs, --auth-*. It may be used by several
// goroutines at once.
type Login interface {
	// Find takes the JWT from where it is looked for. Its errors, and those of
	// Verify, are those of package login.
	Find(r *http.Request) (token string, err error)
	// Verify returns the player that a JWT names.
	Verify(ctx context.Context, token string) (player string, err error)
	// VerifyExpired is the same, but that the JWT may have expired.
	VerifyExpired(ctx context.Context, token string) (player string, err error)
	// Conceal takes the JWT out of what the upstream is to see: always out of
	// the offered subprotocols, and out of the rest unless it is forwarded.
	Conceal(ask *upstream.Request)
	// Only returns r without any login but token, "" for none: the upstream must not
	// see one that has not been verified. It does not change r.
	Only(r *http.Request, token string) *http.Request
	// InCookie reports whether it stands in a cookie.
	InCookie(r *http.Request) bool
	// Realm is where the players' names come from: equal for two Logins whose
	// players of one name are the same. It is comparable.
	Realm() any
}

// An Auth is what a Login is made from: the flags --auth-*. One of JWKS and
// KeyFile is set.
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

// Duplicate says what a second session of the same player means, --duplicate.
type Duplicate uint8

// The policies of --duplicate.
const (
	// Allow lets a player have as many sessions as they begin.
	Allow Duplicate = iota
	// Takeover ends the older sessions once the game server has accepted the
	// newest: of any number that begin at once, the newest stays.
	Takeover
	// Reject refuses a session whose player has one that is attached and
	// answers a ping in time, or that is about to begin. Any other is taken over.
	Reject
)
