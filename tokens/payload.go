package tokens

import (
	"time"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/internal/jws"
	"reseat/tokens/strict"
)

const (
	// maxMembers bounds a header or claims set; the protocol has 3 and 10.
	maxMembers = 32
	// maxGen is the largest integer that JSON numbers represent exactly in all
	// implementations (RFC 8259 section 6).
	maxGen = 1 << 53
	// maxDate is the last second of the year 9999, beyond which RFC 3339 does
	// not go.
	maxDate = 253402300799
)

// A payload is the claims set of a token (RFC 7519 section 4). Dates are whole
// seconds since 1970; the library's own date type would go through a float.
type payload struct {
	Issuer   string `json:"iss"`
	Audience string `json:"aud"` // for writing; parsed values are in audiences
	Subject  string `json:"sub"`
	Session  string `json:"sid"`
	Gen      uint64 `json:"gen"`
	Issued   int64  `json:"iat"`
	Begins   int64  `json:"nbf"`
	Expires  int64  `json:"exp"`
	ID       string `json:"jti"`
	Owner    string `json:"own,omitempty"`

	audiences []string
	read      bool // UnmarshalJSON has filled it; JSON null never calls that
}

// UnmarshalJSON parses a claims set, in which every claim of the protocol must be present,
// once, and of its type. Names are compared exactly, unlike in encoding/json: "EXP" is not
// exp. Claims of other names are ignored (RFC 7519 section 4). Errors wrap ErrMalformed.
func (p *payload) UnmarshalJSON(data []byte) error {
	o, err := strict.ParseObject(data, maxMembers)
	if err != nil {
		return jws.Malformed(err.Error())
	}
	r := strict.Reader{Object: o}
	r.Text("iss", &p.Issuer)
	r.Texts("aud", &p.audiences)
	r.Text("sub", &p.Subject)
	r.Text("sid", &p.Session)
	r.Text("jti", &p.ID)
	if _, moved := o.Get("own"); moved {
		r.Text("own", &p.Owner)
	}
	gen := r.Integer("gen", 1, maxGen)
	iat := r.Integer("iat", 0, maxDate)
	nbf := r.Integer("nbf", 0, maxDate)
	exp := r.Integer("exp", 0, maxDate)
	if r.Err != nil {
		return jws.Malformed(r.Err.Error())
	}
	p.Gen, p.Issued, p.Begins, p.Expires = gen, int64(iat), int64(nbf), int64(exp)
	p.read = true
	return nil
}

// claims returns the result of Verify.
func (p *payload) claims(kid string) Claims {
	return Claims{
		Session:  p.Session,
		Subject:  p.Subject,
		Gen:      p.Gen,
		Owner:    p.Owner,
		Expires:  time.Unix(p.Expires, 0),
		IssuedAt: time.Unix(p.Issued, 0),
		KeyID:    kid,
	}
}

// What jwt.Claims asks for, so that the library judges issuer, audience and dates. iat
// is judged with the skew that Issue allows nbf.

func (p *payload) GetIssuer() (string, error)                   { return p.Issuer, nil }
func (p *payload) GetSubject() (string, error)                  { return p.Subject, nil }
func (p *payload) GetAudience() (jwt.ClaimStrings, error)       { return p.audiences, nil }
func (p *payload) GetIssuedAt() (*jwt.NumericDate, error)       { return date(p.Issued - clockSkew), nil }
func (p *payload) GetNotBefore() (*jwt.NumericDate, error)      { return date(p.Begins), nil }
func (p *payload) GetExpirationTime() (*jwt.NumericDate, error) { return date(p.Expires), nil }

func date(seconds int64) *jwt.NumericDate {
	return jwt.NewNumericDate(time.Unix(seconds, 0))
}
