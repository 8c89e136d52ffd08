package upstream

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A Peer is the remote end of the client's TCP connection as the gateway sees it.
type Peer struct {
	// Addr is the peer's address. The zero Addr (not a TCP
	// connection) leaves X-Forwarded-For as a trusted peer sent it.
	Addr netip.Addr
	// Trusted means that the peer is a --trusted-proxy, whose forwarding headers
	// are accepted.
	Trusted bool
	// TLS means that the peer's connection is encrypted.
	TLS bool
	// Host is the value of the Host header.
	Host string
}

// NewPeer returns the peer that sent r. trusted are the --trusted-proxy
// networks.
func NewPeer(r *http.Request, trusted []netip.Prefix) Peer {
	addr, _ := parseAddr(r.RemoteAddr)
	return Peer{Addr: addr, Trusted: contains(trusted, addr), TLS: r.TLS != nil, Host: r.Host}
}

// ClientAddr returns the client's address: the peer's own, or if the peer is a trusted
// proxy the right-most entry of X-Forwarded-For that is not one. An entry that is not an
// address ends the search, and the proxy that reported it counts as the client.
func ClientAddr(p Peer, client http.Header, trusted []netip.Prefix) netip.Addr {
	address := p.Addr
	if !contains(trusted, address) {
		return address
	}
	entries := strings.Split(strings.Join(client.Values("X-Forwarded-For"), ","), ",")
	for i := len(entries) - 1; i >= 0 && contains(trusted, address); i-- {
		entry := strings.TrimSpace(entries[i])
		if entry == "" {
			continue // an empty list element: RFC 9110 section 5.6.1
		}
		addr, ok := parseAddr(entry)
		if !ok {
			break
		}
		address = addr
	}
	return address
}

// parseAddr reads an address with or without a port, and returns an IPv4 address
// in one form only.
func parseAddr(s string) (netip.Addr, bool) {
	ap, err := netip.ParseAddrPort(s)
	addr := ap.Addr()
	if err != nil {
		addr, err = netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	}
	return addr.Unmap().WithZone(""), err == nil
}

func contains(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}
