package dial

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/listen"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/upstream"
)

// The client disconnects just as its dial succeeds: that connection is closed.
func TestUpstreamWithoutWaitingClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := transport.NewClock()
		game := wstest.NewGame(t, 1<<10)
		e := registry.NewRecord(clock, registry.Spec{
			ID: "s", Terms: &registry.Terms{Policy: policy.Policy{DialTimeout: 5 * time.Second}},
			Target: game.Target(),
		})
		dr := New(Options{
			Ctx: t.Context(), Running: new(sync.WaitGroup), Clock: clock, Conns: listen.NewConnTracker(listen.Options{}),
			Numbered: func(_ context.Context, _ *registry.Record, ask upstream.Request, _ session.Resume) upstream.Request {
				return ask
			},
		})
		d := &dialling{waiter: &waiter{Arrival: &Arrival{}}, done: make(chan struct{}), ask: upstream.Request{Path: "/"}}
		game.Refuse = func(net.Conn, *http.Request) bool { // what leave does, too late to cancel the dial
			dr.mu.Lock()
			defer dr.mu.Unlock()
			d.waiter = nil
			return false
		}
		if out, again := dr.dialOnce(e, d); out != nil || again || !d.decided {
			t.Errorf("outcome %v, again %v, decided %v; want none for anybody", out, again, d.decided)
		}
		game.Next().WantEnd()
	})
}

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
