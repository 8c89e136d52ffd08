// Package upstream is the gateway's HTTP client for game servers: targets, the WebSocket
// dial, which headers pass in both directions, how refusals are passed on, and the reverse
// proxy for ordinary requests. It does not know sessions, frames or tokens.
//
// Scheme, host and port of every connection come from a [Target], and so from
// the configuration alone; a request contributes its path, its query, and under
// [HostClient] the value of the Host header. No proxy environment variable is
// read, and no redirect is followed.
package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A HostPolicy selects the Host that the upstream sees: docs/flags.md,
// --upstream-host.
type HostPolicy int

const (
	// HostClient passes the client's Host value.
	HostClient HostPolicy = iota
	// HostUpstream sends the host and port of the target's URL.
	HostUpstream
)

// A Target is one game server. It must not change after its first use, and is then safe for
// concurrent use.
type Target struct {
	// URL has one of the schemes ws, wss, http and https. Its path is the
	// prefix that the client's path is joined to. [ParseTarget] makes one.
	URL *url.URL
	// HostPolicy is HostClient unless set.
	HostPolicy HostPolicy
	// RootCAs are the authorities trusted for wss and https. Nil means the
	// system's.
	RootCAs *x509.CertPool
	// DialContext opens the TCP connection. Nil means a net.Dialer with Go's
	// defaults: TCP_NODELAY and keep-alive on. Tests put net.Pipe here.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

// hostAndPort matches a URL without scheme and password. A number alone is no host.
var hostAndPort = regexp.MustCompile(`^([0-9]*[A-Za-z._-][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?$`)

// ParseTarget parses and checks the URL of a game server. An error is one line that says
// what is accepted; it never contains a password.
func ParseTarget(raw string) (*url.URL, error) {
	if hostAndPort.MatchString(raw) {
		return nil, fmt.Errorf("want a ws://, wss://, http:// or https:// URL, got %q: is ws://%s meant?", raw, raw)
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The text of a *url.Error holds the whole URL; only the reason may be shown.
		var perr *url.Error
		if errors.As(err, &perr) {
			err = perr.Err
		}
		return nil, fmt.Errorf("want a URL such as ws://game:9000: %w", err)
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return nil, fmt.Errorf("want a ws://, wss://, http:// or https:// URL, got %q", u.Redacted())
	}
	if err := checkHost(u); err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(u.Path, "//"):
		return nil, fmt.Errorf("want a URL with one slash before its path, got %q", u)
	case slices.ContainsFunc(strings.Split(u.Path, "/"), func(s string) bool { return s == "." || s == ".." }):
		return nil, fmt.Errorf("want a URL without dot segments in its path, got %q", u)
	case u.User != nil:
		return nil, errors.New("want a URL without user name and password")
	case u.RawQuery != "" || u.ForceQuery:
		return nil, fmt.Errorf("want a URL without a query, got %q", u)
	case strings.Contains(raw, "#"):
		return nil, fmt.Errorf("want a URL without a fragment, got %q", u)
	}
	return u, nil
}

// checkHost checks the host and port of a target's URL.
func checkHost(u *url.URL) error {
	if u.Opaque != "" || u.Hostname() == "" {
		return fmt.Errorf("want a URL with a host, got %q", u.Redacted())
	}
	if name := u.Hostname(); !isHostName(name) {
		if _, err := netip.ParseAddr(name); err != nil {
			return fmt.Errorf("want a host name in ASCII (xn--...) or an address, got %q", name)
		}
	}
	if strings.HasSuffix(u.Host, ":") {
		return fmt.Errorf("want a port after the colon, got %q", u.Redacted())
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("want a port from 1 to 65535, got %q", port)
		}
	}
	return nil
}

// Address returns the host and port to dial, with the scheme's default port.
func (t *Target) Address() string {
	port := t.URL.Port()
	switch {
	case port != "":
	case t.secure():
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(t.URL.Hostname(), port)
}

// Probe opens a connection to the target, including TLS, and closes it. It sends no
// request. Its errors are of type *Error.
func (t *Target) Probe(ctx context.Context) error {
	conn, err := t.connect(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (t *Target) secure() bool { return t.URL.Scheme == "wss" || t.URL.Scheme == "https" }

// host returns the value of the Host header for a client that sent clientHost. A value
// that is invalid in a header counts as absent.
func (t *Target) host(clientHost string) string {
	if t.HostPolicy == HostClient && clientHost != "" && printable(clientHost) {
		return clientHost
	}
	host := t.URL.Host
	// A zone identifier is meaningful only on this machine: RFC 6874 section 4.
	if before, zone, ok := strings.Cut(host, "%"); ok {
		_, port, _ := strings.Cut(zone, "]")
		return before + "]" + port
	}
	return host
}

// connect opens the connection, with TLS if the scheme requires it.
// The errors are of type *Error.
func (t *Target) connect(ctx context.Context) (net.Conn, error) {
	dial := t.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", t.Address())
	if err != nil {
		return nil, t.classify(ctx, Unreachable, err)
	}
	if !t.secure() {
		return conn, nil
	}
	secured := tls.Client(conn, t.tlsConfig())
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, t.classify(ctx, Unreachable, err)
	}
	return secured, nil
}

// tlsConfig allows only HTTP/1.1: RFC 6455 requires it, and the proxy supports nothing
// else.
func (t *Target) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: t.URL.Hostname(),
		NextProtos: []string{"http/1.1"},
		RootCAs:    t.RootCAs,
	}
}

// isHostName reports whether s consists of letters, digits, dots, hyphens (RFC 1123 section
// 2.1) and underscores, which are found in practice.
func isHostName(s string) bool {
	for _, c := range []byte(strings.ToLower(s)) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && strings.IndexByte("-._", c) < 0 {
			return false
		}
	}
	return true
}

// printable reports whether s consists of visible ASCII characters.
func printable(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}
