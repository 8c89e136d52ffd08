// Package webhook posts session events to an operator's URL, signed as the Standard
// Webhooks specification (version 1.0.0) says.
//
// The events of one session arrive in order, each at least once,
// as long as the queue does not overflow and this process lives. Every post has an
// id by which a receiver detects duplicates. Abandoned events are counted, and
// reported to the receiver as an event gap. A Hook reads events like any other
// Reader: it never delays who publishes them.
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
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reseat/gateway/events"
)

const (
	// MaxQueued bounds the queue; one more event drops the oldest.
	MaxQueued = 8192
	// maxInFlight bounds concurrent posts, each of another session.
	maxInFlight = 8
	// maxRefusals is the number of times that a receiver may refuse the same event before it is
	// abandoned.
	maxRefusals = 5
	// A failed event is retried for maxAge.
	maxAge = 24 * time.Hour
)

// Config configures a Hook. Target, Secrets, Events and Counter are required.
type Config struct {
	// Target receives the posts: http or https. User and password in it are sent as
	// Basic authentication; the log shows neither them nor the query.
	Target  *url.URL
	Secrets *Secrets
	Events  *events.Hub
	Counter Counter
	// Transport makes the requests. Nil means one without proxy and redirects.
	Transport http.RoundTripper
	// Log gets a line when the receiver goes down or comes back. Nil means
	// slog.Default.
	Log *slog.Logger
	// Hold has the Hook post nothing until Continue: an earlier process posts.
	Hold bool
}

// A Hook posts the events of a Hub. One goroutine, run, owns its state. Its methods
// may be called from any goroutine.
type Hook struct {
	cfg     Config
	poster  poster
	log     *slog.Logger
	reader  *events.Reader
	metrics *metrics
	name    string // of this process, in the ids of its posts

	results  chan attempt
	commands chan func()
	abort    context.CancelFunc
	over     chan struct{} // closed once run has returned

	// Owned by run.
	wake       <-chan struct{} // there are events to read; nil once no more are read
	queue      *queue
	held       bool // until Continue
	handed     bool // after HandOver
	health     health
	inFlight   int
	off        bool   // the receiver answered 410: post nothing
	last       bool   // closing: no backoff, and stop once the receiver is down
	abandoned  bool   // closing, and the receiver is down
	unreported uint64 // abandoned events that no gap has reported yet
	gaps       uint64 // gaps made so far
	warned     bool
}

// Start posts every later event, until Close.
func Start(cfg Config) *Hook {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Transport == nil {
		cfg.Transport = newTransport()
	}
	ctx, abort := context.WithCancel(context.Background())
	h := &Hook{
		cfg: cfg, log: cfg.Log, reader: cfg.Events.Live(), metrics: newMetrics(cfg.Counter), name: processName(),
		poster:  poster{cfg.Target, cfg.Transport, cfg.Secrets},
		results: make(chan attempt, maxInFlight), commands: make(chan func()), held: cfg.Hold,
		abort: abort, over: make(chan struct{}), queue: newQueue(MaxQueued),
	}
	h.wake = h.reader.Wake()
	go h.run(ctx)
	return h
}

// processName distinguishes the ids of this process from those of another that posts
// to the same receiver.
func processName() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Reload reads the secrets again, and resumes posting if the receiver had answered
// 410. On an error the secrets stay in use.
func (h *Hook) Reload() error {
	h.do(func() {
		h.off = false
		h.resetBackoff()
	})
	return h.cfg.Secrets.Reload(time.Now())
}

// do has run call f. It has no effect once run has returned.
func (h *Hook) do(f func()) {
	select {
	case h.commands <- f:
	case <-h.over:
	}
}

// Close stops reading events and posts the queued ones without backoff, until ctx is
// done or the receiver is down. It returns how many were not delivered; those are
// lost. It is idempotent.
func (h *Hook) Close(ctx context.Context) (left int) {
	h.do(func() {
		h.readEvents()
		h.resetBackoff()
		h.wake, h.last, h.held = nil, true, false
	})
	h.awaitEnd(ctx)
	return h.queue.len()
}

// awaitEnd waits for run, and cancels the posts in flight once ctx is done.
func (h *Hook) awaitEnd(ctx context.Context) {
	select {
	case <-h.over:
	case <-ctx.Done():
		h.abort()
		<-h.over
	}
}

