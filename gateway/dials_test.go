package gateway

import (
	"fmt"
	"net/netip"
	"testing"
)

// A mass reconnect queues thousands of dials, of one address behind a proxy or of as many addresses. Each grant
// must look at few of them.
func TestGrantLooksAtFewOfThoseThatWait(t *testing.T) {
	const waiting = 5000
	for name, who := range map[string]func(i int) caller{
		"one address, one path":   func(int) caller { return caller{} },
		"one address, many paths": func(i int) caller { return caller{path: fmt.Sprint(i)} },
		"many addresses": func(i int) caller {
			return caller{from: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)}
		},
		"many addresses, few paths": func(i int) caller {
			return caller{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32), fmt.Sprint(i % 3)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := &dialQueue{addrs: make(map[netip.Prefix]*dialAddr)}
			callers, turns := make([]caller, waiting), make([]*dialTurn, waiting)
			for i := range turns {
				callers[i] = who(i)
				turns[i] = q.add(callers[i])
			}
			for ended := 0; ended < waiting; {
				q.grant()
				looks := 0
				if q.waiting.Len() > 0 {
					a := fewest(&q.waiting, func(a *dialAddr) int { looks++; return a.dialling })
					fewest(&a.waiting, func(p *dialPath) int { looks++; return p.dialling / 4 })
				}
				if looks > 4*dialsAtOnce { // fewest asks twice for each
					t.Fatalf("a grant looks at %d of those that wait", looks)
				}
				before := ended
				for i, turn := range turns {
					if turn != nil && turn.elem == nil { // it was granted, and ends
						q.end(turn)
						q.forget(callers[i], turn)
						turns[i] = nil
						ended++
					}
				}
				if ended == before {
					t.Fatalf("after %d dials none is granted, with %d in flight", ended, q.dialling)
				}
			}
			if len(q.addrs) > 0 || q.dialling != 0 {
				t.Errorf("%d addresses and %d dials are left", len(q.addrs), q.dialling)
			}
		})
	}
}
