package session

import (
	"strconv"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/newest"
	"reseat/gateway/replay"
	"reseat/gateway/wire"
)

// This file lets newer messages replace older ones of the same key, while they wait for a client that is away or
// slow: --newest, protocol section 3.2. What must hold:
//
//   - Messages that no rule matches come exactly once. Of each key the newest does.
//   - Numbers stay: `skip` tells the client how many were replaced, where they stood.
//   - What a connection may have begun to send is not replaced while it lives.
//   - A client that keeps up costs nothing: no message is looked at.

const (
	// newestBacklog is how much may wait unsent for an attached client before messages are replaced.
	newestBacklog = 64 << 10
	// Messages look like states where a client was away for noticeAfter, and this many of them are looked at, this much of each.
	noticeAfter   = 3 * time.Second
	noticeMost    = 200
	noticePayload = 4 << 10
	// keyCost is about what a key takes up in an index beside its bytes.
	keyCost = 64
)

// states is what a session knows of replaced messages. Few sessions have it.
type states struct {
	// newest is the index: the newest message of each key. It lives from a detach, or from when an attached client lags,
	// until the client has caught up; nil: no message is replaced now.
	newest  map[string]state
	size    int         // of the index, in bytes, as charged to the store
	sent    replay.Mark // messages up to here may have been sent to the attached client
	noticed string      // as StatesNoticed says it
	payload []byte      // reused
	key     []byte      // reused

	// Of replaced messages that the replay buffer does not hold any more, though the client may lack them: they were dropped,
	// or the client has a part of their run.
	spans  []span // exactly these, oldest first,
	later  uint64 // and so many of those that were never sent: no client can state to have one
	stated stated
}

// A state is the newest message of its key.
type state struct {
	n      uint64
	stored int64 // payload in the replay buffer
}

// A span is the messages after from, up to to.
type span struct{ from, to uint64 }

// stated is what the hello of a generation has said about spans: a client that took it counts the messages up to lost as
// lost, and those after it, up to to, as skipped.
type stated struct{ gen, lost, to uint64 }

// setReplacing notes whether messages may be replaced, after a change of the rules or of the client.
func (s *Session) setReplacing() {
	if s.replacing = s.takesSkips && s.cfg.Newest != nil; (s.replacing || s.ring.Replaced() > 0) && s.states == nil {
		s.states = new(states)
	}
}

// dropIndex is called when no message is replaced any more.
func (s *Session) dropIndex() {
	if x := s.states; x != nil && x.newest != nil {
		s.cfg.Store.Charge(-x.size)
		x.newest, x.size, x.payload, x.key = nil, 0, nil, nil
	}
}

// unsent returns the end of what the attached client may have been sent; of all that it has acked, if there is none.
func (s *Session) unsent() replay.Mark {
	if s.att == nil {
		return s.ring.Base()
	}
	return s.ring.Boundary(s.att.mark, s.att.begun())
}

// noteState is called for each new message while s.replacing; from is where it begins.
func (s *Session) noteState(from uint64) {
	x, a := s.states, s.att
	switch {
	case x.newest == nil && a != nil && s.ring.Last().Off <= a.handed()+newestBacklog:
		return
	case x.newest == nil:
		s.index(s.unsent())
	case a != nil && a.handed() >= from: // it has caught up
		s.dropIndex()
		return
	default:
		if a != nil && x.sent.Off != a.begun() {
			x.follow(s, a)
		}
		s.classify(from, s.ring.Last(), s.scan.stored)
	}
	if s.ring.Wasteful() {
		s.compact(s.unsent())
	}
	if len(x.newest) > 2*s.ring.Messages()+64 {
		x.prune(s)
	}
}

// follow moves sent to where the client is now. A write that stops short moves it back.
func (x *states) follow(s *Session, a *Attachment) {
	from := x.sent
	if from.Off > a.begun() {
		from = a.mark
	}
	x.sent = s.ring.Boundary(from, a.begun())
}

// index makes the index of the messages behind a mark, and replaces those of which there is a newer one.
func (s *Session) index(from replay.Mark) {
	s.dropIndex()
	s.states.newest, s.states.sent = map[string]state{}, from
	s.ring.Each(from, s.classify)
}

// classify makes a message the newest of its key.
func (s *Session) classify(begin uint64, end replay.Mark, stored int64) {
	x := s.states
	if !s.readKey(begin, stored) {
		return
	}
	old, known := x.newest[string(x.key)]
	switch {
	case !known:
		x.size += len(x.key) + keyCost
		s.cfg.Store.Charge(len(x.key) + keyCost)
	case old.n > max(x.sent.N, s.ring.Base().N):
		s.ring.Replace(old.n, old.stored)
		s.stats.Skipped++
	}
	x.newest[string(x.key)] = state{end.N, stored}
}

// readKey reads the key of a message. It reports false if no rule matches.
func (s *Session) readKey(begin uint64, stored int64) (ok bool) {
	x, rules := s.states, s.cfg.Newest
	p := s.ring.Payload(begin, begin)
	text := p.Op == frame.Text
	x.payload = p.Append(x.payload[:0], int(min(int64(rules.Need(text, stored))+1, p.Left()))) // one more for an escaping DLE
	head := x.payload
	if text && len(head) > 0 && head[0] == wire.DLE {
		head, stored = head[1:], stored-1
	}
	x.key, ok = rules.AppendKey(x.key[:0], text, head, int64(len(head)) == stored)
	if cap(x.payload) > maxControl { // few messages are so large
		x.payload = nil
	}
	return ok
}

