package secure

import (
	"crypto/tls"
	"net"

	"reseat/gateway/transport/rawconn"
)

// Terminate terminates TLS on the connections of inner. An http.Server makes the handshakes, each
// in the goroutine of its connection, limited by its ReadHeaderTimeout. Afterwards an event loop
// can serve a connection, with TLS above it.
func Terminate(inner net.Listener, config *tls.Config) net.Listener {
	return tls.NewListener(quiet{inner}, config)
}

// A quiet listener's connections can be served by an event loop.
type quiet struct{ net.Listener }

func (l quiet) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return rawconn.Quiet(c), nil
}
