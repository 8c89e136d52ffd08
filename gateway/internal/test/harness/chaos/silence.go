//go:build linux

package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"reseat/gateway/internal/test/harness/chaos/fault"
	"reseat/gateway/internal/test/harness/process"
)

// silences is how long connections had been silent that the gateway took for dead, according to its log.
type silences struct {
	mu   sync.Mutex
	list []time.Duration
}

// logged examines a line of a gateway's log.
func (r *run) logged(l process.Line) {
	if l.Msg != "session.detached" || l.Reason != "silent" {
		return
	}
	d, err := time.ParseDuration(l.Silent)
	r.silences.mu.Lock()
	defer r.silences.mu.Unlock()
	if r.silences.list = append(r.silences.list, d); err != nil {
		r.fault("silent for %q: %v", l.Silent, err)
	}
}

// judgeSilences fails the run if too few silent lines were noticed by the gateway, or any too late.
func (r *run) judgeSilences() {
	list := r.silences.list
	if cuts := r.silentCuts(); cuts >= 20 && int64(len(list)) < cuts/20 {
		r.fault("only %d of %d silent lines were noticed by the gateway", len(list), cuts)
	}
	if limit := 2*r.cfg.Heartbeat + r.cfg.Answer + 5*r.cfg.Late; len(list) > 0 && slices.Max(list) > limit {
		r.fault("a silent line was noticed by the gateway after %v, at most %v are promised", slices.Max(list), limit)
	}
}

// String describes the distribution.
func (s *silences) String() string {
	if len(s.list) == 0 {
		return "none"
	}
	slices.Sort(s.list)
	at := func(percent int) time.Duration {
		return s.list[(len(s.list)-1)*percent/100].Round(10 * time.Millisecond)
	}
	return fmt.Sprintf("%d: half within %v, 9 of 10 within %v, all within %v", len(s.list), at(50), at(90), at(100))
}

// silentCuts returns the number of disconnects without an error on at least one side.
func (r *run) silentCuts() (n int64) {
	for k := range fault.Kinds {
		if k.Silent() {
			n += r.count.cuts[k].Load()
		}
	}
	return n
}
