package login

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A pace says how often keys are read.
type pace struct {
	every    time.Duration // after a successful read; 0 for never
	retry    time.Duration // after the first failure; doubled with each, up to
	retryMax time.Duration
	cooldown time.Duration // between two reads for unknown kids; 0 for a file
}

var (
	urlPace  = pace{every: 5 * time.Minute, retry: time.Second, retryMax: time.Minute, cooldown: 10 * time.Second}
	filePace = pace{every: 30 * time.Second, retry: 30 * time.Second, retryMax: 30 * time.Second}
)

// A feed holds the keys of one source and keeps them current. A successful read replaces
// all of them; nothing else does.
//
// It is not jwkset's HTTP storage, whose refresh (v0.11.3) discards a whole set over
// one bad key, takes a document without "keys" for an empty set, reads without a size
// limit, quotes the URL in its errors, has no backoff, may run twice at once, and lets
// one of several logins with a new kid use the result. All of these hold here; without
// them nothing of that storage but the GET would be left.
type feed struct {
	// Static once it runs.
	source string // as logged
	read   func(context.Context) ([]byte, error)
	parse  func([]byte) (*keySet, error)
	pace   pace
	log    *slog.Logger
	rounds *rounds
	done   chan struct{} // closed when run has returned; nil if it does not run

	reading sync.Mutex             // held during a read, so that the latest one wins
	set     atomic.Pointer[keySet] // nil before the first successful read
}

// remote reports whether the keys come from a URL, so that reading them takes
// time and may fail at first.
func (f *feed) remote() bool { return f.pace.cooldown > 0 }

// load reads the keys once.
func (f *feed) load(ctx context.Context) error {
	f.reading.Lock()
	defer f.reading.Unlock()
	data, err := f.read(ctx)
	if err != nil {
		return err
	}
	set, err := f.parse(data)
	if err != nil {
		return err
	}
	f.report(f.set.Swap(set), set)
	return nil
}

// loadFirst is load at start, when an empty set is a mistake. Later it means that all keys
// were revoked.
func (f *feed) loadFirst(ctx context.Context) error {
	if err := f.load(ctx); err != nil {
		return err
	}
	set := f.set.Load()
	switch {
	case set.size() > 0:
		return nil
	case len(set.notes) > 0:
		return errors.New("holds no key that can be used: the first " + capped(set.notes[0].why))
	}
	return errors.New("holds no key that can be used")
}

// run reads the keys, first after delay, until ctx ends.
func (f *feed) run(ctx context.Context, delay time.Duration) {
	defer close(f.done)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	failed := 0 // reads since the last successful one
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-f.rounds.wake:
		}
		f.rounds.begin()
		failed = f.attempt(ctx, failed)
		f.rounds.finish()
		timer.Reset(f.pace.after(failed))
	}
}

// attempt reads the keys after this many failures in a row, and returns the new number.
func (f *feed) attempt(ctx context.Context, failed int) int {
	err := f.load(ctx)
	if err == nil {
		if failed > 0 {
			f.log.Info("login.keys_recovered", "source", f.source, "failed", failed)
		}
		return 0
	}
	if failed++; ctx.Err() == nil {
		f.log.Warn("login.keys_failed", "source", f.source, "err", capped(err.Error()), "retry", f.pace.after(failed), "text", "the keys read before stay in use")
	}
	return failed
}

// after returns the time until the next read after that many failures in a row.
func (p pace) after(failed int) time.Duration {
	if failed == 0 {
		return p.every
	}
	return min(p.retry<<min(failed-1, 16), p.retryMax)
}

// again requests a read because a token's key is unknown, and waits for it. It reports
// whether the keys may have changed.
func (f *feed) again(ctx context.Context) bool {
	if !f.remote() {
		return false
	}
	ended := f.rounds.ask(false)
	if ended == nil {
		return false
	}
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	case <-f.done:
		return false
	}
}

// report logs the changes of a set: the number of keys, if they changed, and the ignored
// ones.
func (f *feed) report(before, now *keySet) {
	if before == nil || !before.sameKeys(now) {
		f.log.Info("login.keys_loaded", "source", f.source, "keys", now.size())
	}
	if before != nil && slices.Equal(before.notes, now.notes) {
		return
	}
	for _, n := range now.notes {
		f.log.Warn("login.key_ignored", "source", f.source, "kid", capped(n.kid), "reason", capped(n.why))
	}
}

// capped bounds untrusted text in the log.
func capped(s string) string { return s[:min(len(s), 200)] }
