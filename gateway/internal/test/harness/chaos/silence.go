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

// How long either side takes to notice that a line has fallen silent.

// A silent records when a connection fell silent, and for whom.
type silent struct {
	at        int64
	far, near bool // the gateway receives nothing, the client receives nothing
}

// A delay is how long it took to notice one: from its start, or from the time when an
// answer was owed, if that was later.
type delay struct {
	whole, owed time.Duration
	limit       time.Duration // by answer_ms, for the round trip known then
	traffic     bool          // an answer was owed soon after the start
}

// delays are the delays of one side.
type delays struct {
	mu    sync.Mutex
	list  []delay
	false int // alarms without a silence
}

func (d *delays) add(x delay) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, x)
}

func (d *delays) alarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.false++
}

// soon is how long after the start of a silence something sent counts as traffic.
const soon = 3 * time.Second

// strike records that the player's connection number attempt falls silent.
func (p *player) strike(attempt int, far, near bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := silent{now(), far, near}
	p.struck[attempt] = s
	if far {
		p.lastUp = s
	}
}

// noticed records that the player considers its connection number attempt dead. owed is
// since when it has waited for an answer.
func (p *player) noticed(attempt int, owed int64) {
	p.mu.Lock()
	s, ok := p.struck[attempt]
	p.mu.Unlock()
	if !ok || !s.near {
		p.run.byClients.alarm()
		return
	}
	p.run.byClients.add(p.since(s, owed))
}

// unnoticed records that the player's connection number attempt has ended otherwise,
// which has the same effect for the player.
func (p *player) unnoticed(attempt int, owed int64) {
	p.mu.Lock()
	s, ok := p.struck[attempt]
	p.mu.Unlock()
	if ok && s.near && time.Duration(now()-s.at) > p.run.cfg.Answer+p.run.cfg.Late {
		p.run.byClients.add(p.since(s, owed))
	}
}

// replaced records that a resume on suspicion has superseded the player's connection
// number attempt.
func (p *player) replaced(attempt int) {
	p.mu.Lock()
	s, ok := p.struck[attempt]
	p.mu.Unlock()
	if !ok || !s.near {
		p.run.bySuspicion.alarm()
		return
	}
	p.run.bySuspicion.add(p.since(s, 0))
}

func (p *player) since(s silent, owed int64) delay {
	d := delay{whole: time.Duration(now() - s.at), limit: p.answerLimit(), traffic: owed > 0 && time.Duration(owed-s.at) < soon}
	d.owed = d.whole
	if owed > s.at {
		d.owed = time.Duration(now() - owed)
	}
	return d
}

// answerLimit is how long a silence under traffic may last, protocol section 5.4: a
// ping is sent after half of answer_ms, and is given four round trips.
func (p *player) answerLimit() time.Duration {
	answer, rtt := p.run.cfg.Answer, p.roundTrip()
	if rtt == 0 {
		return max(answer, leastWait)
	}
	return max(answer, answer/2+4*rtt)
}

// logged examines a line of the gateway's log: it may have attached a client, or
// considered one dead.
func (r *run) logged(l process.Line) {
	v, ok := r.bySession.Load(l.Session)
	if !ok {
		return // its session is not known yet: the first hello has not arrived
	}
	p := v.(*player)
	switch {
	case l.Msg == "session.resumed", l.Msg == "session.superseded":
		p.mu.Lock()
		defer p.mu.Unlock()
		p.attached = now()
	case l.Msg == "session.detached" && l.Reason == "silent":
		p.note("the gateway has taken it for dead")
		p.foundSilent()
	case l.Msg == "session.detached":
		var heard int64
		if silence, err := time.ParseDuration(l.Silent); err == nil {
			heard = now() - int64(silence)
		}
		p.foundOtherwise(heard)
	}
}

// foundOtherwise records that the gateway's connection, which it last received something on
// at heard, has ended otherwise. If it had long been silent, the gateway should have noticed.
// If the gateway received something after the fault was over, the silent connection was
// another one: that of a resume which was never attached.
func (p *player) foundOtherwise(heard int64) {
	p.mu.Lock()
	s, attached := p.lastUp, p.attached
	p.mu.Unlock()
	if heard > s.at+int64(p.run.cfg.Hold+p.run.cfg.Late) {
		return
	}
	if s.at > 0 && s.at >= attached && time.Duration(now()-s.at) > p.run.cfg.Answer+p.run.cfg.Late {
		p.run.byGateway.add(p.since(s, p.gameSaid(s.at)))
	}
}

// foundSilent records that the gateway considers the player's connection dead.
func (p *player) foundSilent() {
	p.mu.Lock()
	s, attached := p.lastUp, p.attached
	p.mu.Unlock()
	switch {
	case s.at >= attached && s.at > 0:
		p.run.byGateway.add(p.since(s, p.gameSaid(s.at)))
	case time.Duration(attached-s.at) < soon, p.run.links != nil: // silent from its start
		p.run.byGateway.add(p.since(silent{at: attached}, 0))
	default:
		p.run.byGateway.alarm()
	}
}

// gameSaid returns when the game server sent something after t; zero: never.
func (p *player) gameSaid(t int64) int64 {
	g := p.seat()
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i, _ := slices.BinarySearch(g.bursts, t)
	if i == len(g.bursts) {
		return 0
	}
	return g.bursts[i]
}

// judgeDelays compares what was measured with answer_ms.
func (r *run) judgeDelays(who string, d *delays) {
	over, traffic := 0, 0
	for _, x := range d.list {
		if x.traffic {
			traffic++
			if x.owed > x.limit+r.cfg.Late {
				over++
			}
		}
		if most := 2*r.cfg.Heartbeat + r.cfg.Answer + 5*r.cfg.Late; x.whole > most {
			r.faults = append(r.faults, fmt.Sprintf("a silent line was noticed by %s after %v, at most %v are promised", who, x.whole, most))
		}
	}
	if cuts := r.silentCuts(); cuts >= 20 && int64(len(d.list)) < cuts/20 {
		r.faults = append(r.faults, fmt.Sprintf("only %d of %d silent lines were noticed by %s", len(d.list), cuts, who))
	}
	if 10*over > traffic && over > 2 {
		r.faults = append(r.faults, fmt.Sprintf("%d of %d lines that fell silent under traffic were noticed by %s later than answer_ms allows, %v or four round trips", over, traffic, who, r.cfg.Answer))
	}
}

// String describes the distribution.
func (d *delays) String() string {
	spread := func(of func(delay) (time.Duration, bool)) string {
		var list []time.Duration
		for _, x := range d.list {
			if v, ok := of(x); ok {
				list = append(list, v)
			}
		}
		if len(list) == 0 {
			return "none"
		}
		slices.Sort(list)
		at := func(percent int) time.Duration { return list[(len(list)-1)*percent/100].Round(10 * time.Millisecond) }
		return fmt.Sprintf("%d: half within %v, 9 of 10 within %v, 99 of 100 within %v, all within %v", len(list), at(50), at(90), at(99), at(100))
	}
	whole := spread(func(x delay) (time.Duration, bool) { return x.whole, true })
	owed := spread(func(x delay) (time.Duration, bool) { return x.owed, x.traffic })
	if owed != "none" {
		whole += "; under traffic, since an answer was owed, " + owed
	}
	return fmt.Sprintf("%s; false alarms: %d", whole, d.false)
}

// silentCuts returns the number of disconnects without an error on at least one side.
func (r *run) silentCuts() (n int64) {
	for k := range fault.Kinds {
		if far, near := k.Silent(); far || near {
			n += r.count.cuts[k].Load()
		}
	}
	return n
}
