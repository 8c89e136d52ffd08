package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"reseat/gateway/frame"
	"reseat/gateway/policy"
)

// Each library's client speaks reseat.v1 and is disconnected repeatedly. The protocol
// is implemented once, in returner, from docs/protocol.md; a library only reads and
// writes messages.

const (
	lastUp   = "that is enough"
	lastDown = "that was all"
	ahead    = 64 // max unacked messages of a returner
	ackEvery = 16 // received messages per ack
)

// A returner is a client that resumes. It outlives its connections.
type returner struct {
	token    string
	received uint64 // the game server's messages received
	made     uint64 // its own messages
	acked    uint64 // of those, acked
	cursor   uint64 // the newest sent on the current connection
	last     uint64 // the number of lastUp, 0 until it is made
	over     bool   // lastDown has arrived

	hellos          int
	replayed        uint64
	resent          uint64
	verb            string // of the newest control message
	code            int    // of the newest close or end
	heardSuperseded bool
}

func (p *returner) offer() []string {
	if p.token == "" {
		return []string{"chat.v1", "chat.v2", "reseat.v1"}
	}
	return []string{"chat.v1", "chat.v2", "reseat.v1", "reseat.token." + p.token, fmt.Sprint("reseat.received.", p.received)}
}

// messageOf returns message n of a direction: text and binary of many sizes, some
// empty, some that begin like a control message.
func messageOf(up bool, n uint64) (op byte, p []byte) {
	if n%41 == 0 {
		return byte(frame.Text + n%2), nil
	}
	p = bytes.Repeat([]byte{0x10}, int(n%5)/3)
	p = fmt.Appendf(p, "%t %d ", up, n)
	size := int(n * n % 700)
	if n%97 == 0 {
		size = 70000
	}
	return byte(frame.Text + n%3/2), append(p, hiss[n%100:][:size]...)
}

// hiss is barely compressible, so that byte positions are about the same with
// compression.
var hiss = func() []byte {
	b := []byte(noise(70100))
	for i := range b {
		b[i] = ' ' + b[i]%95
	}
	return b
}()

// wantMessage compares a received message with message n of a direction.
func wantMessage(up bool, n uint64, op byte, p []byte) error {
	if wantOp, want := messageOf(up, n); op != wantOp || !bytes.Equal(p, want) {
		return fmt.Errorf("message %d is %d bytes %.30q with opcode %d, want %d bytes %.30q with %d", n, len(p), p, op, len(want), want, wantOp)
	}
	return nil
}

// take processes a message and returns the answers.
func (p *returner) take(op byte, b []byte) (answers []string, err error) {
	if op == frame.Text && len(b) > 0 && b[0] == 0x10 {
		if len(b) == 1 || b[1] != 0x10 {
			verb, arg, _ := strings.Cut(string(b[1:]), " ")
			return p.control(verb, arg)
		}
		b = b[1:]
	}
	p.received++
	if p.over = string(b) == lastDown; !p.over {
		err = wantMessage(false, p.received, op, b)
	}
	if p.over || p.received%ackEvery == 0 || len(b) > 64<<10 {
		answers = []string{fmt.Sprint("ack ", p.received)}
	}
	return answers, err
}

func (p *returner) control(verb, arg string) (answers []string, err error) {
	p.verb = verb
	switch verb {
	case "hello":
		return p.hello(arg)
	case "ack":
		n, err := strconv.ParseUint(arg, 10, 53)
		if err != nil || n > p.made {
			return nil, fmt.Errorf("ack %q of %d: %w", arg, p.made, err)
		}
		p.acked = max(p.acked, n)
	case "ping":
		return []string{fmt.Sprint("ack ", p.received), strings.TrimRight("pong "+arg, " ")}, nil
	case "token", "end", "close":
		var a struct {
			Token string
			Code  int
		}
		err = json.Unmarshal([]byte(arg), &a)
		p.code = a.Code
		if a.Token != "" {
			p.token = a.Token
		}
	}
	return nil, err
}

