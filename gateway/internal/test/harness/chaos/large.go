//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"reseat/gateway/internal/test/harness/seat"
)

// This file is protocol section 3.1: large messages in parts, which go on where a connection was cut.

const (
	partWithin = 200 * time.Millisecond // an answer follows the oldest unanswered part, at the latest
	partBytes  = 32 << 10               // or so many bytes
	partWindow = 40 << 10               // are sent without an answer
)

// incoming is what has come of a large message.
type incoming struct {
	bytes int
	text  bool
	data  []byte
}

type announced struct {
	Bytes int  `json:"bytes"`
	Text  bool `json:"text"`
	From  int  `json:"from"`
}

// inside is what a tenure knows of the large messages in progress on its connection.
type inside struct {
	in   *incoming // nil: none comes
	from int       // where the next one that comes begins,
	up   int       // and the first that goes

	mu    sync.Mutex
	has   int       // of in
	told  int       // of that, by part
	since time.Time // of the oldest part that was not
	sent  int       // of the message that goes,
	had   int       // and what the gateway has of it
	wake  chan struct{}
}

var errParts = errors.New("parts that are none")

// held returns how much of the message after received has come; p.mu is held.
func (p *player) held() int {
	if p.partial == nil {
		return 0
	}
	return len(p.partial.data)
}

// goesOn compares hello.partial with what the client has stated; p.mu is held.
func (p *player) goesOn(h *seat.Hello, a *arrival) {
	switch {
	case h.Partial == nil || h.Part == 0:
		p.faultLocked("hello has no partial, or no part_bytes")
		h.Partial = &struct{ Down, Up int }{}
		return
	case h.Partial.Down != 0 && h.Partial.Down != a.held, h.Partial.Up < 0:
		p.faultLocked("hello.partial is %v, with %d bytes held", *h.Partial, a.held)
	}
	if h.Partial.Down == 0 {
		p.partial = nil
	} else {
		p.run.count.insideDown.Add(1)
	}
	if h.Partial.Up > 0 {
		p.run.count.insideUp.Add(1)
	}
}

// begins takes `parts`.
func (t *tenure) begins(arg string) {
	p, s := t.p, &t.inside
	var v announced
	err := json.Unmarshal([]byte(arg), &v)
	t.mu.Lock()
	n := t.base + t.came + 1
	t.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.gen != p.current {
		return
	}
	known, m := n <= p.received, p.partial // known: it has come whole on an older connection
	switch {
	case err != nil || !p.end.takesParts() || s.in != nil || v.From != s.from || v.Bytes <= v.From,
		v.From > 0 && !known && (m == nil || m.bytes != v.Bytes || m.text != v.Text || len(m.data) < v.From):
		p.faultLocked("parts %s, from %d expected, %d held", arg, s.from, p.held())
		return
	}
	in := &incoming{v.Bytes, v.Text, make([]byte, v.From, v.Bytes)}
	if v.From > 0 && !known && m != nil {
		copy(in.data, m.data)
	}
	if s.in, s.from = in, 0; !known {
		p.partial = in
	}
	s.mu.Lock()
	s.has, s.told = v.From, v.From
	s.mu.Unlock()
}

// part takes a part; the result has data if it was the last.
func (t *tenure) part(m seat.Message) (whole seat.Message, err error) {
	p, s := t.p, &t.inside
	in := s.in
	p.mu.Lock()
	if t.gen != p.current { // a newer connection goes on with it
		p.mu.Unlock()
		return whole, nil
	}
	if n := len(m.Data); m.Text || n == 0 || n > t.h.Part || len(in.data)+n > in.bytes {
		p.faultLocked("a part of %d bytes, text %v, after %d of %d", n, m.Text, len(in.data), in.bytes)
		err = errParts
	}
	in.data = append(in.data, m.Data...)
	p.mu.Unlock()
	s.mu.Lock()
	if s.has = len(in.data); s.since.IsZero() {
		s.since = time.Now()
	}
	due := s.has-s.told >= partBytes
	s.mu.Unlock()
	if len(in.data) < in.bytes {
		if due {
			t.tell(0)
		}
		return whole, err
	}
	s.mu.Lock()
	s.in, s.since = nil, time.Time{}
	s.mu.Unlock()
	whole = seat.Message{Text: in.text, Data: in.data}
	if in.text && in.data[0] == dle {
		whole.Data = in.data[1:]
	}
	return whole, err
}

const dle = 0x10

// tell says `part` if the oldest part without it is so old.
func (t *tenure) tell(age time.Duration) {
	s := &t.inside
	s.mu.Lock()
	n := s.has
	if s.since.IsZero() || time.Since(s.since) < age {
		s.mu.Unlock()
		return
	}
	s.told, s.since = n, time.Time{}
	s.mu.Unlock()
	t.c.Say(t.ctx, "part", strconv.Itoa(n))
}

// told takes `part`.
func (t *tenure) told(arg string) {
	s := &t.inside
	n, err := strconv.Atoi(arg)
	if err != nil || !t.p.end.takesParts() {
		t.p.fault("part %q", arg)
	}
	s.mu.Lock()
	if n <= s.sent { // else it is about the message before
		s.had = max(s.had, n)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// sendLarge sends message n, in parts if it is large.
func (t *tenure) sendLarge(n uint64, text bool, b []byte) error {
	if !t.p.end.takesParts() {
		return t.c.Send(t.ctx, text, b)
	}
	s, from := &t.inside, 0
	if n == t.h.Received+1 {
		from = s.up
	}
	if text && b[0] == dle {
		b = slices.Concat([]byte{dle}, b)
	}
	if len(b) <= t.h.Part {
		if from > 0 {
			t.p.fault("hello.partial.up is %d, of a message of %d bytes", from, len(b))
		}
		if text && b[0] == dle {
			b = b[1:]
		}
		return t.c.Send(t.ctx, text, b)
	}
	if from >= len(b) {
		t.p.fault("hello.partial.up is %d, of a message of %d bytes", from, len(b))
		from = 0
	}
	s.mu.Lock()
	s.sent, s.had = from, from
	s.mu.Unlock()
	arg, _ := json.Marshal(announced{len(b), text, from})
	err := t.c.Say(t.ctx, "parts", string(arg))
	for err == nil && from < len(b) {
		size := min(t.h.Part, len(b)-from)
		s.mu.Lock()
		room := from == s.had || from+size-s.had <= partWindow
		if room {
			s.sent = from + size
		}
		s.mu.Unlock()
		if !room {
			select {
			case <-s.wake:
			case <-t.ctx.Done():
				err = t.ctx.Err()
			}
			continue
		}
		err = t.c.Send(t.ctx, false, b[from:from+size])
		from += size
	}
	return err
}
