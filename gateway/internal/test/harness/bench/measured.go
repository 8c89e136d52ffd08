//go:build linux

package main

import (
	"errors"
	"fmt"
	"time"

	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/load"
)

const (
	stormInFlight = 64
	cutInFlight   = 512
	hopInFlight   = 64 // a node makes no more connections to another at once

	guard  = 150 * time.Millisecond // for which the traffic of a slice runs before it counts
	settle = 3 * time.Second        // before memory is measured
)

// idle measures idle sessions, before and after each has relayed a message both ways.
func idle(s *stage) (figures, error) {
	var opened, used int64
	var a, b reading
	s.clients.Once = true
	err := steps(s.weigh(&s.empty), s.connect, s.wait(settle), s.weigh(&opened),
		s.note(&a), s.wait(s.w.measure), s.note(&b),
		s.start, s.stop, s.wait(settle), s.weigh(&used))
	fig := s.between(a, b)
	fig["opened_kib"], fig["used_kib"] = s.per(s.empty, opened), s.per(s.empty, used)
	return fig, err
}

// detached measures what is buffered for detached clients, and that they receive it.
func detached(s *stage) (figures, error) {
	var before, after int64
	var a, b reading
	spec := s.w.game
	all := s.w.sessions * spec.Limit
	err := steps(s.connect, s.wait(settle), s.weigh(&before), s.cut,
		s.note(&a), s.start, s.wait(time.Duration(spec.Limit)*spec.Every+time.Second), s.note(&b),
		s.wait(settle), s.weigh(&after), s.back, s.stop)
	if err == nil && s.end.Sent != uint64(all) {
		err = fmt.Errorf("%d messages were sent in place of %d", s.end.Sent, all)
	}
	fig := s.between(a, b)
	fig["detached_kib"] = s.per(before, after)
	return fig, err
}

// storm measures connections that connect, send one message and disconnect.
func storm(s *stage) (figures, error) {
	var a, b reading
	all := func() error { return s.clients.All(patience) }
	err := steps(s.note(&a), all, s.note(&b), s.stop)
	fig := s.between(a, b)
	n := float64(s.w.sessions)
	fig["connection_us"] = (b.proxy - a.proxy).Seconds() * 1e6 / n
	fig["connections"] = n / fig["seconds"]
	delete(fig, "cpu_us")
	return fig, err
}

// steady is a slice of a steady stream.
func steady(s *stage) (figures, error) {
	var a, b reading
	err := steps(s.resume, s.wait(guard),
		s.latencies(s.w.game.Mode != game.Fire), s.note(&a), s.wait(s.w.measure), s.note(&b), s.latencies(false),
		s.pause)
	fig := s.between(a, b)
	s.addLatencies(fig)
	return fig, err
}

// mass is a slice in which all connections are reset, and all sessions resume a second
// later.
func mass(s *stage) (figures, error) {
	var a, b reading
	err := steps(s.resume, s.wait(guard),
		s.cut, s.wait(time.Second),
		s.note(&a), s.back, s.note(&b),
		s.wait(guard), s.pause)
	fig := s.between(a, b)
	fig["back_ms"] = fig["seconds"] * 1e3
	fig["resume_us"] = (b.proxy - a.proxy).Seconds() * 1e6 / float64(s.w.sessions)
	q := s.clients.Resumes.Quantiles()
	fig["one_p50_ms"], fig["one_p99_ms"] = q.P50/1e3, q.P99/1e3
	return fig, err
}

// crowded is a slice in which other clients' connections are reset and resume, after it
// was quiet for as long as usual.
func crowded(s *stage) (figures, error) {
	var a, b reading
	alone := figures{}
	err := steps(s.resume, s.wait(guard), s.latencies(true), s.wait(s.w.measure), s.latencies(false),
		func() error {
			s.addLatencies(alone)
			s.clients.Latency.Reset()
			return <-s.beside.Do(func(c *load.Client) error {
				c.Cut()
				c.InFlight = cutInFlight
				return nil
			})
		},
		s.wait(time.Second), s.latencies(true), s.note(&a), s.besideBack, s.note(&b), s.latencies(false), s.pause)
	fig := s.between(a, b)
	delete(fig, "cpu_us") // of messages and resumes
	s.addLatencies(fig)
	for _, name := range []string{"p50_us", "p99_us"} {
		fig["storm_"+name], fig["times_"+name] = fig[name], fig[name]/alone[name]
		fig[name] = alone[name]
	}
	fig["back_ms"] = fig["seconds"] * 1e3
	s.clients.Latency.Reset() // neither of the two is that of all slices
	return fig, err
}

// besideBack resumes the other clients' sessions while the clients go on.
func (s *stage) besideBack() error {
	done := s.beside.Do(func(c *load.Client) error { return c.Back(patience) })
	var err error
	back := func() bool {
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	}
	return errors.Join(s.clients.Until(func() string { return "the other clients' resumes" }, 2*patience, back), err)
}
