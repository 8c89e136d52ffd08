package freeport

import (
	"net"
	"net/netip"
	"testing"
)

func TestAddressesAreFreeDistinctAndBelowThoseOfConnections(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		addr := Addr()
		if seen[addr] {
			t.Errorf("%s twice", addr)
		}
		seen[addr] = true
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Error(err)
			continue
		}
		defer ln.Close()
		if p := netip.MustParseAddrPort(addr).Port(); p < 10000 || p >= 30000 {
			t.Errorf("port %d", p)
		}
	}
}
