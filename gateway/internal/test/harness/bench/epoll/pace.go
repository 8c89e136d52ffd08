//go:build linux

package epoll

import "time"

// A Pace says when each of a number of senders is to send: all of them once an
// interval, one after the other at even distances, but those of one grain of
// time together, at its end.
type Pace struct {
	begin, interval, grain int64
	senders                int64
	done, limit            int64 // how often anybody has sent; limit zero: for ever
}

// NewPace begins a Pace at a moment of Now. A grain of zero or one parts all
// senders; no turns means as many as there is time for.
func NewPace(begin int64, interval, grain time.Duration, senders, turns int) *Pace {
	return &Pace{
		begin: begin, interval: int64(interval), grain: max(int64(grain), 1),
		senders: int64(senders), limit: int64(senders) * int64(turns),
	}
}

// Next is when somebody is to send next; false: never.
func (p *Pace) Next() (int64, bool) {
	if p == nil || p.limit > 0 && p.done >= p.limit {
		return 0, false
	}
	turn, i := p.done/p.senders, p.done%p.senders
	at := turn*p.interval + i*p.interval/p.senders
	return p.begin + (at+p.grain-1)/p.grain*p.grain, true
}

// Run calls send for each that is due at now, with the moment it was due at.
func (p *Pace) Run(now int64, send func(i int, due int64)) {
	for {
		due, ok := p.Next()
		if !ok || due > now {
			return
		}
		i := int(p.done % p.senders)
		p.done++
		send(i, due)
	}
}
