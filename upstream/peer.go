package upstream

import (
	"net/http"
	"net/netip"
	"strings"
)

// A Peer is the other end of the client's TCP connection as the gateway saw it.
type Peer struct {
	// Addr is the peer's address. The zero Addr (a connection that is no TCP
	// connection) leaves X-Forwarded-For as a trusted peer sent it.
	Addr netip.Addr
	// Trusted says that the peer is a --trusted-proxy, whose forwarding headers
	// are believed.
	Trusted bool
	// TLS says that the connection with the peer is encrypted.
	TLS bool
	// Host is the value of the Host header.
	Host string
}

// NewPeer describes the peer that sent r. Trusted are the --trusted-proxy
// networks.
func NewPeer(r *http.Request, trusted []netip.Prefix) Peer {
	addr, _ := parseAddr(r.RemoteAddr)
	return Peer{Addr: addr, Trusted: contains(trusted, addr), TLS: r.TLS != nil, Host: r.Host}
}

// ClientAddr is the address of the client as it is believed: the peer's own, or
// where the peer is a trusted proxy the right-most entry of X-Forwarded-For that
// is none. An entry that is no address ends the search, and the proxy that
// reported it counts as the client.
func ClientAddr(p Peer, client http.Header, trusted []netip.Prefix) netip.Addr {
	believed := p.Addr
	entries := strings.Split(strings.Join(client.Values("X-Forwarded-For"), ","), ",")
	for i := len(entries) - 1; i >= 0 && contains(trusted, believed); i-- {
		entry := strings.TrimSpace(entries[i])
		if entry == "" {
			continue // an empty list element: RFC 9110 section 5.6.1
		}
		addr, ok := parseAddr(entry)
		if !ok {
			break
		}
		believed = addr
	}
	return believed
}

// parseAddr reads an address with or without a port, and gives an IPv4 address
// one spelling only.
func parseAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		var ap netip.AddrPort
		ap, err = netip.ParseAddrPort(s)
		addr = ap.Addr()
	}
	return addr.Unmap().WithZone(""), err == nil
}

func contains(networks []netip.Prefix, addr netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(addr) {
			return true
		}
	}
	return false
}
