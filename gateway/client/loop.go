package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"reseat/gateway/wire"
)

// The times of reseat.v1, and those that it leaves to the client.
const (
	helloTimeout       = 5 * time.Second        // section 2: without hello by then, the server does not speak reseat.v1
	resumeHelloTimeout = 16 * time.Second       // section 2: at least 15 s after the 101
	connectTimeout     = 10 * time.Second       // timeout for the 101 of a first connection, or of a move
	minResumeTimeout   = 4 * time.Second        // the same for a resume, at least
	maxResumeTimeout   = 15 * time.Second       // the same for a resume on a slow connection, at most
	ackWanted          = 500 * time.Millisecond // with data that is sent anyway, once an ack has waited so long: one read less for the gateway
	ackTime            = 900 * time.Millisecond // and alone after this, which leaves 100 ms of the second for the way
	closeTimeout       = 2 * time.Second        // between end or close and the Close frame
	byeTimeout         = 10 * time.Second       // section 5: what the gateway gives the game server after bye
	goodAfter          = 5 * time.Second        // a connection that lasted this long was useful

	ackMessages, ackBytes = 32, 64 << 10 // section 5: how much may come before an ack is due
)

// A loop is the goroutine that owns a session: every event comes to it over a channel,
// and no other goroutine touches its state. It has at most two links: live, which has
// its hello, and attempt, which has not. Events of any other link are ignored.
type loop struct {
	*Conn
	ctx   context.Context
	links sync.WaitGroup

	live, attempt *link
	// hellos counts them. abandoned is the count when an attempt last ended without hello
	// or refusal: it may have reached the gateway, or may yet.
	hellos, abandoned int
	current           wire.Hello // the newest, with what token and grace have changed since

	// Downward. taken is the newest number there is; what of it was not handed over
	// is in the inbox.
	taken   uint64
	inbox   []message
	partial *parts    // of message taken+1, if some has come
	owed    int64     // bytes handed over since the last ack
	out     outbox    // upward
	upload  upload    // of live
	bye     *farewell // set by Close

	// Reconnecting.
	pacer   pacer
	dropped time.Time
	tried   bool // an attempt was made since
	moveBy  time.Time

	// Silence. While suspected, OnDetach has reported that live is lost, and
	// resumes run beside it. spoke says that live was heard meanwhile, but after the
	// attempt had its 101.
	silence          silence
	suspected, spoke bool
	lastLife         time.Time     // last sign of life before the loss that OnDetach reported
	answered         time.Time     // when a gateway last refused a resume
	slowest          time.Duration // longest time to a 101 so far
	slow             int           // attempts in a row that reached a server but timed out before the 101

	lost   bool // the game server, as OnUpstream has said
	alarms alarms
	due    time.Time // when the loop planned to run at the latest; zero: never
	done   bool
}

// alarms are the times when something is due; zero is never.
type alarms struct {
	attempt time.Time // the attempt times out
	pace    time.Time // the next attempt is due
	ack     time.Time // an ack is due
	part    time.Time // an answer to parts is due
	closing time.Time // the wait for a Close frame times out
	move    time.Time // a requested move is due
	alive   time.Time // a ping in place of a withheld pong is due
}

func newLoop(c *Conn, ctx context.Context) *loop {
	return &loop{Conn: c, ctx: ctx, abandoned: -1, current: wire.Hello{Token: c.opts.Token}}
}

// run runs the loop until the session ends.
func (p *loop) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	p.open()
	for !p.done {
		p.woke(time.Now())
		p.pump()
		timer.Reset(p.sleep(time.Now()))
		deliver, head := p.deliverNext()
		select {
		case e := <-p.events:
			p.woke(time.Now())
			p.handle(e)
		case deliver <- head:
			p.handedOver(head)
		case m := <-p.acceptWrites():
			p.out.add(m)
		case f := <-p.closes:
			p.farewell(f)
		case <-p.drops:
			if p.live != nil {
				p.lose(errDropped, 0)
			}
		case <-timer.C:
			p.woke(time.Now())
			p.runDue(time.Now())
		case <-p.ctx.Done():
			p.finish(errCut)
		}
	}
	p.leave()
}

// leave waits for all goroutines, and keeps the unread messages for Read.
func (p *loop) leave() {
	p.cut()
	p.links.Wait()
	if !errors.Is(p.err, ErrClosed) {
		p.rest = p.inbox
	}
	close(p.over)
}

// deliverNext returns the channel to Read and the oldest message, nil if there is none.
func (p *loop) deliverNext() (chan<- message, message) {
	if len(p.inbox) == 0 {
		return nil, message{}
	}
	return p.deliver, p.inbox[0]
}

