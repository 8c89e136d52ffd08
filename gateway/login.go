package gateway

import (
	"errors"
	"net/http"

	"reseat/upstream"
)

// A Login verifies players' own JWTs, --auth-*. It must be comparable, and may
// be used by several goroutines at once.
type Login interface {
	// Find takes the JWT from where it is looked for; found is false where there
	// is none.
	Find(r *http.Request) (token string, found bool, err error)
	// Verify returns the player that a JWT names.
	Verify(token string) (player string, err error)
	// VerifyExpired is the same, but that the JWT may have expired.
	VerifyExpired(token string) (player string, err error)
	// Conceal takes the JWT out of what the upstream is to see: always out of
	// the offered subprotocols, and out of the rest unless it is forwarded.
	Conceal(ask *upstream.Request)
	// Challenge is the WWW-Authenticate of a 401 for err, which may be nil.
	Challenge(err error) string
}

// errNoLogin is a handshake that brings no JWT where one is wanted.
var errNoLogin = errors.New("no login")

// authenticate says whose session a handshake begins, "" where nobody is asked.
func authenticate(login Login, r *http.Request) (player string, err error) {
	if login == nil {
		return "", nil
	}
	token, found, err := login.Find(r)
	switch {
	case err != nil:
		return "", err
	case !found:
		return "", errNoLogin
	}
	return login.Verify(token)
}

// sameLogin reports whether a login that comes with a resume, if one does, is
// the session's player's. It may have expired meanwhile.
func (e *entry) sameLogin(r *http.Request) bool {
	login := e.terms().Login
	if login == nil {
		return true
	}
	token, found, err := login.Find(r)
	if err != nil || !found {
		return err == nil
	}
	player, err := login.VerifyExpired(token)
	return err == nil && player == e.Player
}