func (p *returner) hello(arg string) ([]string, error) {
	var h struct {
		Token, Protocol        string
		Resumed                bool
		Received, Lost, Replay uint64
	}
	if err := json.Unmarshal([]byte(arg), &h); err != nil {
		return nil, err
	}
	if h.Resumed != (p.token != "") || h.Lost != 0 || h.Protocol != "chat.v2" || h.Received < p.acked || h.Received > p.made {
		return nil, fmt.Errorf("hello %s to a client that made %d messages, %d of them acked", arg, p.made, p.acked)
	}
	p.resent += p.made - h.Received
	p.token, p.cursor = h.Token, h.Received
	p.replayed += h.Replay
	p.hellos++
	return []string{fmt.Sprint("ack ", p.received)}, nil
}

// step reads one message, answers it, and sends a few more.
func (p *returner) step(c endpoint) error {
	op, b, err := c.Read()
	if err != nil {
		return connError{err}
	}
	answers, err := p.take(op, b)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if err := c.Write(frame.Text, []byte("\x10"+a)); err != nil {
			return connError{err}
		}
	}
	for range 3 {
		if err := p.sendOne(c); err != nil {
			return connError{err}
		}
	}
	return nil
}

// A connError is the end of a connection; any other error is a fault of the gateway.
type connError struct{ error }

// sendOne sends the next message, if allowed.
func (p *returner) sendOne(c endpoint) error {
	n := p.cursor + 1
	if p.hellos == 0 || n > p.acked+ahead || p.last > 0 && n > p.last {
		return nil
	}
	p.cursor = n
	p.made = max(p.made, n)
	op, b := messageOf(true, n)
	switch {
	case n == p.last:
		op, b = frame.Text, []byte(lastUp)
	case n%13 == 0 && len(b) > 3 && b[0] != 0x10:
		return c.WriteParts(op, b[:1], b[1:3], b[3:])
	case op == frame.Text && len(b) > 0 && b[0] == 0x10:
		b = append([]byte{0x10}, b...)
	}
	return c.Write(op, b)
}

// A ledger is the game server's record of one returner.
type ledger struct {
	enough chan struct{} // closed when lastUp has arrived
	came   chan struct{} // one slot: something has arrived
	took   atomic.Uint64
	sent   uint64
	closed string
}

func newLedger() *ledger {
	return &ledger{enough: make(chan struct{}), came: make(chan struct{}, 1)}
}

// goOn waits until another message may be sent: three for each received, and some
// without a request. It returns false when enough were sent.
func (l *ledger) goOn() bool {
	for {
		select {
		case <-l.enough:
			return false
		default:
		}
		if l.sent < 300+3*l.took.Load() {
			return true
		}
		select {
		case <-l.came:
		case <-l.enough:
		}
	}
}

// send sends messages until enough were sent.
func (l *ledger) send(game endpoint) error {
	for l.goOn() {
		l.sent++
		if err := game.Write(messageOf(false, l.sent)); err != nil {
			return fmt.Errorf("game server: send %d: %w", l.sent, err)
		}
	}
	l.sent++
	return game.Write(frame.Text, []byte(lastDown))
}

// read checks what arrives, up to the Close.
func (l *ledger) read(game endpoint) error {
	for over := false; ; {
		op, b, err := game.Read()
		switch {
		case err != nil:
			l.closed = closeOf(err)
			return nil
		case over:
			return fmt.Errorf("game server: %.30q came behind the last message", b)
		case string(b) == lastUp:
			over = true
			l.took.Add(1)
			close(l.enough)
			continue
		}
		if err := wantMessage(true, l.took.Add(1), op, b); err != nil {
			return fmt.Errorf("game server: %w", err)
		}
		select {
		case l.came <- struct{}{}:
		default:
		}
	}
}

