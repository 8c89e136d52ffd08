//go:build linux

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/load"
	"reseat/gateway/internal/test/harness/bench/message"
	"reseat/gateway/internal/test/harness/bench/proxy"
	"reseat/gateway/internal/test/harness/bench/stat"
)

// A leg is what the client connections of a workload use besides WebSocket. Its clients
// are those of load.Library. A run without TLS and compression uses them, too, so that
// the difference is the proxy's alone.
type leg struct {
	tls     bool
	memory  bool // of the proxy is measured, instead of its processor time
	state   bool // 512 bytes of game state instead of W1's 128 bytes
	deflate bool
}

// withLeg returns a workload like W1, with fewer sessions and for a shorter time.
func withLeg(name string, l leg) workload {
	w := workload{
		name: name, sessions: 200, every: 200 * time.Millisecond, up: binary(message.Up, 48),
		game: game.Spec{Mode: game.Tick, Down: binary(message.Down, 128), Every: 50 * time.Millisecond, Grain: tickGrain},
		warm: 500 * time.Millisecond, measure: 2200 * time.Millisecond, times: 2,
		only: []string{proxy.Direct, proxy.NGINX, "plain"}, leg: &l,
	}
	if l.state {
		w.up, w.game.Down = letters(message.Up, 48), letters(message.Down, 512)
		w.game.Down.State = true
	}
	return w
}

// takes reports whether a subject supports l. With compression the poll driver hands connections over to
// the other driver.
func (l *leg) takes(s proxy.Subject) bool {
	if s.Name == proxy.Direct {
		return !l.tls
	}
	return !l.deflate || !strings.HasSuffix(s.Name, "@poll")
}

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

// onLeg measures a steady stream with clients that support TLS and compression.
func (w workload) onLeg(s *stage) (figures, error) {
	c := &load.Library{Deflate: w.leg.deflate, Setup: load.Setup{
		Target: s.proxy.Addr, Game: s.game, Sessions: w.sessions, Down: w.game.Down, Up: w.up, Every: w.every, Grain: w.game.Grain,
	}}
	if s.at.Roots != nil {
		c.TLS = &tls.Config{RootCAs: s.at.Roots, MinVersion: tls.VersionTLS13, VerifyConnection: equalTerms}
	}
	defer c.Close()
	measure := w.stream
	if w.leg.memory {
		measure = w.memory
	}
	fig, err := measure(s, c)
	if err != nil {
		return nil, fmt.Errorf("%w: %v; the proxy says: %s", err, c.Faults(), strings.TrimSpace(s.proxy.Log()))
	}
	return fig, nil
}

// equalTerms refuses a proxy that chose the longer key, because that costs more. The
// clients prefer AES-128, or ChaCha20 if the processor has no AES instructions.
func equalTerms(c tls.ConnectionState) error {
	if c.CipherSuite == tls.TLS_AES_256_GCM_SHA384 {
		return errors.New("the proxy chose AES-256, others have AES-128")
	}
	return nil
}

// memory measures idle sessions, before and after they have relayed messages.
func (w workload) memory(s *stage, c *load.Library) (figures, error) {
	var empty, opened, used proxy.Memory
	err := steps(
		s.weigh(&empty), func() error { return c.Connect(patience) }, pause(settle), s.weigh(&opened),
		c.Start, pause(w.measure),
		func() (err error) { s.end, err = c.Stop(patience); return err },
		pause(settle), s.weigh(&used))
	return figures{"opened_kib": s.per(empty.RSS, opened.RSS), "used_kib": s.per(empty.RSS, used.RSS)}, err
}

func pause(d time.Duration) step { return func() error { time.Sleep(d); return nil } }

func (w workload) stream(s *stage, c *load.Library) (figures, error) {
	var a, b reading
	var latency stat.Quantiles
	s.count = c.Counts
	err := steps(
		func() error { return c.Connect(patience) }, c.Start, pause(w.warm),
		func() error { c.Reset(); return nil },
		s.note(&a), pause(w.measure), s.note(&b),
		func() error { latency = c.Latency(); return nil },
		func() (err error) { s.end, err = c.Stop(patience); return err })
	if err != nil {
		return nil, err
	}
	fig := s.between(a, b)
	fig["p50_us"], fig["p99_us"] = latency.P50, latency.P99
	fig["wire_bytes"] = float64(b.bytes-a.bytes) / float64(b.received-a.received)
	fig["both_us"] = fig["cpu_us"]
	if s.proxy.PIDs[0] != s.game.PID {
		fig["both_us"] += (b.game - a.game).Seconds() * 1e6 / fig["messages"]
	}
	return fig, nil
}
