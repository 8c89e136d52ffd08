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

// at returns within what time a share of the silent lines was noticed, in percent.
func (s *silences) at(percent int) time.Duration {
	slices.Sort(s.list)
	return s.list[(len(s.list)-1)*percent/100].Round(10 * time.Millisecond)
}

// judgeSilences fails the run if hardly any silent lines were noticed by the gateway before they ended otherwise, many later than answer_ms allows under
// traffic, or any after what is promised without.
func (r *run) judgeSilences() {
	s := &r.silences
	if cuts := r.silentCuts(); cuts >= 20 && int64(len(s.list)) < max(1, cuts/50) {
		r.fault("only %d of %d silent lines were noticed by the gateway", len(s.list), cuts)
	}
	if len(s.list) == 0 {
		return
	}
	for percent, limit := range map[int]time.Duration{90: 2*r.cfg.Answer + r.cfg.Late, 100: 2*r.cfg.Heartbeat + r.cfg.Answer + 5*r.cfg.Late} {
		if took := s.at(percent); took > limit && len(s.list) >= 10 {
			r.fault("%d of 100 silent lines were noticed by the gateway within %v, at most %v are promised", percent, took, limit)
		}
	}
}

// String describes the distribution.
func (s *silences) String() string {
	if len(s.list) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d: half within %v, 9 of 10 within %v, all within %v", len(s.list), s.at(50), s.at(90), s.at(100))
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
