package session

import (
	"encoding/binary"
	"math/bits"
	"time"

	"reseat/gateway/frame"
)

// This file keeps the game server from closing a detached session: it sends the keepalives of the
// operator, and notices those of the client itself: --keepalive-send. What must hold:
//
//   - Only what was the same each time, and came at one pace, is taken for a keepalive.
//   - A client's message costs a comparison if it is long, else a hash, and no allocation.

// A Keepalive is what a game server expects from its client at intervals. The gateway sends it while the client is
// detached.
type Keepalive struct {
	Every time.Duration
	Text  string // the payload
	Kind  KeepaliveKind
}

// A KeepaliveKind is the type of a Keepalive's frame.
type KeepaliveKind uint8

// The kinds.
const (
	KeepaliveText KeepaliveKind = iota
	KeepaliveBinary
	KeepalivePing
)

func (k KeepaliveKind) op() byte { return [...]byte{frame.Text, frame.Binary, frame.Ping}[k] }

// A KeepaliveMode says what the session does about a client's own keepalives.
type KeepaliveMode uint8

// The modes of --keepalive-send.
const (
	KeepaliveOff  KeepaliveMode = iota
	KeepaliveHint               // report them: KeepaliveNoticed
	KeepaliveAuto               // and go on sending the one that was noticed while the client is detached
)

// String returns the mode's name in flags.
func (m KeepaliveMode) String() string { return [...]string{"off", "hint", "auto"}[m] }

const (
	steadyTimes   = 3                      // so often, in one pace, and it is a keepalive
	leastPace     = 900 * time.Millisecond // of a second, a tenth of which may be missing
	longestPace   = 2 * time.Minute
	maxKeepalive  = 256                    // bytes of its payload
	candidates    = 4                      // that are compared with what the client sends
	keepaliveWait = 500 * time.Millisecond // how much later one is tried again that waits for certainty
)

// keepalives is made once there is something to send or to compare.
type keepalives struct {
	due     []Time    // of Config.Keepalives while detached, and of the noticed one, if it is sent
	noticed Keepalive // Every is zero: there is none
	hash    uint64    // of it
	last    Time      // when the client last sent it
	seen    [candidates]candidate
}

// A candidate is something that the client has sent and may send again.
type candidate struct {
	hash  uint64
	size  int
	times int // in one pace; zero: unused
	last  Time
	every time.Duration // mean, from the second time on
}

// notice compares what the client has sent with what it sent before. p is masked with key.
func (s *Session) notice(now Time, kind KeepaliveKind, p []byte, key [4]byte) {
	if s.keepalives == nil {
		s.keepalives = new(keepalives)
	}
	k, hash := s.keepalives, hashOf(kind, p, key)
	for i := range k.seen {
		c := &k.seen[i]
		if c.times == 0 || c.hash != hash {
			continue
		}
		c.again(now)
		switch {
		case hash == k.hash:
			if k.last = now; c.times >= steadyTimes {
				k.noticed.Every = pace(c.every)
			}
		case c.times == steadyTimes && (!k.current(now) || c.every < k.noticed.Every):
			s.found(now, c, kind, p, key)
		}
		return
	}
	if c := k.place(now, len(p), s.received.n); c != nil {
		*c = candidate{hash: hash, size: len(p), times: 1, last: now}
	}
}

// again records that c was sent again. What comes faster than leastPace has no pace: a held key repeats, too.
func (c *candidate) again(now Time) {
	gap := now.Sub(c.last)
	c.last = now
	switch {
	case gap < leastPace, gap > longestPace:
		c.times = 1
	case c.times > 1 && (gap-c.every).Abs() <= c.every/10:
		c.every += (gap - c.every) / time.Duration(c.times)
		c.times++
	default:
		c.times, c.every = 2, gap
	}
}

// place returns which candidate gives way to a message of that size, nil if none does: one that is overdue, else of the
// first half the longest without a pace, since keepalives are short, and of the others now and then any, by the number n
// of the message, since they may be longer than all that comes between.
func (k *keepalives) place(now Time, size int, n uint64) *candidate {
	random := int(n * 0x9e3779b97f4a7c15 >> 59)
	var give *candidate
	for i := range k.seen {
		c := &k.seen[i]
		wait := longestPace
		if c.times > 1 {
			wait = 2 * c.every
		}
		switch {
		case c.times == 0 || now.Sub(c.last) > wait:
			return c
		case c.times >= steadyTimes:
		case i >= candidates/2 && i == random,
			i < candidates/2 && size < c.size && (give == nil || c.size > give.size):
			give = c
		}
	}
	return give
}

