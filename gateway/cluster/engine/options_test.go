package engine

import (
	"testing"

	"github.com/nats-io/nats.go"

	"reseat/gateway/internal/test/testcert"
)

// A server on this machine may name others of its cluster, which are elsewhere: without TLS the client leaves them
// alone.
func TestConnectionWithoutTLSStaysOnItsServers(t *testing.T) {
	ca, _ := testcert.New(t, "nats").Write(t.TempDir())
	for _, try := range []struct {
		o              Options
		secure, ignore bool
	}{
		{Options{URLs: []string{"nats://127.0.0.1:4222"}}, false, true},
		{Options{URLs: []string{"nats://127.0.0.1:4222"}, Plaintext: true}, false, false},
		{Options{URLs: []string{"nats://127.0.0.1:4222", "tls://10.0.0.1:4222"}}, true, false},
		{Options{URLs: []string{"nats://10.0.0.1:4222"}, CAFile: ca}, true, false},
	} {
		var o nats.Options
		for _, f := range try.o.connection(files{}) {
			if err := f(&o); err != nil {
				t.Fatal(err)
			}
		}
		if o.Secure != try.secure || o.IgnoreDiscoveredServers != try.ignore {
			t.Errorf("%+v: TLS %v, ignores %v", try.o, o.Secure, o.IgnoreDiscoveredServers)
		}
	}
}
