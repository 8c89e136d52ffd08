package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"reseat/gateway"
	"reseat/gateway/config"
	"reseat/gateway/listen"
	"reseat/gateway/secure"
)

// warnings returns the warnings about the settings, their files and this machine: the same
// for check and for a start.
func warnings(set *config.Settings) []config.Warning {
	return slices.Concat(set.Warnings(), secretWarnings(set), keyWarnings(set), machineWarnings(set))
}

// keyWarnings is about keys with two uses, and certificates that are valid for no name.
func keyWarnings(set *config.Settings) (list []config.Warning) {
	for _, r := range set.Gateway.Routes {
		if a := r.Policy.Auth; a != nil && a.KeyFile != "" && slices.ContainsFunc(set.TokenKeyFiles, func(f string) bool { return sameFile(f, a.KeyFile) }) {
			list = append(list, config.Warning{Flag: "auth-key-file", Text: fmt.Sprintf("route %s: same file as --token-key-file: anyone who can sign logins can forge resume tokens; use separate keys", r.Pattern)})
		}
	}
	if t := set.TLS; t.KeyFile != "" && slices.ContainsFunc(set.TokenKeyFiles, func(f string) bool { return sameFile(f, t.KeyFile) }) {
		list = append(list, config.Warning{Flag: "token-key-file", Text: "same file as --tls-key, which changes with the certificate: use a separate key"})
	}
	if why := secure.CacheExposure(set.TLS); why != "" {
		list = append(list, config.Warning{Flag: "acme-cache", Text: why})
	}
	return append(list, nameWarnings(set)...)
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y) || filepath.Clean(a) == filepath.Clean(b)
}

// nameWarnings is about a certificate that is valid for none of --host.
func nameWarnings(set *config.Settings) (list []config.Warning) {
	if set.TLS.CertFile == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(set.TLS.CertFile, set.TLS.KeyFile)
	if err != nil {
		return nil // reported elsewhere
	}
	for _, name := range set.Gateway.Hosts {
		if h, _, err := net.SplitHostPort(name); err == nil {
			name = h
		}
		if pair.Leaf.VerifyHostname(strings.Trim(name, "[]")) != nil {
			list = append(list, config.Warning{Flag: "tls-cert", Text: fmt.Sprintf("not valid for --host %s: browsers will refuse it", name)})
		}
	}
	return list
}

// machineWarnings is about addresses and limits of this machine.
func machineWarnings(set *config.Settings) (list []config.Warning) {
	if n, most := set.Gateway.MaxSessions, gateway.SessionsWithin(listen.Descriptors()); most > 0 && n > most {
		list = append(list, config.Warning{Flag: "max-sessions", Text: fmt.Sprintf("%d, but the open files limit allows only %d: raise it (ulimit -n, LimitNOFILE)", n, most)})
	}
	host, port, _ := net.SplitHostPort(set.Listen)
	if ip, err := netip.ParseAddr(host); host != "" && (err != nil || !ip.IsUnspecified()) {
		return list // config has compared the two texts
	}
	addrs, _ := net.InterfaceAddrs()
	for _, r := range set.Gateway.Routes {
		there, thatPort, _ := net.SplitHostPort(r.Upstream.Address())
		own := func(a net.Addr) bool {
			ip, ok := a.(*net.IPNet)
			return ok && !ip.IP.IsLoopback() && ip.IP.String() == there
		}
		if port == thatPort && port != "0" && slices.ContainsFunc(addrs, own) {
			list = append(list, config.Warning{Flag: "upstream", Text: fmt.Sprintf("route %s: %s is this gateway itself (--listen %s): clients get 508. Use the game server's port", r.Pattern, r.Upstream.URL.Host, set.Listen)})
		}
	}
	return list
}
