package tokens

import (
	"strings"
	"testing"

	"reseat/tokens/internal/jwttest"
)

func BenchmarkIssue(b *testing.B) {
	for _, kind := range keyKinds() {
		b.Run(kind.alg, func(b *testing.B) {
			k := load(b, Options{Now: new(clock).now}, kind.file)
			c := claims()
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := k.Issue(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, kind := range keyKinds() {
		b.Run(kind.alg, func(b *testing.B) {
			k := load(b, Options{Now: new(clock).now}, kind.file)
			token := issue(b, k, claims())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := k.Verify(token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefuse measures what an attacker without a key costs the gateway.
func BenchmarkRefuse(b *testing.B) {
	k := load(b, Options{Now: new(clock).now}, jwttest.PKCS8(jwttest.Ed25519()))
	good := issue(b, k, claims())
	deep := base64url.EncodeToString([]byte(strings.Repeat("[", 2900)))
	for _, bad := range []struct{ name, token string }{
		{"megabyte of dots", strings.Repeat(".", 1<<20)},
		{"megabyte of base64", strings.Repeat("A", 1<<20)},
		{"4 KiB of dots", strings.Repeat(".", MaxLen)},
		{"deep header", deep + ".e30.AAAA"},
		{"deep claims", strings.Split(good, ".")[0] + "." + deep + ".AAAA"},
		{"wrong signature", jwttest.Corrupt(good)},
	} {
		b.Run(bad.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := k.Verify(bad.token); err == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}