// noticeStates looks whether most of what waits for a client that was away are states, though no rule says so.
func (s *Session) noticeStates(away time.Duration) {
	if s.cfg.Newest != nil || !s.cfg.Resumable || away < noticeAfter {
		return
	}
	var list []newest.Sample
	s.ring.Each(s.ring.Base(), func(begin uint64, _ replay.Mark, stored int64) {
		if len(list) == noticeMost {
			return
		}
		var m newest.Sample
		p := s.ring.Payload(begin, begin)
		m.Text, m.Payload = p.Op == frame.Text, p.Append(nil, int(min(stored, noticePayload)))
		if m.Text && stored > 0 && m.Payload[0] == wire.DLE {
			m.Payload = m.Payload[1:]
		}
		list = append(list, m)
	})
	match, n := newest.Suggest(list)
	if match == "" || time.Duration(n)*time.Second < away { // less than one a second
		return
	}
	if s.states == nil {
		s.states = new(states)
	}
	s.states.noticed = "state=" + match
	s.emit(Event{Kind: StatesNoticed, Detail: s.states.noticed})
}

// prune forgets messages that nothing can replace any more.
func (x *states) prune(s *Session) {
	for key, m := range x.newest {
		if m.n <= max(x.sent.N, s.ring.Base().N) {
			delete(x.newest, key)
			x.size -= len(key) + keyCost
			s.cfg.Store.Charge(-len(key) - keyCost)
		}
	}
}

// compact frees the memory of replaced messages behind the mark from, where nothing is being sent, and moves the offsets
// that are kept of what lies there.
func (s *Session) compact(from replay.Mark) {
	if !s.ring.Compactable() {
		return
	}
	if s.sentOff > from.Off { // on an earlier connection: the offset will no longer say how many messages
		before, _ := s.ring.Around(s.ring.Base(), min(s.sentOff, s.ring.Last().Off))
		s.sentN = max(s.sentN, before.N)
	}
	moved := s.ring.Compact(from)
	if moved == nil {
		return
	}
	s.sentOff = min(s.sentOff, from.Off)
	s.large = moved(s.large)
	if a := s.att; a != nil {
		a.catchUp = moved(a.catchUp)
		for i := range a.news {
			a.news[i].at = moved(a.news[i].at)
		}
		s.states.sent = from
	}
}

// releaseUpTo releases the messages up to n, which the client has, and all of a run that contains n.
func (s *Session) releaseUpTo(n, within uint64) bool {
	before := s.ring.Base().N
	if !s.ring.Ack(n, within) {
		return false
	}
	if base := s.ring.Base().N; base > max(n, before) {
		s.states.add(span{n, base}, base)
	}
	return true
}

// add adds replaced messages to those that the replay buffer does not hold any more; those up to sent may have been sent.
func (x *states) add(m span, sent uint64) {
	exact := span{m.from, min(m.to, max(sent, m.from))}
	x.later += m.to - exact.to
	switch last := len(x.spans) - 1; {
	case exact.from == exact.to:
	case last >= 0 && x.spans[last].to == exact.from:
		x.spans[last].to = exact.to
	default:
		x.spans = append(x.spans, exact)
	}
}

// after returns how many of them a client lacks that has the messages up to n.
func (x *states) after(n uint64) uint64 {
	if x == nil {
		return 0
	}
	count := x.later
	for _, m := range x.spans {
		if m.to > n {
			count += m.to - max(m.from, n)
		}
	}
	return count
}

// skippedAfter returns how many replaced messages a client lacks that has the messages up to n.
func (s *Session) skippedAfter(n uint64) uint64 { return s.states.after(n) + s.ring.ReplacedAfter(n) }

// tookHello is called once the client is known to have taken the hello of a generation.
func (s *Session) tookHello(gen uint64) {
	x := s.states
	if x == nil || x.stated.gen == 0 || x.stated.gen != gen {
		return
	}
	t := x.stated
	list := []span{{t.lost, t.to}}
	for _, m := range x.spans {
		if m.to > t.to {
			list = append(list, span{max(m.from, t.to), m.to})
		}
	}
	x.spans, x.stated = list, stated{}
}

// setNewest is called when the rules have changed.
func (s *Session) setNewest() {
	s.compact(s.unsent())
	s.dropIndex()
	if s.setReplacing(); s.replacing && s.state == Detached {
		s.index(s.ring.Base())
	}
}

// replaceAll replaces what it can for a client that attaches and has all up to Base.
func (s *Session) replaceAll() {
	s.setReplacing()
	if s.replacing && (s.states.newest == nil || s.att != nil) {
		s.index(s.ring.Base())
	}
	s.compact(s.ring.Base())
	s.dropIndex()
}

// renumber adds by to the numbers of all messages.
func (x *states) renumber(by uint64) {
	if x == nil {
		return
	}
	for i := range x.spans {
		x.spans[i].from += by
		x.spans[i].to += by
	}
	for key, m := range x.newest {
		x.newest[key] = state{m.n + by, m.stored}
	}
	x.sent.N, x.stated = x.sent.N+by, stated{}
}

// tellSkipped has `skip` say how many messages up to Base were replaced. The hello of a has stated that so many
// after n were lost.
func (s *Session) tellSkipped(a *Attachment, n, lost uint64) {
	x, base := s.states, s.ring.Base().N
	if x == nil {
		return
	}
	x.stated = stated{}
	if x.later > 0 { // from now on a client may state any number up to base
		x.spans = append(x.spans, span{base - x.later, base})
		x.later = 0
	}
	if skipped := base - n - lost; skipped > 0 {
		a.ctl = wire.Append(a.ctl, wire.VerbSkip, strconv.FormatUint(skipped, 10))
		x.stated = stated{a.gen, n + lost, base}
	}
	for len(x.spans) > 0 && x.spans[0].to <= n {
		x.spans = x.spans[1:]
	}
}
