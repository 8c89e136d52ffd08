package upgrade

import (
	"encoding/json"
	"os"
	"slices"
	"time"

	"reseat/gateway/events"
	"reseat/gateway/handover"
	"reseat/gateway/transport/rawconn"
	"reseat/gateway/webhook"
)

// This file is what the successor does after the commit.

// Adopt begins to serve: first what the predecessor had.
func (t *Predecessor) Adopt() {
	u := t.u
	for _, e := range t.last {
		u.Sessions.Watch.Events.Publish(e)
	}
	t.sessions.Adopt(t.rest.Left)
	t.ch.Send(handover.Adopted, nil)
	u.Server.Serve()
	t.collect()
	t.inject()
	took := handover.Monotonic() - t.rest.Frozen
	u.metrics.results.WithLabelValues(OK).Inc()
	u.metrics.freeze.Observe(took.Seconds())
	pumped := len(t.sessions.pumped) // follow changes it
	u.metrics.sessions.WithLabelValues("moved").Add(float64(t.count - pumped))
	u.metrics.sessions.WithLabelValues("pumped").Add(float64(pumped))
	u.metrics.sessions.WithLabelValues("kept").Add(float64(len(t.rest.Left)))
	forwarded := t.forwarded
	u.metrics.forwarded.Store(&forwarded)
	u.mu.Lock()
	u.last = Status{
		State: OK, From: t.offer.Version, To: t.set.Version,
		Sessions: StatusSessions{Moved: t.count - pumped, Pumped: pumped, Kept: len(t.rest.Left)}, FreezeMS: float64(took.Microseconds()) / 1000,
	}
	u.older = slices.Clone(t.older) // watchOlder deletes from it
	u.mu.Unlock()
	for _, ch := range t.older {
		go u.watchOlder(ch, nil)
	}
	u.log.Info("upgrade.committed", "pid", os.Getpid(), "from", t.offer.Version, "to", t.set.Version, "sessions", t.count, "pumped", pumped, "kept", len(t.rest.Left), "frozen", took)
	if t.offer.SigningKey != u.Sessions.Keys.SigningKeyID() || t.rest.Gateway.Renewing {
		t.sessions.RenewTokens()
	}
	go t.follow()
	u.noteForwarding(pumped > 0, t.rest.Pump, t.rest.Older)
	for _, older := range []bool{false, true} {
		time.AfterFunc(map[bool]time.Duration{false: t.rest.Pump, true: t.rest.Older}[older], func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.sessions.EndPumps(older)
		})
	}
}

// follow serves what the predecessor hands over later.
func (t *Predecessor) follow() {
	defer func() {
		t.sessions.NoneLate()
		t.settle(func() { t.done = true })
		t.u.watchOlder(t.ch, func(m *handover.Message) { t.late(m) })
		t.settle(t.continuePosts) // if it has crashed
	}()
	for {
		m, err := t.ch.Receive()
		if err != nil {
			return
		}
		if done := t.late(&m); done {
			return
		}
	}
}

// late handles a message after the commit. It reports whether that was the last one.
func (t *Predecessor) late(m *handover.Message) (done bool) {
	defer m.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	switch m.Kind {
	case handover.Sessions:
		err = t.lateSessions(m)
	case handover.Conns:
		err = t.lateConns(m)
	case handover.Tombstones:
		err = t.restoreTombstones(m.Body)
	case handover.Event:
		var e events.Event
		if err = json.Unmarshal(m.Body, &e); err == nil {
			t.u.Sessions.Watch.Events.Publish(e)
		}
	case handover.Posts:
		if len(m.Body) == 0 {
			t.continuePosts()
			t.settleLocked()
			return false
		}
		var list []webhook.Queued
		if err = json.Unmarshal(m.Body, &list); err == nil {
			t.posts = append(t.posts, list...)
		}
	case handover.Done:
		return true
	}
	if err != nil {
		t.u.log.Error("upgrade.late_failed", "err", err)
	}
	return false
}

// settle notes something, and that the predecessor has handed everything over if that was the last.
func (t *Predecessor) settle(note func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note()
	t.settleLocked()
}

func (t *Predecessor) settleLocked() {
	if t.done && !t.offer.Posts {
		t.u.Settle()
	}
}

// continuePosts begins to post webhook events: the predecessor does not post any more. Called with
// mu held.
func (t *Predecessor) continuePosts() {
	if t.offer.Posts {
		t.u.Server.ContinuePosts(t.posts)
	}
	t.posts, t.offer.Posts = nil, false
}

// lateSessions serves sessions that follow after the commit. Nobody else has them any more: one
// that cannot be restored is lost, and costs no other.
func (t *Predecessor) lateSessions(m *handover.Message) error {
	err := eachSession(m, func(s Received) error {
		d, err := t.sessions.Decode(t.offer.Format, s)
		if err == nil {
			err = t.sessions.Restore(d)
		}
		if err != nil {
			closeEnds(s)
			t.u.metrics.sessions.WithLabelValues("lost").Inc()
			t.u.log.Error("upgrade.session_lost", "err", err, "text", "its connections are closed")
		}
		return nil
	})
	t.sessions.AdoptLate()
	return err
}

// lateConns serves clients whose requests the predecessor has read.
func (t *Predecessor) lateConns(m *handover.Message) error {
	var list []lateConn
	if err := json.Unmarshal(m.Body, &list); err != nil {
		return err
	}
	if len(list) == 1 && len(m.FDs) == 1 && list[0].Answered {
		c, fd := list[0].LateConn, m.FDs[0]
		m.FDs = nil
		var err error
		if c.Conn, err = rawconn.ConnOf(fd); err != nil {
			return err
		}
		go t.u.Sessions.ResumeAnswered(c)
		return nil
	}
	err := t.keepConns(m)
	t.inject()
	return err
}

// inject has the servers accept the connections that were kept.
func (t *Predecessor) inject() {
	for _, c := range t.conns {
		t.u.Server.Inject(c.listener, c.conn)
	}
	t.conns = nil
}

// forwarded counts the connections that older processes still forward, and these processes.
func (t *Predecessor) forwarded() (conns, processes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions.Forwarded()
}