// visit runs one connection of a returner, up to the snip that ends it.
func (a *arena) visit(p *returner, dial dialFunc, s snip, old endpoint) (left endpoint, err error) {
	a.offer = p.offer()
	conn := a.snipNext(s)
	c, err := dial(a)
	if err != nil && conn.struck() {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	a.t.Cleanup(func() { c.CloseNow() })
	p.verb = ""
	for from := p.received; ; {
		err := p.step(c)
		switch {
		case errors.As(err, &connError{}) && conn.struck():
			return nil, nil
		case err != nil:
			return nil, err
		case old != nil && p.verb == "hello":
			if err := p.readOld(old); err != nil {
				return nil, err
			}
			old = nil
		}
		switch taken := int(p.received - from); {
		case s.kind == snipClose && taken >= s.after && p.received%ackEvery == 1: // one message after its ack
			c.Close(1001, "") // the answer may follow much other data, which the client ignores
			return nil, nil
		case s.kind == snipLeftOpen && taken == s.after:
			return c, nil
		}
	}
}

// readOld reads a connection that was left open: it gets 4409, and other messages on it
// are ignored.
func (p *returner) readOld(c endpoint) error {
	nobody := &returner{token: p.token, received: p.received, made: p.made}
	for {
		op, b, err := c.Read()
		switch {
		case err == nil && op == frame.Text && len(b) > 1 && b[0] == 0x10 && b[1] != 0x10:
			nobody.take(op, b)
		case err != nil && (nobody.verb != "close" || nobody.code != 4409):
			return fmt.Errorf("the connection that was left open ended by %q %d: %w", nobody.verb, nobody.code, err)
		case err != nil:
			p.heardSuperseded = true
			return nil
		}
	}
}

// finish uses a connection that is not broken, and sends bye when everything has
// arrived.
func (a *arena) finish(p *returner, dial dialFunc) error {
	a.offer = p.offer()
	a.snipNext(snip{kind: snipClose})
	c, err := dial(a)
	if err != nil {
		return err
	}
	a.t.Cleanup(func() { c.CloseNow() })
	p.last = p.made + 1
	for !p.over || p.acked < p.last {
		if err := p.step(c); err != nil {
			return err
		}
	}
	if err := c.Write(frame.Text, []byte("\x10bye {\"code\":4001,\"reason\":\"enough\"}")); err != nil {
		return err
	}
	for {
		if _, _, err := c.Read(); err != nil {
			if got := closeOf(err); got != "4001 enough" {
				return fmt.Errorf("bye was answered by %q", got)
			}
			return nil
		}
	}
}

// Each library's client is disconnected at every place in the list and resumes, and
// both sides receive every message once and in order.
func TestLibrariesResumeAfterDisconnects(t *testing.T) {
	withEachLibrary(t, func(t *testing.T, dial dialFunc) {
		a := newArena(t, func(p *policy.Policy) { p.BufferMessages = 300 }) // at most this many are replayed at a time
		p, book := new(returner), newLedger()
		ended := make(chan error, 2)
		go func() {
			game := <-a.joined
			go func() { ended <- book.send(game) }()
			ended <- book.read(game)
		}()
		var left endpoint
		var err error
		for _, s := range snips {
			if left, err = a.visit(p, dial, s, left); err != nil {
				t.Fatalf("cut %s, behind message %d: %v", s.where, p.received, err)
			}
		}
		if err := a.finish(p, dial); err != nil {
			t.Fatalf("behind message %d, with %d of %d acked: %v", p.received, p.acked, p.made, err)
		}
		for range 2 {
			reportError(t, <-ended)
		}
		a.wantKept(p, book)
	})
}

// wantKept checks that both records agree, and that enough has happened.
func (a *arena) wantKept(p *returner, book *ledger) {
	a.t.Helper()
	if p.received != book.sent || book.took.Load() != p.made || book.closed != "4001 enough" {
		a.t.Errorf("the game server sent %d and the client has %d; the client made %d and the game server has %d, and was closed by %q",
			book.sent, p.received, p.made, book.took.Load(), book.closed)
	}
	if lostHellos := 4; p.hellos < len(snips)-lostHellos || p.replayed == 0 || p.resent == 0 || !p.heardSuperseded {
		a.t.Errorf("%d hellos, %d messages replayed, %d sent again, 4409 heard: %t", p.hellos, p.replayed, p.resent, p.heardSuperseded)
	}
	select {
	case <-a.joined:
		a.t.Error("the game server has seen a second connection")
	default:
	}
}
