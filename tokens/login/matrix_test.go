package login

import (
	"context"
	"testing"
	"time"

	"reseat/tokens"
	"reseat/tokens/internal/jwttest"
)

// A resume token is not a login, and a login is not a resume token, even if an operator uses
// the same key, issuer and audience for both: RFC 8725 section 3.11.
func TestOnlyMatchingKeyAndAlgorithmPass(t *testing.T) {
	shared, foreign := jwttest.Secret, []byte("zyxwvutsrqponmlkjihgfedcba9876543210")
	type environment struct {
		name string
		key  []byte
		aud  string
	}
	environments := []environment{{"production", shared, "reseat"}, {"staging", shared, "staging"}, {"another", foreign, "reseat"}}
	type party struct {
		name   string
		token  string
		verify func(string) error
	}
	var parties []party
	for _, e := range environments {
		keys, err := tokens.Load([]string{jwttest.Write(t, "key", e.key)}, tokens.Options{Audience: e.aud, Now: atEpoch})
		if err != nil {
			t.Fatal(err)
		}
		resume, _, err := keys.Issue(tokens.Claims{Session: "s-1", Subject: "player-1", Gen: 1, Expires: jwttest.Epoch.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		v := start(t, Config{KeyFile: jwttest.Write(t, "key", e.key), Issuer: "reseat", Audience: e.aud})
		parties = append(parties,
			party{e.name + " resume", resume, func(s string) error { _, err := keys.Verify(s); return err }},
			party{e.name + " login", jwttest.Sign(t, head("HS256", keys.SigningKeyID(), `,"typ":"JWT"`), resumeClaims(e.aud), "HS256", e.key),
				func(s string) error { _, err := v.Verify(context.Background(), s); return err }})
	}
	for i, has := range parties {
		for j, judge := range parties {
			if err := judge.verify(has.token); (err == nil) != (i == j) {
				t.Errorf("%s token before the %s verifier: error %v", has.name, judge.name, err)
			}
		}
	}
}

// resumeClaims are those of a resume token, so that only typ differs.
func resumeClaims(aud string) string {
	return body(`iss:"reseat"`, "aud:"+jwttest.Quote(aud), `sid:"s-1"`, "gen:1", `jti:"j-1"`)
}