// run is the loop.
func (h *Hook) run(ctx context.Context) {
	defer close(h.over)
	defer h.stopPosts()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(h.begin(ctx))
		drained := h.handed || h.last && (h.abandoned || h.queue.len() == 0)
		if drained && h.inFlight == 0 {
			return
		}
		select {
		case command := <-h.commands:
			command()
		case <-h.wake:
			h.readEvents()
		case a := <-h.results:
			h.finish(a)
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// stopPosts cancels the posts in flight, waits for them and counts what is left.
func (h *Hook) stopPosts() {
	h.abort()
	h.reader.Close()
	for ; h.inFlight > 0; h.inFlight-- {
		if a := <-h.results; a.verdict == delivered {
			h.metrics.attempt(a)
			h.metrics.event("delivered", 1)
			h.queue.done(a.line)
		}
	}
	if !h.handed {
		h.metrics.event("unsent", uint64(h.queue.len()))
	}
	h.metrics.waiting.Store(0)
	if t, ok := h.cfg.Transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// resetBackoff makes everything that is queued due now.
func (h *Hook) resetBackoff() {
	h.health.until = time.Time{}
	h.queue.resetDue()
}

// readEvents queues all events that the Reader has.
func (h *Hook) readEvents() {
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
		h.abandon("dropped", n)
	}
	if h.off {
		h.abandon("gone", 1)
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

// drop abandons an item. An abandoned gap is reported again by the next; its events
// have been counted.
func (h *Hook) drop(result string, it *item) {
	if it.Type == events.Gap {
		h.unreported += it.lost
		return
	}
	h.abandon(result, 1)
}

func (h *Hook) abandon(result string, n uint64) {
	h.unreported += n
	h.metrics.event(result, n)
}

// begin starts as many posts as are allowed, and returns how long the queue can
// wait.
func (h *Hook) begin(ctx context.Context) time.Duration {
	const long = time.Hour
	for h.inFlight < maxInFlight && !h.abandoned && !h.held && !h.handed {
		now := time.Now()
		if !h.health.may(now, h.inFlight) {
			if h.inFlight > 0 {
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
		h.inFlight++
		it := l.head
		go func() { h.results <- h.poster.post(ctx, l, it) }() // stopPosts waits for it
	}
	return long
}

// finish handles the result of an attempt.
func (h *Hook) finish(a attempt) {
	h.inFlight--
	h.metrics.attempt(a)
	now := time.Now()
	l, was := a.line, h.health.down()
	if h.off && a.verdict != delivered {
		a.verdict = gone // it was in flight when the 410 came
	}
	switch a.verdict {
	case delivered:
		h.health.succeeded()
		h.metrics.event("delivered", 1)
		h.queue.done(l)
		h.warned = false
		h.reportGap()
	case gone:
		h.turnOff(l)
	case refused:
		h.health.succeeded()
		h.retry(a, now, maxRefusals)
	case failed:
		h.health.failed(now, a.retryAfter)
		h.abandoned = h.last && h.health.down()
		h.retry(a, now, 0)
	}
	h.logHealth(was, a.err)
	h.metrics.waiting.Store(int64(h.queue.len()))
}

// retry queues an event again, or abandons it after maxAge or after maxTries; 0
// means no bound.
func (h *Hook) retry(a attempt, now time.Time, maxTries int) {
	l := a.line
	it, tries := l.head, l.tries+1
	result := ""
	switch {
	case maxTries > 0 && tries >= maxTries:
		result = "refused"
	case l.tries > 0 && now.Sub(l.since) >= maxAge:
		result = "expired"
	}
	if result != "" {
		h.log.Warn("webhook.event_abandoned", "type", it.Type, "session", it.Session, "attempts", tries, "err", a.err)
		h.queue.done(l)
		h.drop(result, it)
		return
	}
	h.log.Debug("webhook.attempt_failed", "type", it.Type, "session", it.Session, "attempts", tries, "err", a.err)
	h.queue.again(l, now, now.Add(max(backoff(l.tries), a.retryAfter)))
}

// reportGap queues a gap for the abandoned events once the receiver is reachable.
func (h *Hook) reportGap() {
	if h.unreported == 0 || h.queue.lines[""] != nil {
		return
	}
	h.gaps++
	e := events.Event{Type: events.Gap, Time: time.Now().UTC(), Reason: fmt.Sprintf("%d events were not delivered", h.unreported)}
	h.push(&item{Event: e, lost: h.unreported, id: fmt.Sprintf("evt_%s_gap%d", h.name, h.gaps)})
	h.unreported = 0
}

// turnOff stops posting and empties the queue: the receiver answered 410 (Standard
// Webhooks, "Delivery success and failure").
func (h *Hook) turnOff(l *line) {
	if !h.off {
		h.log.Error("webhook.receiver_gone", "status", http.StatusGone, "text", "the receiver wants no more events: none are posted until SIGHUP")
	}
	h.off = true
	h.drop("gone", l.head)
	h.queue.done(l)
	for it := h.queue.dropOldest(); it != nil; it = h.queue.dropOldest() {
		h.drop("gone", it)
	}
}

// logHealth logs that the receiver went down or came back.
func (h *Hook) logHealth(was bool, err error) {
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

// Register registers the Hook's gauge with r. It panics if called twice for one r.
func (h *Hook) Register(r prometheus.Registerer) { r.MustRegister(h.metrics.gauge) }
