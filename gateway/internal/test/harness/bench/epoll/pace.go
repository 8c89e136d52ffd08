//go:build linux

package epoll

import "time"

// A Pace schedules a number of senders: each sends once per interval, evenly
// distributed, except that those within the same grain send together at its end.
type Pace struct {
	begin, interval, grain int64
	senders                int64
	done, limit            int64 // sends so far; limit zero: unlimited
}

// NewPace starts a Pace at a time of Now. A grain of zero or one separates all senders;
// zero turns means unlimited.
func NewPace(begin int64, interval, grain time.Duration, senders, turns int) *Pace {
	return &Pace{
		begin: begin, interval: int64(interval), grain: max(int64(grain), 1),
		senders: int64(senders), limit: int64(senders) * int64(turns),
	}
}

// Next returns when the next send is due; false: never.
func (p *Pace) Next() (int64, bool) {
	if p == nil || p.limit > 0 && p.done >= p.limit {
		return 0, false
	}
	turn, i := p.done/p.senders, p.done%p.senders
	at := turn*p.interval + i*p.interval/p.senders
	return p.begin + (at+p.grain-1)/p.grain*p.grain, true
}

// Shift moves everything that has not been sent yet later by d nanoseconds, as after a
// pause.
func (p *Pace) Shift(d int64) {
	if p != nil {
		p.begin += d
	}
}

// Run calls send for each sender that is due at now, with its due time.
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
