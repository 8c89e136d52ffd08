package cluster

import (
	"crypto/tls"
	"testing"

	"reseat/gateway/internal/test/wstest"
)

// The connection to another node that each forwarded client costs: both sides together.
func BenchmarkNodeHandshake(b *testing.B) {
	far, near := keys("k"), keys("k")
	for id, i := range map[string]*Identity{"0000000a": near, "0000000b": far} {
		if err := i.Load(id); err != nil {
			b.Fatal(err)
		}
	}
	config := far.Server(func() string { return "0000000b" }, func(string, error) {})
	b.ReportAllocs()
	for b.Loop() {
		c, s := wstest.Pipe(64 << 10)
		server := tls.Server(s, config)
		done := make(chan error, 1)
		go func() {
			_, err := server.Write([]byte("x"))
			done <- err
		}()
		if _, err := tls.Client(c, near.client("0000000b")).Read(make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}
