//go:build linux

package main

import (
	"fmt"
	"time"

	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/proxy"
)

const (
	stormInFlight = 64
	cutInFlight   = 512
	hopInFlight   = 64 // a node makes no more connections to another at once
)

// traffic measures a steady stream.
func traffic(s *stage) (figures, error) {
	var a, b reading
	err := steps(s.connect, s.start, s.wait(s.w.warm),
		s.latencies(s.w.game.Mode != game.Fire), s.from(&a), s.wait(s.w.measure), s.to(&b), s.latencies(false),
		s.stop)
	fig := s.between(a, b)
	s.addLatencies(fig)
	return fig, err
}

// addLatencies adds the latencies of what has just been measured.
func (s *stage) addLatencies(fig figures) {
	if q := s.clients.Latency.Quantiles(); q.N > 0 {
		fig["p50_us"], fig["p99_us"], fig["p999_us"] = q.P50, q.P99, q.P999
	}
}

// growth measures a steady stream, and the memory of the sessions that it is spread
// over.
func growth(s *stage) (figures, error) {
	var empty, used proxy.Memory
	var a, b reading
	err := steps(s.weigh(&empty), s.connect, s.start, s.wait(max(s.w.warm, settle)),
		s.note(&a), s.wait(s.w.measure), s.note(&b), s.weigh(&used), s.stop)
	fig := s.between(a, b)
	fig["used_kib"], fig["used_mib"] = s.per(empty.RSS, used.RSS), float64(used.RSS-empty.RSS)/(1<<20)
	return fig, err
}

// idle measures idle sessions, before and after each has relayed a message both ways.
func idle(s *stage) (figures, error) {
	var empty, opened, used proxy.Memory
	var a, b reading
	s.clients.Once = true
	err := steps(s.weigh(&empty), s.connect, s.wait(settle), s.weigh(&opened),
		s.note(&a), s.wait(s.w.measure), s.note(&b),
		s.start, s.stop, s.wait(settle), s.weigh(&used))
	fig := s.between(a, b)
	fig["opened_kib"], fig["used_kib"] = s.per(empty.RSS, opened.RSS), s.per(empty.RSS, used.RSS)
	fig["used_pss_kib"] = s.per(empty.PSS, used.PSS)
	return fig, err
}

// detached measures what is buffered for detached clients, and that they receive it.
func detached(s *stage) (figures, error) {
	var before, after proxy.Memory
	var a, b reading
	spec := s.w.game
	all := s.w.sessions * spec.Limit
	err := steps(s.connect, s.wait(settle), s.weigh(&before), s.cut,
		s.note(&a), s.start, s.wait(time.Duration(spec.Limit)*spec.Every+time.Second), s.note(&b),
		s.wait(settle), s.weigh(&after), s.back, s.stop,
		func() error {
			if s.end.Sent != uint64(all) {
				return fmt.Errorf("%d messages were sent in place of %d", s.end.Sent, all)
			}
			return nil
		})
	fig := s.between(a, b)
	fig["detached_kib"] = s.per(before.RSS, after.RSS)
	return fig, err
}

// cutAll measures how all sessions resume after all connections were reset at once.
func cutAll(s *stage) (figures, error) {
	var a, b reading
	err := steps(s.connect, s.start, s.wait(2*s.w.warm),
		s.cut, s.wait(time.Second),
		s.from(&a), s.back, s.to(&b),
		s.wait(s.w.warm), s.stop)
	return s.resumed(a, b), err
}

// resumed returns the figures of a mass reconnect from a to b.
func (s *stage) resumed(a, b reading) figures {
	fig := s.between(a, b)
	fig["back_ms"] = fig["seconds"] * 1e3
	fig["resume_us"] = (b.proxy - a.proxy).Seconds() * 1e6 / float64(s.w.sessions)
	q := s.clients.Resumes.Quantiles()
	fig["one_p50_ms"], fig["one_p99_ms"] = q.P50/1e3, q.P99/1e3
	s.split(fig, "resume", float64(s.w.sessions), a, b)
	return fig
}

// cut resets all connections.
func (s *stage) cut() error {
	s.clients.Cut()
	s.clients.Resumes.Reset()
	s.clients.InFlight = cutInFlight
	if s.proxy.Hop {
		s.clients.Shift, s.clients.InFlight = 1, hopInFlight
	}
	return nil
}

// back resumes all sessions and waits until each has received what it missed.
func (s *stage) back() error { return s.clients.Back(patience) }

// storm measures connections that connect, send one message and disconnect.
func storm(s *stage) (figures, error) {
	var a, b reading
	all := func() error { return s.clients.All(patience) }
	err := steps(s.from(&a), all, s.to(&b), s.stop)
	fig := s.between(a, b)
	n := float64(s.w.sessions)
	fig["connection_us"] = (b.proxy - a.proxy).Seconds() * 1e6 / n
	fig["connections"] = n / fig["seconds"]
	delete(fig, "cpu_us")
	return fig, err
}
