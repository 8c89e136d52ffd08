package tokens

import "testing"

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
