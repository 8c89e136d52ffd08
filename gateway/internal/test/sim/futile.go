package sim

import (
	"time"

	"reseat/gateway/session"
)

// A futility counts the consecutive resumes without progress, protocol section 6, 4410
// `no progress`: the client was active after its hello and disconnected again, without
// acking anything new although something was sent.
type futility struct {
	n     int
	since session.Time
	over  bool // there were too many
}

const (
	tooFutile  = 5
	futileSpan = 10 * time.Second
)

// ended records that p's connection has ended with acked messages acked. One that was
// still draining does not count.
func (f *futility) ended(p *pulse, acked uint64) {
	now, d := p.g.w.now, p.socket.drained
	futile := p.resumed && p.spoke && acked == p.ackedAt && p.dataFrom > 0 && p.sight.at >= p.dataFrom
	switch lately := max(p.g.cfg.Answer, leastWait); {
	case d > 0 && now.Sub(d) < lately:
		if futile {
			p.g.w.cov.hit("still draining, not futile")
		}
		return
	case !futile:
		*f = futility{}
		return
	case f.n == 0:
		f.since = p.since
	}
	f.n++
	f.over = f.n >= tooFutile && now.Sub(f.since) >= futileSpan
}
