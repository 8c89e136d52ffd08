package login

import (
	"context"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"
)

const (
	urlInterval  = 5 * time.Minute
	fileInterval = 30 * time.Second
	retry        = 30 * time.Second // after a failed load
	cooldown     = 10 * time.Second // between two fetches for unknown kids
)

// A keySource holds the keys of a file or URL and keeps them current. A successful load
// replaces all of them; nothing else does.
type keySource struct {
	name     string // as logged
	read     func(context.Context) (*keySet, error)
	interval time.Duration // between two loads; 0 means only on Reload
	remote   bool          // a URL: loading takes time, and may fail at first
	log      *slog.Logger

	ctx  context.Context // of loads in the background
	wake chan struct{}   // one slot: load now
	done chan struct{}   // closed when run has returned

	turn   chan struct{} // one slot, taken during a load; guards failed and last
	failed bool          // the last load failed
	last   time.Time     // when the last load ended

	keys atomic.Pointer[keySet] // nil before the first successful load
}

// load reads the keys once.
func (s *keySource) load(ctx context.Context) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return s.loadInTurn(ctx)
}

func (s *keySource) loadInTurn(ctx context.Context) error {
	set, err := s.read(ctx)
	recovered := s.failed && err == nil
	s.failed, s.last = err != nil, time.Now()
	if err != nil {
		return err
	}
	if before := s.keys.Swap(set); recovered || !reflect.DeepEqual(before, set) {
		s.report(set)
	}
	return nil
}

// run loads the keys until ctx ends, at once if the keys are remote: then it has the turn.
func (s *keySource) run() {
	defer close(s.done)
	next := s.interval
	if s.remote {
		next = s.after(s.loadInTurn(s.ctx))
		<-s.turn
	}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(next):
		case <-s.wake:
		}
		next = s.after(s.load(s.ctx))
	}
}

// after logs the error of a load in the background, and returns the time until the next.
func (s *keySource) after(err error) time.Duration {
	if err == nil {
		return s.interval
	}
	if s.ctx.Err() == nil {
		s.log.Warn("login.keys_failed", "source", s.name, "err", capped(err.Error()), "text", "the keys read before stay in use")
	}
	return retry
}

// refresh loads the keys because that of a login is unknown: once for all logins that
// wait, and at most once in ten seconds. before are the keys in which the login's was not
// found. It reports whether there are others now.
func (s *keySource) refresh(ctx context.Context, before *keySet) bool {
	if !s.remote {
		return false
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return false
	}
	if s.keys.Load() == before && time.Since(s.last) >= cooldown && s.ctx.Err() == nil {
		s.after(s.loadInTurn(s.ctx)) // not ctx: others may wait for the result
	}
	return s.keys.Load() != before
}

// report logs how many keys there are, and which were ignored.
func (s *keySource) report(set *keySet) {
	s.log.Info("login.keys_loaded", "source", s.name, "keys", len(set.keys))
	for _, k := range set.ignored {
		s.log.Warn("login.key_ignored", "source", s.name, "kid", capped(k.kid), "reason", capped(k.reason))
	}
}

// capped bounds untrusted text in the log.
func capped(s string) string { return s[:min(len(s), 200)] }
