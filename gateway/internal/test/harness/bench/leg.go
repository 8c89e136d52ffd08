//go:build linux

package main

import (
	"time"

	"reseat/gateway/internal/test/harness/bench/message"
	"reseat/gateway/internal/test/harness/bench/proxy"
)

// A leg is what the client connections of a workload use besides WebSocket. They pass a
// relay: see there.
type leg struct {
	tls     bool
	deflate bool
}

// withLeg returns a workload like W1, with fewer sessions and for a shorter time.
func withLeg(name string, l leg) workload {
	w := tick(name, 200, 50*time.Millisecond, 200*time.Millisecond)
	w.warm, w.measure, w.times = 500*time.Millisecond, 2200*time.Millisecond, 2
	w.measured, w.slice, w.cycles = traffic, nil, 0
	w.leg, w.only = &l, []string{proxy.Direct, proxy.NGINX, "plain"}
	return w
}

// legs returns the workloads with TLS and compression, and what they are compared with.
func legs() []workload {
	memory := withLeg("W6TLS", leg{tls: true})
	w6 := echo("W6", 2000, 256)
	memory.sessions, memory.game, memory.up, memory.echo = w6.sessions, w6.game, w6.up, true
	memory.measured, memory.measure, memory.times, memory.rounds = idle, time.Second, 1, 1
	plain, packed := withLeg("nodeflate", leg{}), withLeg("deflate", leg{deflate: true})
	for _, w := range []*workload{&plain, &packed} { // game state, which compresses, in place of W1's bytes
		w.up = message.Kind{Way: message.Up, Size: 48, Text: true}
		w.game.Down = message.Kind{Way: message.Down, Size: 512, Text: true, State: true}
	}
	return []workload{withLeg("noTLS", leg{}), withLeg("TLS", leg{tls: true}), memory, plain, packed}
}

// takes reports whether a subject supports l.
func (l *leg) takes(s proxy.Subject) bool { return s.Name != proxy.Direct || !l.tls }

// proxies converts l for the proxy, whose files are in dir.
func (l *leg) proxies(dir string) (proxy.Leg, error) {
	switch {
	case l == nil:
		return proxy.Leg{}, nil
	case l.tls:
		return proxy.WithTLS(dir)
	}
	return proxy.Leg{Deflate: l.deflate}, nil
}

// relay puts a relay before the proxy.
func (s *stage) relay(p proxy.Place) error {
	r, err := p.Leg.Relay(p, s.proxy.Addr)
	if err != nil {
		return err
	}
	s.opened = append(s.opened, r.Stop)
	s.proxy.Addr, s.own = r.Addr, append(s.own, r.PIDs...)
	return nil
}
