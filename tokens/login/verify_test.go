package login

import (
	"context"
	"crypto"
	"errors"
	"strings"
	"testing"
	"time"

	"reseat/tokens/internal/jwttest"
)

// keyKinds has one signer per kind of key, with the algorithms that it may use.
func keyKinds() []struct {
	private crypto.Signer
	algs    []string
} {
	return []struct {
		private crypto.Signer
		algs    []string
	}{
		{jwttest.RSA(), []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}},
		{jwttest.P256(), []string{"ES256"}},
		{jwttest.P384(), []string{"ES384"}},
		{jwttest.P521(), []string{"ES512"}},
		{jwttest.Ed25519(), []string{"EdDSA"}},
	}
}

func TestEveryKindOfKeyVerifiesItsAlgorithms(t *testing.T) {
	for _, kind := range keyKinds() {
		file, set := byFile(t, jwttest.PKIX(kind.private)), bySet(t, jwk("k-1", kind.private, ""))
		for _, alg := range kind.algs {
			token := jwttest.Sign(t, head(alg, "k-1", ""), body(), alg, kind.private)
			wantPlayer(t, file, token)
			wantPlayer(t, set, token)
		}
	}
	wantPlayer(t, byFile(t, jwttest.Secret), jwttest.Sign(t, head("HS256", "", ""), body(), "HS256", jwttest.Secret))
}

// A kid selects in a JWKS; a key file has no kid to compare it with.
func TestKidSelectsOnlyWithinASet(t *testing.T) {
	one, two := jwk("k-1", jwttest.Ed25519(), ""), jwk("k-2", jwttest.OtherEd25519(), "")
	for name, tt := range map[string]struct {
		verifier *Verifier
		kid      string
		want     error
	}{
		"key file, no kid":                    {byFile(t, jwttest.PKIX(jwttest.Ed25519())), "", nil},
		"key file, any kid":                   {byFile(t, jwttest.PKIX(jwttest.Ed25519())), "whatever", nil},
		"set of one, its kid":                 {bySet(t, one), "k-1", nil},
		"set of one, no kid":                  {bySet(t, one), "", nil},
		"set of one, another kid":             {bySet(t, one), "k-2", ErrUnknownKey},
		"set of one without a kid, no kid":    {bySet(t, jwk("", jwttest.Ed25519(), "")), "", nil},
		"set of one without a kid, some kid":  {bySet(t, jwk("", jwttest.Ed25519(), "")), "k-1", ErrUnknownKey},
		"set of two, its kid":                 {bySet(t, one, two), "k-1", nil},
		"set of two, the other's kid":         {bySet(t, one, two), "k-2", ErrForged},
		"set of two, no kid":                  {bySet(t, one, two), "", ErrUnknownKey},
		"set of two, one without kid, no kid": {bySet(t, jwk("", jwttest.Ed25519(), ""), two), "", ErrUnknownKey},
	} {
		t.Run(name, func(t *testing.T) {
			token := edToken(t, tt.kid, jwttest.Ed25519())
			if tt.want == nil {
				wantPlayer(t, tt.verifier, token)
				return
			}
			wantRefused(t, tt.verifier, token, tt.want)
		})
	}
}

