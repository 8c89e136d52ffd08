package sim

import (
	"strconv"
	"time"

	"reseat/gateway/session"
)

// The model client's side of answer_ms, from protocol section 5: when it considers the
// gateway dead, and when it sends a ping.

// A watch is what a client records about a connection's activity.
type watch struct {
	began   session.Time // the hello came
	unacked []unacked    // of its messages
	pings   []ownPing    // unanswered, oldest first
	pinged  session.Time // when the newest was sent
	probed  session.Time // the first since any activity
	excused session.Time // until when the client itself was suspended
	waited  bool         // whether output was queued at the last check,
	put     uint64       // and how much had been put then
}

// An ownPing is a ping of the client's.
type ownPing struct {
	n     uint64
	at    session.Time
	begin uint64 // its offset in what is sent
}

func (w *watch) acks(n uint64) {
	for len(w.unacked) > 0 && w.unacked[0].n <= n {
		w.unacked = w.unacked[1:]
	}
}

// hear records activity.
func (l *link) hear() {
	now := l.c.g.w.now
	if d := now.Sub(l.heard); d > 0 {
		if l.gap == 0 {
			l.gap = d
		}
		l.gap += (d - l.gap) / 8
	}
	l.heard = now
}

// ping sends the gateway a ping.
func (l *link) ping() {
	now := l.c.g.w.now
	l.pings++
	l.watch.pings = append(l.watch.pings, ownPing{l.pings, now, l.in.put + uint64(len(l.pending))})
	l.watch.pinged = now
	if l.watch.probed <= max(l.heard, l.watch.excused) {
		l.watch.probed = now
	}
	l.sendControl("ping " + strconv.FormatUint(l.pings, 10))
	l.mark(markPing, l.pings)
}

// ponged records that the gateway answered ping n, and with it all earlier ones.
func (l *link) ponged(n uint64) {
	w := &l.watch
	for len(w.pings) > 0 && w.pings[0].n <= n {
		if d := l.c.g.w.now.Sub(w.pings[0].at); w.pings[0].n == n {
			if l.c.rtt == 0 {
				l.c.rtt = d
			}
			l.c.rtt += (d - l.c.rtt) / 8
		}
		w.pings = w.pings[1:]
	}
}

// answerDue returns when the client must send a ping, and when the connection is dead;
// zero: never. If the client may send nothing more, only the heartbeat counts.
func (l *link) answerDue() (ping, dead session.Time) {
	w, c := &l.watch, l.c
	if c.answer == 0 || l.hello == 0 || l.closed || l.byeSent || l.rogueEnd > 0 {
		return 0, 0
	}
	lively := max(l.heard, w.excused, w.began)
	var since session.Time
	if len(w.unacked) > 0 {
		since = w.unacked[0].at
	}
	if len(w.pings) > 0 {
		since = earlier(since, w.pings[0].at)
	}
	if since == 0 {
		return max(lively, w.pinged).Add(c.g.cfg.Heartbeat + c.answer/2), 0
	}
	since = max(since, lively)
	if w.probed > lively {
		limit := c.answer
		if c.rtt == 0 {
			limit = max(limit, 5*time.Second)
		}
		dead = max(since.Add(limit), w.probed.Add(4*c.rtt))
	}
	return max(since, w.pinged).Add(c.answer / 2), dead
}

// tickAnswer does what is due.
func (l *link) tickAnswer(now session.Time) {
	l.lookAtBuffer(now)
	ping, dead := l.answerDue()
	switch {
	case dead > 0 && now >= dead:
		l.c.g.w.cov.hit("gateway silent")
		l.c.g.log("cl unanswered", int64(l.id), 0)
		l.drop()
	case ping > 0 && now >= ping:
		l.ping()
		l.waits()
	}
}

// lookAtBuffer counts it as activity if less output is queued than before, as far as
// that output was queued before the newest ping.
func (l *link) lookAtBuffer(now session.Time) {
	w := &l.watch
	before := len(w.pings) == 0 || l.in.put <= w.pings[len(w.pings)-1].begin
	if w.waited && l.in.put > w.put && before {
		l.heard = now
	}
	l.waits()
}

func (l *link) waits() { l.watch.waited, l.watch.put = len(l.pending) > 0, l.in.put }
