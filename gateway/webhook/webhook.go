// Package webhook posts what happens to sessions to a URL of the operator's,
// signed after the Standard Webhooks specification (version 1.0.0).
//
// It promises: the events of one session arrive in order, each at least once,
// while no more wait than fit and this process lives. Its posts have an id by
// which a receiver knows one that it has had. What is given up is counted, and
// told to the receiver by an event gap. It is a reader of events like any other:
// nobody ever waits for it.
package webhook

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reseat/gateway/events"
)

const (
	// Waiting is how many events may wait; one more drops the oldest.
	Waiting = 8192
	// atOnce is how many posts may be under way, each of another session.
	atOnce = 8
	// mostRefusals is how often a receiver may say of the same event that it is not
	// to its liking, before it is given up.
	mostRefusals = 5
	// patience is how long an event is tried while others may go through.
	patience = 24 * time.Hour
)

// Config is what a Hook needs to be told.
type Config struct {
	// Target takes the posts: http or https. User and password in it are sent as
	// Basic authentication; the log shows neither them nor the query.
	Target  *url.URL
	Secrets *Secrets
	Events  *events.Hub
	// Transport makes the requests. Nil means one of the Hook's own.
	Transport http.RoundTripper
	// Log gets a line when the receiver goes down and when it is back. Nil means
	// slog.Default.
	Log *slog.Logger
}

// A Hook posts the events of a Hub. Its loop owns all of its state; its methods
// may be called by several goroutines at once.
type Hook struct {
	cfg     Config
	poster  poster
	log     *slog.Logger
	reader  *events.Reader
	metrics *metrics
	name    string // of this process, in the ids of its posts

	results chan attempt
	resume  chan struct{} // one slot: post again after a 410
	closing chan struct{}
	once    sync.Once
	abort   context.CancelFunc
	over    chan struct{}

	// The loop's own.
	queue    *queue
	health   health
	underWay int
	off      bool   // 410: nobody wants them
	last     bool   // closing: no pauses, and no more once the receiver is down
	hopeless bool   // closing, and it is
	untold   uint64 // events given up of which no gap has told yet
	gaps     uint64 // how many gaps there were
	warned   bool
}

// Start posts what happens from now on, until Close.
func Start(cfg Config) *Hook {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Transport == nil {
		cfg.Transport = newTransport()
	}
	ctx, abort := context.WithCancel(context.Background())
	h := &Hook{
		cfg: cfg, log: cfg.Log, reader: cfg.Events.Live(), metrics: newMetrics(), name: processName(),
		poster:  poster{cfg.Target, cfg.Transport, cfg.Secrets},
		results: make(chan attempt, atOnce), resume: make(chan struct{}, 1), closing: make(chan struct{}),
		abort: abort, over: make(chan struct{}), queue: newQueue(Waiting),
	}
	go h.run(ctx)
	return h
}

// processName keeps the ids of one process apart from those of another, which may
// post to the same receiver.
func processName() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Reload reads the secrets again, and posts again where the receiver had answered
// 410. On an error the secrets stay as they were.
func (h *Hook) Reload() error {
	select {
	case h.resume <- struct{}{}:
	default:
	}
	return h.cfg.Secrets.Reload(time.Now())
}

// Close takes no more events and posts those that wait, without any pause that is
// still running, until ctx is done or the receiver turns out to be down. It gives
// how many are left then, all of them lost. It may be called again.
func (h *Hook) Close(ctx context.Context) (left int) {
	h.once.Do(func() { close(h.closing) })
	select {
	case <-h.over:
	case <-ctx.Done():
		h.abort()
		<-h.over
	}
	return h.queue.len()
}

// run is the loop.
func (h *Hook) run(ctx context.Context) {
	defer close(h.over)
	defer h.leave()
	timer := time.NewTimer(0)
	defer timer.Stop()
	wake, closing := h.reader.Wake(), h.closing
	for {
		timer.Reset(h.begin(ctx))
		if h.last && h.underWay == 0 && (h.hopeless || h.queue.len() == 0) {
			return
		}
		select {
		case <-wake:
			h.gather()
		case a := <-h.results:
			h.settle(a)
		case <-timer.C:
		case <-h.resume:
			h.off = false
			h.wakeUp()
		case <-closing:
			h.gather()
			h.wakeUp()
			wake, closing, h.last = nil, nil, true
		case <-ctx.Done():
			return
		}
	}
}