func TestDatesHoldToTheSecond(t *testing.T) {
	path := jwttest.Write(t, "key", jwttest.PKIX(jwttest.Ed25519()))
	at := func(d time.Duration) *Verifier { // from 1800000000 exactly
		return start(t, Config{KeyFile: path, Now: func() time.Time { return time.Unix(1_800_000_000, 0).Add(d) }})
	}
	for _, tt := range []struct {
		name   string
		claims []string
		now    time.Duration
		want   error
	}{
		{"a second before exp", []string{"exp:1800000010"}, 9 * time.Second, nil},
		{"just before exp", []string{"exp:1800000010"}, 10*time.Second - 1, nil},
		{"at exp", []string{"exp:1800000010"}, 10 * time.Second, ErrExpired},
		{"a second after exp", []string{"exp:1800000010"}, 11 * time.Second, ErrExpired},
		{"before exp with a fraction", []string{"exp:1800000010.5"}, 10250 * time.Millisecond, nil},
		{"after exp with a fraction", []string{"exp:1800000010.5"}, 10750 * time.Millisecond, ErrExpired},
		{"exp 0", []string{"exp:0"}, 0, ErrExpired},
		{"exp in the year 9999", []string{"exp:253402300799"}, 0, nil},
		{"exp with an exponent", []string{"exp:1.8000036e9"}, 0, nil},
		{"nbf ahead by the leeway", []string{"nbf:1800000030"}, 0, nil},
		{"nbf ahead by a second more", []string{"nbf:1800000031"}, 0, ErrNotYet},
		{"nbf ahead by a second more, a second later", []string{"nbf:1800000031"}, time.Second, nil},
		{"iat ahead by the leeway", []string{"iat:1800000030"}, 0, nil},
		{"iat ahead by a second more", []string{"iat:1800000031"}, 0, ErrNotYet},
		{"iat long past", []string{"iat:1"}, 0, nil},
		{"neither nbf nor iat", []string{"nbf:", "iat:"}, 0, nil},
		{"no exp", []string{"exp:"}, 0, ErrMalformed},
		{"expired and not yet", []string{"nbf:1800000099", "exp:1"}, 0, ErrNotYet},
	} {
		t.Run(tt.name, func(t *testing.T) {
			token := edToken(t, "", jwttest.Ed25519(), tt.claims...)
			if tt.want == nil {
				wantPlayer(t, at(tt.now), token)
				return
			}
			wantRefused(t, at(tt.now), token, tt.want)
		})
	}
}

func TestIssuerAndAudienceAreCheckedIfConfigured(t *testing.T) {
	path := jwttest.Write(t, "key", jwttest.PKIX(jwttest.Ed25519()))
	any := start(t, Config{KeyFile: path})
	for _, changes := range [][]string{{}, {"iss:"}, {"aud:"}, {`iss:"x"`}, {`aud:["x","y"]`}, {"aud:[]"}} {
		wantPlayer(t, any, edToken(t, "", jwttest.Ed25519(), changes...))
	}
	issuer := start(t, Config{KeyFile: path, Issuer: "https://id.example"})
	wantPlayer(t, issuer, edToken(t, "", jwttest.Ed25519(), "aud:"))
	for _, change := range []string{"iss:", `iss:"https://id.example/"`, `iss:"https://ID.example"`, `iss:"x"`} {
		wantRefused(t, issuer, edToken(t, "", jwttest.Ed25519(), change), ErrForeign)
	}
	audience := start(t, Config{KeyFile: path, Audience: "arena"})
	for _, changes := range [][]string{{}, {"iss:"}, {`aud:["x","arena"]`}} {
		wantPlayer(t, audience, edToken(t, "", jwttest.Ed25519(), changes...))
	}
	for _, change := range []string{"aud:", `aud:"Arena"`, `aud:"arena2"`, `aud:"arena chess"`, "aud:[]", `aud:[""]`, `aud:["x"]`} {
		wantRefused(t, audience, edToken(t, "", jwttest.Ed25519(), change), ErrForeign)
	}
}

// The game server gets a player's name in a header: two players must never become one
// there.
func TestSubjectNamesOnePlayer(t *testing.T) {
	v := byFile(t, jwttest.PKIX(jwttest.Ed25519()))
	for sub, want := range map[string]string{
		`"7"`: "7", `"auth0|5f"`: "auth0|5f", `"Zoë 😀"`: "Zoë 😀", `"\u005a"`: "Z", `"\ud83d\ude00"`: "😀",
		jwttest.Quote(strings.Repeat("x", 256)): strings.Repeat("x", 256), `"a b"`: "a b",
	} {
		got, err := v.Verify(context.Background(), edToken(t, "", jwttest.Ed25519(), "sub:"+sub))
		if got != want || err != nil {
			t.Errorf("sub %s: player %q, error %v, want %q", sub, got, err, want)
		}
	}
	for _, sub := range []string{
		"", `""`, "null", "7", "true", "{}", `["player-1"]`, `"a\u0000b"`, `"a\nb"`, `"\u001b[2J"`, `"a\u007f"`, `"a\u0085b"`,
		`" player-1"`, `"player-1 "`, `"\u00a0player-1"`, `"\ud800"`, `"\udfff\ud800"`, `"a\ufffdb"`, jwttest.Quote(strings.Repeat("x", 257)),
		jwttest.Quote(strings.Repeat("ë", 129)),
		`"ann\u200b"`, `"a\u202enn"`, `"\ufeffann"`, `"a\u00adb"`, `"a\u3000b"`, `"ann\u3164"`, `"ann\u115f"`, `"ann\uffa0"`, `"ann\u034f"`, `"ann\u17b4"`, // invisible
	} {
		wantRefused(t, v, edToken(t, "", jwttest.Ed25519(), "sub:"+sub), ErrNoSubject)
	}
}

