package upgrade

import (
	"context"
	"errors"
	"fmt"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// This file is the predecessor's side of an upgrade: it freezes the sessions, and either
// gives them back or forgets them.

// usualRecord is the size of most records in bytes, encoded.
const usualRecord = 512

// settlePoll is the interval at which Freeze tries a busy session again.
const settlePoll = time.Millisecond

// A Frozen is all sessions of a Gateway, standing still: nothing is read, written or
// decided until Thaw or Commit, of which one must follow.
type Frozen struct {
	Busy     []string // ids of the sessions that could not be frozen: they go on
	u        *Sessions
	sessions []standing
	send     func(FrozenSession) error
	resume   func()
}

// A FrozenSession has all that a successor needs of one session. It is valid until Thaw or Commit.
type FrozenSession struct {
	transport.Frozen
	Record []byte
}

// A standing session is frozen until thaw, or until it is dropped.
type standing struct {
	e    *registry.Record
	thaw func()
}

// Freeze freezes all sessions but those that wait for their game server, and those that are
// still busy after settle. It passes each to send as soon as that is frozen. It fails, and
// changes nothing, if send does, or if handshakes in flight do not come to an end before ctx
// is done.
func (u *Sessions) Freeze(ctx context.Context, format int, settle time.Duration, send func(FrozenSession) error) (*Frozen, error) {
	f := &Frozen{u: u, send: send}
	if err := u.Gate.Freeze(ctx); err != nil {
		return nil, err
	}
	u.Watch.Events.Hold()
	left := u.Registry.All()
	for _, e := range left {
		if d := e.Driver(); d != nil {
			d.Quiesce()
		}
	}
	f.resume = u.Driver.Pause()
	until := time.Now().Add(settle)
	for {
		var err error
		if left, err = f.freeze(left, format); err != nil {
			f.Thaw()
			return nil, err
		}
		if len(left) == 0 || time.Now().After(until) || ctx.Err() != nil {
			break
		}
		time.Sleep(settlePoll)
	}
	for _, e := range left {
		f.leave(e)
	}
	return f, nil
}

// freeze freezes the sessions of a list, and returns those that are busy.
func (f *Frozen) freeze(list []*registry.Record, format int) (busy []*registry.Record, err error) {
	for _, e := range list {
		d := e.Driver()
		if d == nil || f.u.Dialer.Dialling(e) {
			f.leave(e)
			continue
		}
		frozen, thaw, err := d.Freeze(format)
		switch {
		case errors.Is(err, session.ErrBusy):
			busy = append(busy, e)
			continue
		case errors.Is(err, session.ErrLater):
			f.leave(e)
			continue
		case err != nil:
			return nil, fmt.Errorf("session %s: %w", e.ID, err)
		}
		f.sessions = append(f.sessions, standing{e, thaw})
		record := e.AppendState(make([]byte, 0, usualRecord), f.u.Table.Route(e.Route).Upstream)
		if err := f.send(FrozenSession{frozen, record}); err != nil {
			return nil, err
		}
	}
	return busy, nil
}

// leave leaves a session that cannot be frozen to go on.
func (f *Frozen) leave(e *registry.Record) {
	if d := e.Driver(); d != nil {
		d.Unquiesce()
	}
	f.Busy = append(f.Busy, e.ID)
}

// Count counts the frozen sessions.
func (f *Frozen) Count() int { return len(f.sessions) }

// Thaw lets everything go on as if nothing had happened.
func (f *Frozen) Thaw() {
	for _, s := range f.sessions {
		s.thaw()
	}
	f.resume()
	f.u.Watch.Events.Release(nil)
	f.u.Gate.Thaw(false)
}

// Commit forgets the sessions, which a successor has, without a sign to their peers.
// Clients that come to this process from now on are the successor's.
func (f *Frozen) Commit(to Successor) {
	f.u.successor.Store(&to)
	f.u.Watch.Events.Release(to.Event)
	for _, s := range f.sessions {
		s.e.Driver().Drop()
		f.u.Registry.Release(s.e, f.u.Store)
	}
	f.resume()
	f.u.Gate.Thaw(true)
}

// Left counts what a process whose successor has the sessions still has to finish:
// sessions, and handshakes in flight.
func (u *Sessions) Left() (sessions, visits int) {
	inside, away := u.Gate.Visits()
	return u.Registry.CountOpen(), inside + away
}

// descriptorsInUse counts the descriptors of sessions, requests and idle connections.
func (u *Sessions) descriptorsInUse() int {
	clients, _ := u.Conns.Counts()
	admins, _ := u.AdminConns.Counts()
	return u.Registry.InUse() + clients + admins
}

// disconnectAll drops the connections of all attached clients. Those that can resume do so.
func (u *Sessions) disconnectAll() {
	for _, e := range u.Registry.All() {
		if d := e.Driver(); d != nil {
			d.Do(func(core *session.Session, now session.Time) { core.Disconnect(now) })
		}
	}
}