// acceptWrites returns the channel from Write, nil while the window is full.
func (p *loop) acceptWrites() <-chan message {
	if p.hellos == 0 || p.bye != nil || !p.out.room(p.current.Limits) {
		return nil
	}
	return p.writes
}

func (p *loop) finish(err error) {
	p.err, p.done = err, true
}

// farewell starts the end that the application asked for.
func (p *loop) farewell(f farewell) {
	p.bye = &f
	p.inbox, p.owed = nil, 0
	if p.live != nil {
		p.answer(p.live)
	}
}

// handed returns the number of the newest message that was delivered.
func (p *loop) handed() uint64 {
	if len(p.inbox) > 0 {
		return p.inbox[0].number - 1
	}
	return p.taken
}

// ---- connections

// open makes an attempt: the first, or a resume.
func (p *loop) open() {
	ctx, cancel := context.WithCancel(p.ctx)
	l := &link{
		token: p.current.Token, stated: p.handed(), held: p.held(), settled: p.out.received, sent: p.out.handed, route: p.current.Route,
		born: time.Now(), acked: -1, cancel: cancel, write: make(chan frame, 1),
	}
	p.attempt, p.tried = l, true
	p.alarms.pace = time.Time{}
	p.alarms.attempt = l.born.Add(p.attemptTimeout())
	p.links.Go(func() { l.run(ctx, p.Conn) })
}

// handle handles an event of a link.
func (p *loop) handle(e event) {
	l := e.link
	if l != p.live && l != p.attempt {
		return
	}
	switch e.kind {
	case opened:
		l.opened = true
		took := time.Since(l.born)
		p.slow, p.slowest = 0, max(p.slowest, took)
		p.silence.opened(took)
		p.alarms.attempt = time.Now().Add(helloTimeout)
		if l.token != "" {
			p.alarms.attempt = time.Now().Add(resumeHelloTimeout)
		}
	case wrote:
		if l.busy = false; l.blocked.Swap(false) && l == p.live {
			p.silence.clogged()
		}
	case arrived:
		if l.verdict == nil {
			p.arrived(l, e)
		}
	case flowing:
		p.spokeUp(l)
	case ended:
		p.linkEnded(l, e.err)
	}
}

func (p *loop) linkEnded(l *link, err error) {
	switch {
	case l == p.attempt:
		p.abandon()
		p.attemptFailed(l, err, 0)
	case l.verdict != nil:
		p.finish(&l.verdict.CloseError)
	case l.bye && isClose(err, p.bye.code):
		p.finish(ErrClosed)
	default:
		p.lose(err, 0)
	}
}

// broken ends a link on which the gateway violated the protocol.
func (p *loop) broken(l *link, err error) {
	if l == p.attempt {
		p.abandon()
		p.attemptFailed(l, err, 0)
		return
	}
	l.useful = false
	p.lose(err, 0)
}

// abandon gives up the attempt. The gateway may have accepted it nevertheless.
func (p *loop) abandon() {
	p.attempt.cancel()
	p.abandoned, p.attempt = p.hellos, nil
	p.alarms.attempt = time.Time{}
}

// ---- receiving

func (p *loop) arrived(l *link, e event) {
	control := isControl(e.typ, e.data)
	if l == p.live {
		p.silence.arrived(e.began, e.at, !control)
	}
	switch {
	case control:
		p.control(l, string(e.data[1:]), e.at)
	case l.parts != nil:
		p.part(l, e)
	default:
		p.data(l, e.typ, unescape(e.typ, e.data))
	}
	p.spokeUp(l)
}

func (p *loop) data(l *link, typ MessageType, data []byte) {
	if l.hello == 0 {
		p.noHello(l)
		return
	}
	l.last++
	if l.last > p.taken {
		p.taken = l.last
		l.useful = true
		p.silence.works()
		if p.bye == nil {
			p.inbox = append(p.inbox, message{typ, data, l.last})
			return
		}
	}
	p.addOwed(int64(len(data)))
}

// skip counts messages that newer ones have replaced as if they had come.
func (p *loop) skip(l *link, n uint64) {
	if l.parts != nil {
		p.brokenParts(l, l.parts.bytes)
		return
	}
	l.last += n
	if l.last > p.taken {
		skipped := l.last - p.taken
		p.taken = l.last
		l.useful = true
		p.silence.works()
		if p.opts.OnSkip != nil {
			p.opts.OnSkip(skipped)
		}
	}
	p.addOwed(0)
}

