package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/tokens/login"
	"reseat/upstream"
)

// A provider is a Login by a Verifier.
type provider struct {
	*login.Verifier
	from    login.Sources
	conceal bool
}

func (p *provider) Find(r *http.Request) (string, error) { return p.from.Find(r) }
func (p *provider) InCookie(r *http.Request) bool        { return p.from.InCookie(r) }
func (p *provider) Realm() any                           { return p.Verifier }

func (p *provider) Only(r *http.Request, token string) *http.Request { return p.from.Only(r, token) }

func (p *provider) Conceal(ask *upstream.Request) {
	ask.Protocols = p.from.StripProtocols(ask.Protocols)
	if p.conceal {
		p.from.StripHeader(ask.Header)
		ask.RawQuery = p.from.StripQuery(ask.RawQuery)
	}
}

// OpenLogins gives each route of cfg whose policy asks for logins what verifies
// them, until ctx ends. Its error names the flag.
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
			cfg.logins = append(cfg.logins, v)
		}
		policy.Login = &provider{open[s], a.From, a.Conceal}
	}
	return nil
}

// PlayerFault says what is wrong with the name of a player, "" for nothing: one rule for
// logins and for names that a backend gives.
func PlayerFault(name string) string { return login.PlayerFault(name) }

// authenticate says whose session a handshake begins, "" where nobody is asked, and
// returns the handshake with no other login than the one that was verified.
func authenticate(l policy.Login, r *http.Request) (player string, only *http.Request, err error) {
	if l == nil {
		return "", r, nil
	}
	token, err := l.Find(r)
	if err != nil {
		return "", nil, err
	}
	player, err = l.Verify(r.Context(), token)
	return player, l.Only(r, token), err
}

// sameLogin reports whether a login that comes with a resume, if one does, is
// the session's player's, if it has one. It may have expired meanwhile. One whose signature is
// not good says nothing of anybody: the resume's own token stands for the login,
// and the issuer may have done away with the key since the session began. A session
// made ahead without a player is for anyone who has its token.
//
// It returns the handshake with no other login than a verified one: a hard resume
// passes it on.
func sameLogin(ctx context.Context, e *registry.Record, r *http.Request) (only *http.Request, ok bool) {
	l := e.Terms().Login
	if l == nil {
		return r, true
	}
	token, err := l.Find(r)
	if err != nil {
		return l.Only(r, ""), e.Player == "" || errors.Is(err, login.ErrMissing)
	}
	player, err := l.VerifyExpired(ctx, token)
	if err != nil {
		return l.Only(r, ""), e.Player == "" || unsigned(err)
	}
	return l.Only(r, token), e.Player == "" || player == e.Player
}

// unsigned reports whether a login was refused because its signature is not good,
// whatever else may be wrong with it.
func unsigned(err error) bool {
	return slices.ContainsFunc([]error{login.ErrForged, login.ErrNoKeys, login.ErrMalformed, login.ErrTooLong}, func(kind error) bool {
		return errors.Is(err, kind)
	})
}
