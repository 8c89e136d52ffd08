package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// listenAddr accepts HOST:PORT. No host means all addresses; port
// 0 means one that the system picks.
func listenAddr(s string) (string, error) {
	if !isAddr(s) {
		return "", want("HOST:PORT such as :8080 or [::1]:8080"+portRange(s), s)
	}
	return s, nil
}

// adminAddr accepts HOST:PORT, or off, which it returns as "". checkAdmin checks whether
// others may reach it.
func adminAddr(s string) (string, error) {
	switch {
	case s == "off":
		return "", nil
	case !isAddr(s):
		return "", want("HOST:PORT such as 127.0.0.1:8081, or off"+portRange(s), s)
	}
	return s, nil
}

// allowedUpstream accepts HOST:PORT with * in the host, where it matches
// anything but a dot, or for the whole host or port.
func allowedUpstream(s string) (string, error) {
	host, port, ok := splitHost(s) // brackets stay
	if !ok || !isHostPattern(host) || port != "*" && (!isPort(port) || port[0] == '0') {
		return "", want("HOST:PORT such as game-*.internal:9000, with * in the host or as the port", s)
	}
	return strings.ToLower(s), nil
}

func isAddr(s string) bool {
	host, port, err := net.SplitHostPort(s)
	return err == nil && isPort(port) && (host == "" || isHost(host))
}

// portRange returns the valid ports, if the port is a number outside of them.
func portRange(addr string) string {
	if _, port, err := net.SplitHostPort(addr); err == nil && port != "" && strings.Trim(port, "0123456789") == "" && !isPort(port) {
		return ", with a port from 0 to 65535"
	}
	return ""
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// isLoopback reports whether only this machine can reach a HOST:PORT: an address of
// 127.0.0.0/8, ::1, or the name localhost.
func isLoopback(hostPort string) bool {
	host, _, _ := net.SplitHostPort(hostPort)
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}

// sameListener reports whether two addresses cannot both be listened on.
func sameListener(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || strings.Trim(portA, "0") == "" {
		return false
	}
	return strings.EqualFold(hostA, hostB) || isEvery(hostA) || isEvery(hostB)
}

func isEvery(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

var dnsLabel = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// isHost reports whether s is an IP address or can be a DNS name. A name's last
// label is not all digits: that would be an invalid address.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if !dnsLabel.MatchString(l) {
			return false
		}
	}
	return len(s) <= 253 && strings.Trim(labels[len(labels)-1], "0123456789") != ""
}

// splitHost splits HOST or HOST:PORT, as in a Host header
// (RFC 9110 section 7.2): an IPv6 address has brackets, and keeps them.
func splitHost(s string) (host, port string, ok bool) {
	host = s
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port = s[:i], s[i+1:]
		if port == "" {
			return "", "", false
		}
	}
	return host, port, true
}

// isURLHost is isHost for a host in a URL.
func isURLHost(s string) bool {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		ip, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return err == nil && ip.Is6() && ip.Zone() == "" && strings.HasSuffix(inner, "]")
	}
	return isHost(s) && !strings.Contains(s, ":")
}

// hostName accepts a value of the Host header, and returns it in lower case.
func hostName(s string) (string, error) {
	host, port, ok := splitHost(s)
	if !ok || !isURLHost(host) || port != "" && !isPort(port) {
		return "", want("a host such as game.example or game.example:8443", s)
	}
	return strings.ToLower(s), nil
}

var hostLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// domainName accepts a name for which a public CA can issue a certificate by
// tls-alpn-01, which supports neither addresses nor wildcards (RFC 8737 section 3),
// and returns it in lower case.
func domainName(s string) (string, error) {
	low := strings.ToLower(s)
	labels := strings.Split(low, ".")
	good := len(labels) > 1 && isHost(low) && net.ParseIP(low) == nil
	for _, l := range labels {
		good = good && hostLabel.MatchString(l)
	}
	if !good {
		return "", want("a domain name in ASCII (xn--...) such as play.game.example, without *", s)
	}
	return low, nil
}

// directoryURL accepts the https URL of an ACME CA's directory (RFC 8555 section 6.1).
func directoryURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return "", want("a URL such as https://acme.example/directory", s)
	}
	return s, nil
}

var schemeSyntax = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// originPattern accepts SCHEME://HOST[:PORT] with any number of * in each of the
// three, or * alone, and returns it as browsers write an origin: in lower case
// and without the port that the scheme implies. The origin null is refused: a
// sandboxed frame of any page has it, so allowing it would allow all.
func originPattern(s string) (string, error) {
	if s == "*" {
		return s, nil
	}
	if s == "null" {
		return "", fmt.Errorf("%w: any page can have that origin; * allows all", want("SCHEME://HOST[:PORT]", s))
	}
	low := strings.ToLower(s)
	proto, rest, _ := strings.Cut(low, "://")
	host, port, ok := splitHost(rest)
	if !ok || !schemeSyntax.MatchString(substitute(proto, "x")) || !isHostPattern(host) || port != "" && !isPortPattern(port) {
		return "", want("SCHEME://HOST[:PORT] such as https://*.game.example, without a path, or *", s)
	}
	if proto == "https" && port == "443" || proto == "http" && port == "80" {
		return proto + "://" + host, nil
	}
	return low, nil
}

// substitute replaces each * by one character.
func substitute(pattern, char string) string { return strings.ReplaceAll(pattern, "*", char) }

// isHostPattern reports whether a host pattern can match anything: a name, or an
// address with a number for the *.
func isHostPattern(s string) bool {
	return isURLHost(substitute(s, "x")) || isURLHost(substitute(s, "1"))
}

func isPortPattern(s string) bool { return isPort(substitute(s, "1")) || s == "*" }

// proxyPrefix accepts a CIDR block or a single address.
func proxyPrefix(s string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, want("an address or a CIDR block such as 10.0.0.0/8", s)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%w: is %s meant, or the network %s?", want("an address or a CIDR block such as 10.0.0.0/8", s), p.Addr(), p.Masked())
	}
	return p, nil
}
