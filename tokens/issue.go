package tokens

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"
)

// Claims are the claims of a resume token.
type Claims struct {
	// Session is the session's id (sid).
	Session string
	// Subject is the player, or the session's id if no player is known (sub).
	Subject string
	// Owner is the node that has the session, "" if that is the one that began it (own).
	Owner string
	// Gen is the generation, from 1 (gen).
	Gen uint64
	// Expires is the time from which on the token is invalid (exp). As
	// Verify returns it, it has been rounded up to a second.
	Expires time.Time

	// IssuedAt (iat) and KeyID (kid) are set by Verify. Issue ignores
	// them: it uses the clock and the signing key.
	IssuedAt time.Time
	KeyID    string
}

// Issue signs a token for c with the first key and returns it with that key's
// kid. The token is valid at least until c.Expires: exp is rounded up to a second,
// iat is the clock rounded down, and nbf lies a minute before it, since another
// gateway's clock may be behind. Every token has a unique jti.
//
// It fails if a claim is empty or out of range, if c.Expires is not in the future, and with
// ErrTooLong if the token would exceed MaxLen. A subject of 1,024 bytes without JSON escapes
// fits with every kind of key.
func (k *Keys) Issue(c Claims) (token, kid string, err error) {
	p, err := k.payload(c, k.opts.Now())
	if err != nil {
		return "", "", fmt.Errorf("issue token: %w", err)
	}
	signing := k.set.Load().signing
	token, err = signing.sign(p)
	if err != nil {
		return "", "", fmt.Errorf("issue token: %w", err)
	}
	if len(token) > MaxLen {
		return "", "", fmt.Errorf("issue token: %w: %d bytes with a subject of %d, want at most %d", ErrTooLong, len(token), len(c.Subject), MaxLen)
	}
	return token, signing.id, nil
}

// sign returns the signed token of p: RFC 7515 section 3.1. All tokens of k have the same
// header, which is encoded once.
func (k *key) sign(p *payload) (string, error) {
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	b.claims.Reset()
	if err := json.NewEncoder(&b.claims).Encode(p); err != nil {
		return "", err
	}
	claims := bytes.TrimSuffix(b.claims.Bytes(), []byte("\n"))
	b.text = base64url.AppendEncode(append(b.text[:0], k.header...), claims)
	signature, err := k.method.Sign(string(b.text), k.private)
	if err != nil {
		return "", err
	}
	b.text = base64url.AppendEncode(append(b.text, '.'), signature)
	return string(b.text), nil
}

// A buffer holds a token while it is made.
type buffer struct {
	claims bytes.Buffer
	text   []byte
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// encodedHeader returns the header of k's tokens, and the dot behind it.
func (k *key) encodedHeader() string {
	b, _ := json.Marshal(map[string]string{"alg": k.method.Alg(), "kid": k.id, "typ": tokenType}) // cannot fail
	return base64url.EncodeToString(b) + "."
}

// clockSkew is the max difference between the clocks of two gateways in seconds: protocol
// section 7.
const clockSkew = 60

// payload adds the claims that c does not set, and checks those that it does.
func (k *Keys) payload(c Claims, now time.Time) (*payload, error) {
	p := &payload{
		Issuer:   issuer,
		Audience: k.opts.Audience,
		Subject:  c.Subject,
		Session:  c.Session,
		Gen:      c.Gen,
		Owner:    c.Owner,
		Issued:   now.Unix(),
		Begins:   max(now.Unix()-clockSkew, 0),
		Expires:  ceilSecond(c.Expires),
		ID:       rand.Text(),
	}
	switch {
	case !isName(c.Session):
		return nil, fmt.Errorf("session id of %d bytes: want UTF-8, not empty", len(c.Session))
	case !isName(c.Subject):
		return nil, fmt.Errorf("subject of %d bytes: want UTF-8, not empty", len(c.Subject))
	case c.Gen < 1 || c.Gen > maxGen:
		return nil, fmt.Errorf("generation %d: want 1 to %d", c.Gen, uint64(maxGen))
	case !c.Expires.After(now) || p.Expires > maxDate:
		return nil, fmt.Errorf("expiry %v: want it after %v and before the year 10000", c.Expires, now)
	}
	return p, nil
}

// isName reports whether s is UTF-8: no other string survives JSON unchanged.
func isName(s string) bool { return s != "" && utf8.ValidString(s) }

// ceilSecond returns t in seconds since 1970, rounded up.
func ceilSecond(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}
