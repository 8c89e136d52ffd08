package gateway

import (
	"log/slog"
	"runtime"
	"time"

	"reseat/gateway/owner"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
	"reseat/tokens"
)

// minRenewInterval is the minimum interval between two renewals of a token.
const minRenewInterval = 500 * time.Millisecond

// cookieLife is the lifetime of a cookie's token. The session's end is its real limit.
const cookieLife = 10 * 365 * 24 * time.Hour

// An issuer issues the tokens of sessions.
type issuer struct {
	keys    *tokens.Keys
	signing chan struct{} // semaphore: tokens signed at once
	clock   *transport.Clock
	ttl     time.Duration
	cluster owner.Cluster // nil without a cluster
	route   string        // of hello, "" for none
	log     *slog.Logger
}

func newIssuer(cfg *Config, clock *transport.Clock) *issuer {
	i := &issuer{keys: cfg.Keys, signing: make(chan struct{}, runtime.GOMAXPROCS(0)), clock: clock, ttl: cfg.TokenTTL, cluster: cfg.Cluster, log: cfg.Log}
	if cfg.Cluster != nil && wire.ValidRoute(cfg.NodeName) {
		i.route = cfg.NodeName
	}
	return i
}

// pass makes the credentials of an attach: a token of generation gen. It limits the tokens
// signed at once to the number of processors, so that a storm of resumes does not delay
// messages.
func (i *issuer) pass(e *registry.Record, gen uint64, arrived session.Time) (p session.Pass, kid string, err error) {
	i.signing <- struct{}{}
	defer func() { <-i.signing }()
	t := e.Terms()
	life := max(i.ttl, 2*t.LongestGrace())
	if e.Kept() {
		life = cookieLife
	}
	claims := tokens.Claims{Session: e.ID, Subject: e.Subject(), Gen: gen, Expires: time.Now().Add(life)}
	if e.Durable && e.Seat().Epoch > 0 {
		claims.Owner = i.cluster.ID()
	}
	token, kid, err := i.keys.Issue(claims)
	if err == nil {
		e.SetMemo(tokens.Remember(token, kid, claims))
	}
	return session.Pass{
		Gen: gen, Token: token, Expires: i.clock.Now().Add(life),
		Renew: renewal(life, t.Heartbeat, t.LongestGrace()), Arrived: arrived, Route: i.route,
	}, kid, err
}

// renewal is when a token with this lifetime must be replaced: after half of it, or
// earlier if the old token would not outlive twice the heartbeat plus the grace period
// (protocol section 7). If the lifetime is too short for that, it is half of it.
func renewal(life, heartbeat, grace time.Duration) time.Duration {
	spare := life - 2*heartbeat - grace
	if spare <= 0 {
		return life / 2
	}
	return min(life/2, max(spare*3/4, minRenewInterval))
}

// renew sends an attached client a token of its present generation with a later expiry,
// signed by the present key.
func (i *issuer) renew(e *registry.Record) {
	d := e.Driver()
	if d == nil || !e.Resumable || d.Info().State != session.Attached {
		return
	}
	var gen uint64
	d.Do(func(core *session.Session, _ session.Time) { gen = core.Generation() })
	if gen == 0 { // a successor has the session: see upgrade.Rest
		return
	}
	p, _, err := i.pass(e, gen, 0)
	if err != nil {
		i.log.Error("token.renew_failed", "session", e.ID, "err", err)
		return
	}
	d.Do(func(core *session.Session, now session.Time) { core.SendToken(now, p) })
}