// noHello ends an attempt on which something else came before hello.
func (p *loop) noHello(l *link) {
	err := fmt.Errorf("%w: no hello", errBroken)
	if p.hellos == 0 && l.token == "" {
		err = ErrNotReseat
	}
	p.broken(l, err)
}

func (p *loop) control(l *link, text string, at time.Time) {
	w, err := parseControl(text)
	switch {
	case err != nil && l.hello == 0 && p.hellos == 0 && l.token == "":
		p.noHello(l)
		return
	case err != nil:
		p.broken(l, err)
		return
	case l.hello == 0 && w.verb != wire.VerbHello && w.verb != wire.VerbClose:
		if w.verb != "" || l.token == "" {
			p.noHello(l)
		}
		return
	}
	switch w.verb {
	case wire.VerbHello:
		p.hello(l, w.hello)
	case wire.VerbAck:
		if !p.out.ack(w.number) {
			p.broken(l, fmt.Errorf("%w: ack %d, sent only %d", errBroken, w.number, p.out.cursor))
			return
		}
		l.useful = true
		p.silence.settle(p.out.unacked())
	case wire.VerbToken:
		p.current.Token = w.text
		p.token.Store(&w.text)
	case wire.VerbGrace:
		p.current.Grace = int64(min(w.number, math.MaxInt64))
	case wire.VerbPing:
		p.silence.works()
		l.waiting = &pong{w.text, l.last}
		if p.answer(l); l.waiting != nil {
			p.alive(time.Now())
		}
	case wire.VerbPong:
		p.silence.pong(w.text, at)
		p.silence.settle(p.out.unacked())
	case wire.VerbMove:
		p.moveBy = time.Now().Add(w.within)
		p.alarms.move = time.Now().Add(part(w.within))
	case wire.VerbParts:
		p.beginParts(l, w.part)
	case wire.VerbPart:
		p.partAnswered(l, int64(w.number), at)
	case wire.VerbSkip:
		p.skip(l, w.number)
	case wire.VerbUpstream:
		p.upstream(w.lost)
	case wire.VerbEnd, wire.VerbClose:
		p.verdict(l, w.verdict)
	}
}

// upstream notifies the application that the game server was lost, or is back. A resume may bring
// what is known already.
func (p *loop) upstream(lost bool) {
	if p.lost != lost && p.opts.OnUpstream != nil {
		p.opts.OnUpstream(lost)
	}
	p.lost = lost
}

func (p *loop) hello(l *link, h wire.Hello) {
	failover := h.Moved == wire.MovedFailover
	outdated := failover && (p.handed() != l.stated || p.out.received != l.settled) // section 5.6: its numbers have been used since
	var partial wire.Partial
	if h.Partial != nil {
		partial = *h.Partial
	}
	if l.hello > 0 || p.current.Session != "" && h.Session != p.current.Session || outdated || !p.out.admits(h.Received, partial.Up) ||
		partial.Down != 0 && partial.Down != l.held {
		p.broken(l, fmt.Errorf("%w: hello", errBroken))
		return
	}
	if failover { // numbers restart after what the handshake stated
		p.inbox, p.taken = nil, l.stated
	}
	first, now := p.hellos == 0, time.Now()
	resumed := Resumed{Replay: h.Replay, Skipped: h.Skipped, Away: p.replaced(now), Moved: h.Moved}
	p.live, p.attempt, p.alarms = l, nil, alarms{}
	p.silence.attach(now, milliseconds(h.Answer), milliseconds(h.Heartbeat))
	p.hellos++
	p.current, l.hello, l.since = h, p.hellos, now
	p.token.Store(&h.Token)
	l.last = l.stated + h.Lost
	if l.last > p.taken {
		resumed.Lost = l.last - p.taken
		p.taken = l.last
	}
	p.maxMessage.Store(h.Limits.MessageBytes)
	l.resumes, l.from = h.Partial != nil, partial.Down
	p.upload.start(partial.Up)
	if l.from == 0 {
		p.partial = nil
	}
	l.acked = int64(l.last)
	l.send(wire.VerbAck, strconv.FormatUint(l.last, 10)) // section 5: at once, whatever was handed over
	p.owed = 0
	p.out.rewind(h.Received)
	p.announce(first, h, resumed)
}

// announce notifies the application.
func (p *loop) announce(first bool, h wire.Hello, r Resumed) {
	if first {
		p.session, p.subprotocol = h.Session, h.Protocol
		close(p.ready)
		return
	}
	if p.opts.OnResume != nil {
		p.opts.OnResume(r)
	}
}

