package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"reseat/gateway/front"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/tokens/login"
	"reseat/upstream"
)

// A provider implements policy.Login with a Verifier and Sources.
type provider struct {
	*login.Verifier
	login.Sources
	conceal bool
}

// Realm implements policy.Login.
func (p *provider) Realm() any { return p.Verifier }

// Conceal implements policy.Login.
func (p *provider) Conceal(ask *upstream.Request) {
	ask.Protocols = p.StripProtocols(ask.Protocols)
	if p.conceal {
		p.StripHeader(ask.Header)
		ask.RawQuery = p.StripQuery(ask.RawQuery)
	}
}

// OpenLogins gives each route of cfg that requires a login its verifier, which works
// until ctx ends. The error names the flag.
func OpenLogins(ctx context.Context, cfg *Config) error {
	type source struct{ jwks, keyFile, issuer, audience string }
	open := make(map[source]*login.Verifier)
	for i := range cfg.Routes {
		policy := &cfg.Routes[i].Policy
		a := policy.Auth
		if a == nil {
			continue
		}
		s := source{a.JWKS, a.KeyFile, a.Issuer, a.Audience}
		if open[s] == nil {
			v, err := login.New(ctx, login.Config{JWKS: a.JWKS, KeyFile: a.KeyFile, Issuer: a.Issuer, Audience: a.Audience, Log: cfg.Log})
			if err != nil {
				return fmt.Errorf("%s: %w", a.Flag(), err)
			}
			open[s] = v
			cfg.logins = append(cfg.logins, openLogin{v, a.Flag()})
		}
		policy.Login = &provider{open[s], a.From, a.Conceal}
	}
	return nil
}

// authenticate returns the player of a first handshake, "" if the route requires no login,
// and the handshake without any login but the verified one.
func authenticate(l policy.Login, r *front.Request) (player string, only *front.Request, err error) {
	if l == nil {
		return "", r, nil
	}
	token, err := l.Find(r.Request)
	if err != nil {
		return "", nil, err
	}
	r.Visit.Away(func() { player, err = l.Verify(r.Context(), token) })
	return player, r.With(l.Only(r.Request, token)), err
}

// sameLogin reports whether a resume may go on: it brings no login, or the session
// player's, which may have expired meanwhile. A login with an invalid signature is
// ignored: the resume token stands for the login, and the issuer may have withdrawn the
// key since the session began. A session that was created without a player is for anyone
// with its token.
//
// It returns the handshake without any login but a verified one: a hard resume passes it on.
func sameLogin(ctx context.Context, e *registry.Record, r *front.Request) (only *front.Request, ok bool) {
	l := e.Terms().Login
	if l == nil {
		return r, true
	}
	token, err := l.Find(r.Request)
	if err != nil {
		return r.With(l.Only(r.Request, "")), e.Player == "" || errors.Is(err, login.ErrMissing)
	}
	var player string
	r.Visit.Away(func() { player, err = l.VerifyExpired(ctx, token) })
	if err != nil {
		return r.With(l.Only(r.Request, "")), e.Player == "" || unsigned(err)
	}
	return r.With(l.Only(r.Request, token)), e.Player == "" || player == e.Player
}

// unsigned reports whether a login was refused for an invalid signature, whatever else may
// be wrong with it.
func unsigned(err error) bool {
	return slices.ContainsFunc([]error{login.ErrForged, login.ErrNoKeys, login.ErrMalformed, login.ErrTooLong}, func(kind error) bool {
		return errors.Is(err, kind)
	})
}