// found takes c for the keepalive of the client, unless the gateway has it from the operator.
func (s *Session) found(now Time, c *candidate, kind KeepaliveKind, p []byte, key [4]byte) {
	payload := append([]byte(nil), p...)
	frame.XOR(payload, key)
	one := Keepalive{Every: pace(c.every), Text: string(payload), Kind: kind}
	for _, own := range s.cfg.Keepalives {
		if own.Kind == kind && own.Text == one.Text {
			return
		}
	}
	for _, r := range s.cfg.KeepaliveReplies {
		if kind == KeepaliveText && r.Out == one.Text {
			return
		}
	}
	k := s.keepalives
	k.noticed, k.hash, k.last = one, c.hash, now
	s.emit(Event{Kind: KeepaliveNoticed, Keepalive: one})
}

// pace rounds what was measured, by at most a tenth.
func pace(d time.Duration) time.Duration {
	if d >= 5*time.Second {
		return d.Round(time.Second)
	}
	return max(d.Round(100*time.Millisecond), time.Second)
}

// current reports whether the client, last heard at that time, was still sending what was noticed.
func (k *keepalives) current(heard Time) bool {
	return k.noticed.Every > 0 && heard.Sub(k.last) <= 2*k.noticed.Every
}

// hashOf is a hash in the manner of FNV-1a of a kind, a length and what p unmasks to, eight bytes at a time.
func hashOf(kind KeepaliveKind, p []byte, key [4]byte) uint64 {
	const prime = 1099511628211
	mask := uint64(binary.LittleEndian.Uint32(key[:]))
	mask |= mask << 32
	h := (14695981039346656037 ^ uint64(kind) ^ uint64(len(p))<<8) * prime
	for ; len(p) >= 8; p = p[8:] {
		h = (bits.RotateLeft64(h, 29) ^ binary.LittleEndian.Uint64(p) ^ mask) * prime
	}
	for i, b := range p {
		h = (h ^ uint64(b^key[i&3])) * prime
	}
	return h
}

// noticed returns what the client sends at a steady pace; its Every is zero if there is nothing.
func (s *Session) noticed() (k Keepalive) {
	if s.keepalives != nil {
		k = s.keepalives.noticed
	}
	return k
}

// startKeepalives restarts the keepalives at a detach. The client's own one continues at the moment when the client would have sent it.
func (s *Session) startKeepalives(now Time) {
	k := s.keepalives
	if k == nil && len(s.cfg.Keepalives) == 0 {
		return
	}
	if k == nil {
		k = new(keepalives)
		s.keepalives = k
	}
	k.due = k.due[:0]
	for _, b := range s.cfg.Keepalives {
		k.due = append(k.due, now.Add(b.Every))
	}
	if s.cfg.Keepalive == KeepaliveAuto && k.current(s.heard) {
		k.due = append(k.due, max(now, k.last.Add(k.noticed.Every)))
	}
}

// stopKeepalives has none sent until the next detach.
func (s *Session) stopKeepalives() {
	if s.keepalives != nil {
		s.keepalives.due = nil
	}
}

// tickKeepalives sends the keepalives that are due, unless the upstream has not taken earlier
// output, since they must not pile up, or another node may speak for the player.
func (s *Session) tickKeepalives(now Time) {
	next := s.nextKeepalive()
	if next == 0 || now < next {
		return
	}
	sends := s.up.mode == Open && s.q.empty() && len(s.up.rest) == 0
	waits := sends && !s.mayAct(now)
	for i, at := range s.keepalives.due {
		b := s.keepalives.noticed
		if i < len(s.cfg.Keepalives) {
			b = s.cfg.Keepalives[i]
		}
		switch {
		case now < at:
		case waits:
			s.keepalives.due[i] = now.Add(keepaliveWait)
		default:
			s.keepalives.due[i] = now.Add(b.Every)
			if sends {
				s.sendKeepalive(b, i == len(s.cfg.Keepalives))
			}
		}
	}
}

// sendKeepalive sends b, and reports it. noticed says that it is the client's own.
func (s *Session) sendKeepalive(b Keepalive, noticed bool) {
	if s.up.released {
		return
	}
	s.pushControl(b.Kind.op(), []byte(b.Text))
	s.emit(Event{Kind: KeepaliveSent, Own: noticed})
}

// nextKeepalive returns when the next keepalive is due; zero: never.
func (s *Session) nextKeepalive() (t Time) {
	if s.keepalives == nil {
		return 0
	}
	for _, at := range s.keepalives.due {
		t = earlier(t, at)
	}
	return t
}
