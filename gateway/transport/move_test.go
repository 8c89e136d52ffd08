//go:build linux

package transport_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// A pace keeps traffic going until enough has been done under it: both sides wait before
// the message of number i until done is not more than a few below i/each.
type pace struct {
	each int
	mu   sync.Mutex
	cond sync.Cond
	done int
}

func newPace(each int) *pace {
	p := &pace{each: each}
	p.cond.L = &p.mu
	return p
}

func (p *pace) add() {
	p.mu.Lock()
	p.done++
	p.mu.Unlock()
	p.cond.Broadcast()
}

func (p *pace) await(i int) {
	const lag = 4
	p.mu.Lock()
	for p.done < i/p.each-lag {
		p.cond.Wait()
	}
	p.mu.Unlock()
}

// move moves the rig's session from one Driver to the other, unless it is busy.
func (r *rig) move(t *testing.T, from, to *transport.Driver) bool {
	t.Helper()
	resume := from.Pause()
	defer resume()
	f, _, err := r.drive.Freeze(session.Formats[0])
	if errors.Is(err, session.ErrBusy) || errors.Is(err, session.ErrLater) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	core, err := session.Restore(session.Formats[0], f.State, slices.Concat(f.Content...), r.store, zeroKey)
	if err != nil {
		t.Fatal(err)
	}
	up, down := wstest.Duplicate(t, f.Up.FD), wstest.Duplicate(t, f.Down.FD)
	r.drive.Drop()
	r.drive = to.Adopt(core, transport.End{FD: up}, transport.End{FD: down}, r.events)
	return true
}

// An upgrade in small: both sides send and read all the time, while the session moves to
// and fro between two Drivers of each kind.
func TestSessionMovesBetweenDriversUnderTraffic(t *testing.T) {
	for name, kinds := range map[string][2]transport.Kind{
		"net": {transport.Net, transport.Net}, "poll": {transport.Poll, transport.Poll},
		"net and poll": {transport.Net, transport.Poll},
	} {
		t.Run(name, func(t *testing.T) {
			const messages, size, wanted = 20_000, 300, 40
			moves := newPace(messages / wanted)
			clock := transport.NewClock()
			var drivers [2]*transport.Driver
			for i, kind := range kinds {
				d := transport.NewDriver(kind, 0, clock)
				t.Cleanup(func() { d.Close(); d.Wait() })
				drivers[i] = d
			}
			r := newRig(t, drivers[0], zeroKey)
			first := r.drive
			over := r.traffic(t, messages, size, moves.await)
			for traffic := true; traffic; {
				select {
				case <-over:
					traffic = false
				case <-time.After(time.Millisecond):
				}
				if r.move(t, drivers[moves.done%2], drivers[(moves.done+1)%2]) {
					moves.add()
				}
			}
			first.Do(func(*session.Session, session.Time) { t.Error("a session that has moved is asked something") })
		})
	}
}

// If the new process does not come up, the old one goes on as if nothing had happened.
func TestThawedSessionContinues(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		r := newRig(t, d, zeroKey)
		frozen := newPace(500)
		over := r.traffic(t, 20_000, 300, frozen.await)
		for traffic := true; traffic; {
			select {
			case <-over:
				traffic = false
			case <-time.After(time.Millisecond):
			}
			r.drive.Quiesce()
			resume := d.Pause()
			_, thaw, err := r.drive.Freeze(session.Formats[0])
			for range 1000 { // until reads are interrupted
				if !errors.Is(err, session.ErrBusy) {
					break
				}
				runtime.Gosched()
				_, thaw, err = r.drive.Freeze(session.Formats[0])
			}
			if err == nil {
				thaw()
				frozen.add()
			} else {
				r.drive.Unquiesce()
			}
			if err != nil && !errors.Is(err, session.ErrBusy) && !errors.Is(err, session.ErrLater) {
				t.Error(err)
			}
			resume()
		}
	})
}