// ---- acks

// handedOver records that the oldest message was delivered.
func (p *loop) handedOver(m message) {
	p.inbox[0] = message{}
	p.inbox = p.inbox[1:]
	if len(p.inbox) == 0 {
		p.inbox = nil
	}
	p.addOwed(int64(len(m.data)))
	if p.live != nil {
		p.answer(p.live)
	}
}

// addOwed counts bytes that may be acked, and acks if that is due.
func (p *loop) addOwed(bytes int64) {
	p.owed += bytes
	if n, ok := p.ackable(); ok && (int64(n)-p.live.acked >= ackMessages || p.owed >= ackBytes) {
		p.ack()
	} else if ok && p.alarms.ack.IsZero() {
		p.alarms.ack = time.Now().Add(ackTime)
	}
}

// ackable returns how far the live connection may be acked, and whether that is new.
// While a resume that stated N is in flight, an older connection must not be acked
// beyond N (protocol section 5).
func (p *loop) ackable() (n uint64, ok bool) {
	if p.live == nil || p.live.bye || p.live.verdict != nil {
		return 0, false
	}
	n = min(p.handed(), p.live.last)
	if p.attempt != nil {
		n = min(n, p.attempt.stated)
	}
	return n, int64(n) > p.live.acked
}

func (p *loop) ack() {
	p.alarms.ack = time.Time{}
	if n, ok := p.ackable(); ok {
		p.live.acked, p.owed = int64(n), 0
		p.live.send(wire.VerbAck, strconv.FormatUint(n, 10))
	}
}

// ackAlong queues an ack that has waited for a while before data that is about to be sent.
func (p *loop) ackAlong(l *link) {
	if p.alarms.ack.IsZero() || l.bye || time.Until(p.alarms.ack) > ackTime-ackWanted {
		return
	}
	_, sends := p.out.ready(p.current.Limits)
	if _, ok := p.ackable(); sends && ok {
		p.ack()
	}
}

// answer answers the newest ping once everything before it was delivered, because a
// pong promises that those messages will be acked soon.
func (p *loop) answer(l *link) {
	if l.waiting == nil || l != p.live || l.bye || p.handed() < l.waiting.after {
		return
	}
	p.answerParts(time.Now())
	l.send(wire.VerbPong, l.waiting.arg)
	l.waiting, p.alarms.alive = nil, time.Time{}
}

// alive shows the gateway that the client lives although it withholds a pong: it sends
// a ping for each ping that it cannot answer yet, and once per heartbeat.
func (p *loop) alive(now time.Time) {
	if p.talking() {
		p.ping(now)
		p.alarms.alive = now.Add(max(p.heartbeat(), time.Second))
	}
}

// ---- sending

// pump gives the live link's writer the next frame: control messages first, then data,
// and bye after all data.
func (p *loop) pump() {
	l := p.live
	if l == nil || l.busy || l.verdict != nil {
		return
	}
	p.ackAlong(l)
	if len(l.words) > 0 {
		f := l.words[0]
		l.words = slices.Delete(l.words, 0, 1)
		l.give(f)
		return
	}
	if l.bye {
		return
	}
	f, ok, asks := p.upload.next(p.current.PartBytes, time.Now())
	large := ok
	if !ok && p.upload.data == nil {
		f, ok = p.nextMessage(l)
	}
	switch {
	case ok:
		p.silence.data(time.Now())
		l.give(f)
		if asks {
			l.send(wire.VerbPing, p.silence.prompt())
		}
		if large {
			p.silence.clogged()
		}
	case p.bye != nil && p.out.drained() && p.upload.data == nil:
		p.sendBye(l)
	}
}

// nextMessage returns the next message, or what announces it if it is sent in parts.
func (p *loop) nextMessage(l *link) (frame, bool) {
	e, ok := p.out.next(p.current.Limits)
	if !ok {
		return frame{}, false
	}
	data := escape(e.typ, e.data)
	if size := p.current.PartBytes; l.resumes && size > 0 && int64(len(data)) > size {
		return p.upload.begin(e.typ, data), true
	}
	return frame{typ: e.typ, data: data}, true
}

func (p *loop) sendBye(l *link) {
	l.bye = true
	p.alarms.closing = time.Now().Add(byeTimeout + 2*p.heartbeat())
	arg, _ := json.Marshal(wire.Bye{Code: p.bye.code, Reason: p.bye.reason})
	l.give(frame{wire.VerbBye, MessageText, append([]byte(dle+wire.VerbBye+" "), arg...)})
}