func TestVerifyExpiredAcceptsExpiredLogin(t *testing.T) {
	v := byFile(t, jwttest.PKIX(jwttest.Ed25519()))
	ctx := context.Background()
	for _, exp := range []string{"exp:1800003600", "exp:1800000000", "exp:1", "exp:0"} {
		if got, err := v.VerifyExpired(ctx, edToken(t, "", jwttest.Ed25519(), exp)); got != "player-1" || err != nil {
			t.Errorf("%s: player %q, error %v", exp, got, err)
		}
	}
	for name, tt := range map[string]struct {
		token string
		want  error
	}{
		"forged":      {edToken(t, "", jwttest.OtherEd25519(), "exp:1"), ErrForged},
		"foreign":     {edToken(t, "", jwttest.Ed25519(), "exp:1", `aud:"x"`), ErrForeign},
		"not yet":     {edToken(t, "", jwttest.Ed25519(), "exp:1", "nbf:1800000099"), ErrNotYet},
		"no exp":      {edToken(t, "", jwttest.Ed25519(), "exp:"), ErrMalformed},
		"no subject":  {edToken(t, "", jwttest.Ed25519(), "exp:1", "sub:"), ErrNoSubject},
		"resume type": {jwttest.Sign(t, head("EdDSA", "", `,"typ":"reseat+jwt"`), body("exp:1"), "EdDSA", jwttest.Ed25519()), ErrForged},
	} {
		if got, err := v.VerifyExpired(ctx, tt.token); got != "" || Reason(err) != Reason(tt.want) {
			t.Errorf("%s: player %q, error %v, want %v", name, got, err, tt.want)
		}
	}
}

// The library accepts JSON null as claims with zero values; without a configured issuer and
// audience no other check would notice.
func TestNullIsNoClaimsSet(t *testing.T) {
	v := start(t, Config{KeyFile: jwttest.Write(t, "key", jwttest.PKIX(jwttest.Ed25519()))})
	token := jwttest.Sign(t, head("EdDSA", "", ""), "null", "EdDSA", jwttest.Ed25519())
	wantRefused(t, v, token, ErrMalformed)
	if got, err := v.VerifyExpired(context.Background(), token); got != "" || !errors.Is(err, ErrMalformed) {
		t.Errorf("player %q, error %v", got, err)
	}
}

// Header members that other issuers write, and that mean nothing here.
func TestUnknownHeaderMembersAreIgnored(t *testing.T) {
	v := byFile(t, jwttest.PKIX(jwttest.Ed25519()))
	for _, more := range []string{
		`,"typ":"JWT"`, `,"typ":"at+jwt"`, `,"typ":"application/at+jwt"`, `,"cty":"x"`, `,"x5t":"AAAA"`, `,"x5t#S256":"AAAA"`,
		`,"x5c":["MIIB"]`, `,"nonce":"n"`, `,"ver":2`, `,"JKU":"https://x"`, `,"x":{"crit":["a"]}`,
	} {
		wantPlayer(t, v, jwttest.Sign(t, head("EdDSA", "", more), body(), "EdDSA", jwttest.Ed25519()))
	}
}

func TestConfigNamesExactlyOneSource(t *testing.T) {
	path := jwttest.Write(t, "key", jwttest.PKIX(jwttest.Ed25519()))
	for _, c := range []Config{{}, {KeyFile: path, JWKS: path}} {
		if v, err := New(context.Background(), c); v != nil || err == nil || !strings.Contains(err.Error(), "either a JWKS or a key file") {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}