// leave ends what is under way, and counts what is left.
func (h *Hook) leave() {
	h.abort()
	h.reader.Close()
	for ; h.underWay > 0; h.underWay-- {
		if a := <-h.results; a.verdict == delivered {
			h.metrics.attempt(a)
			h.metrics.event("delivered", 1)
			h.queue.done(a.line)
		}
	}
	h.metrics.event("unsent", uint64(h.queue.len()))
	h.metrics.waiting.Store(0)
	if t, ok := h.cfg.Transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// wakeUp forgets all pauses.
func (h *Hook) wakeUp() {
	h.health.until = time.Time{}
	h.queue.hurry()
}

// gather takes in all that has happened.
func (h *Hook) gather() {
	list := make([]events.Event, 0, 256)
	for {
		list, _ = h.reader.Next(list[:0])
		if len(list) == 0 {
			break
		}
		for _, e := range list {
			h.take(e)
		}
	}
	h.metrics.waiting.Store(int64(h.queue.len()))
}

func (h *Hook) take(e events.Event) {
	if e.Type == events.Gap {
		return // counted below, by the Reader
	}
	if n := h.reader.Missed(); n > 0 {
		h.giveUp("dropped", n)
	}
	if h.off {
		h.giveUp("gone", 1)
		return
	}
	h.push(&item{Event: e, id: "evt_" + h.name + "_" + strconv.FormatUint(e.ID, 10)})
}

func (h *Hook) push(it *item) {
	if old := h.queue.push(it); old != nil {
		if !h.warned {
			h.log.Warn("webhook.queue_full", "waiting", h.queue.len(), "text", "the receiver is too slow: the oldest events are dropped")
			h.warned = true
		}
		h.drop("dropped", old)
	}
}

// drop gives up an item; a gap is given up for what it stands for, which has been
// counted.
func (h *Hook) drop(result string, it *item) {
	if it.Type == events.Gap {
		h.untold += it.lost
		return
	}
	h.giveUp(result, 1)
}

func (h *Hook) giveUp(result string, n uint64) {
	h.untold += n
	h.metrics.event(result, n)
}

// begin begins as many posts as may be, and gives for how long nothing is to be
// done about those that wait.
func (h *Hook) begin(ctx context.Context) time.Duration {
	const long = time.Hour
	for h.underWay < atOnce && !h.hopeless {
		now := time.Now()
		if !h.health.may(now, h.underWay) {
			if h.underWay > 0 {
				return long // the result comes first
			}
			return h.health.until.Sub(now)
		}
		l, due := h.queue.take(now)
		if l == nil {
			if due.IsZero() {
				return long
			}
			return due.Sub(now)
		}
		h.underWay++
		it := l.items[0]
		go func() { h.results <- h.poster.post(ctx, l, it) }() // leave waits for it
	}
	return long
}

// settle takes in how an attempt went.
func (h *Hook) settle(a attempt) {
	h.underWay--
	h.metrics.attempt(a)
	now := time.Now()
	l, was := a.line, h.health.down()
	if h.off && a.verdict != delivered {
		a.verdict = gone // it was under way when another was told so
	}
	switch a.verdict {
	case delivered:
		h.health.well()
		h.metrics.event("delivered", 1)
		h.queue.done(l)
		h.warned = false
		h.tellGap()
	case gone:
		h.turnOff(l)
	case refused:
		h.health.well()
		h.retry(a, now, mostRefusals)
	case failed:
		h.health.ill(now, a.retryAfter)
		h.hopeless = h.last && h.health.down()
		h.retry(a, now, 0)
	}
	h.noteHealth(was, a.err)
	h.metrics.waiting.Store(int64(h.queue.len()))
}

// retry puts an event back, or gives it up where it was tried for too long, or as
// often as most, 0 for no bound.
func (h *Hook) retry(a attempt, now time.Time, most int) {
	l := a.line
	it, tries := l.items[0], l.tries+1
	result := ""
	switch {
	case most > 0 && tries >= most:
		result = "refused"
	case l.tries > 0 && now.Sub(l.since) >= patience:
		result = "expired"
	}
	if result != "" {
		h.log.Warn("webhook.event_abandoned", "type", it.Type, "session", it.Session, "attempts", tries, "err", a.err)
		h.queue.done(l)
		h.drop(result, it)
		return
	}
	h.log.Debug("webhook.attempt_failed", "type", it.Type, "session", it.Session, "attempts", tries, "err", a.err)
	h.queue.again(l, now, now.Add(max(pause(l.tries), a.retryAfter)))
}

// tellGap tells the receiver, which is there again, of what it did not get.
func (h *Hook) tellGap() {
	if h.untold == 0 || h.queue.lines[""] != nil {
		return
	}
	h.gaps++
	e := events.Event{Type: events.Gap, Time: time.Now().UTC(), Reason: fmt.Sprintf("%d events were not delivered", h.untold)}
	h.push(&item{Event: e, lost: h.untold, id: fmt.Sprintf("evt_%s_gap%d", h.name, h.gaps)})
	h.untold = 0
}

// turnOff stops posting, and forgets what waits: the receiver wants no more
// (Standard Webhooks, "Delivery success and failure", 410).
func (h *Hook) turnOff(l *line) {
	if !h.off {
		h.log.Error("webhook.receiver_gone", "status", http.StatusGone, "text", "the receiver wants no more events: none are posted until SIGHUP")
	}
	h.off = true
	h.drop("gone", l.items[0])
	h.queue.done(l)
	for it := h.queue.dropOldest(); it != nil; it = h.queue.dropOldest() {
		h.drop("gone", it)
	}
}

// noteHealth logs that the receiver has gone down, or is back.
func (h *Hook) noteHealth(was bool, err error) {
	switch is := h.health.down(); {
	case is && !was:
		if err == nil {
			err = errors.New("no answer")
		}
		h.log.Warn("webhook.receiver_down", "url", Shown(h.cfg.Target), "waiting", h.queue.len(), "err", err)
	case was && !is:
		h.log.Info("webhook.receiver_up", "url", Shown(h.cfg.Target), "waiting", h.queue.len())
	}
}

// Register makes the Hook's metrics known.
func (h *Hook) Register(r prometheus.Registerer) { h.metrics.register(r) }
