// Package watch reports on a gateway to its operators: log lines, metrics and events, the newest
// refusals with the flags that would change them, and the overview of the control API. It makes
// no decisions.
package watch

import (
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"reseat/gateway/events"
	"reseat/gateway/front"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/replay"
	"reseat/gateway/transport"
)

// Options configure a Watch. All are required.
type Options struct {
	Log      *slog.Logger
	Registry *registry.Registry
	Store    *replay.Store
	Table    *front.Table
	Routes   []policy.Route // in the order of the settings

	ID          string // of the process
	DrainTime   time.Duration
	MaxSessions int
	Descriptors int

	Drain     func() DrainInfo
	Forwarded func() (in, out int) // connections that other nodes pass on to this one, and it to others
	Windows   func() int64         // bytes of compression windows
	Loops     func() []transport.LoopStats
}

// A Watch reports on one gateway. Its methods may be called from any goroutine.
type Watch struct {
	Metrics *Metrics
	Events  *Stream
	Limited *LimitedLog // takes the lines that clients can cause at will

	o         Options
	began     time.Time
	ring      ring
	exhausted *LimitedLog   // memory and descriptors
	shed      *LimitedLog   // idle connections that were closed
	replayed  *rate.Limiter // token.replayed events
	looks     *rate.Limiter // see Look
}

// Limits on the log lines of refused clients.
const (
	refusalsPerSecond = 20
	refusalsAtOnce    = 50
)

// Limits of token.replayed in the event stream, which a thief or a faulty client can cause
// at will. The metric counts all.
const (
	replaysPerSecond = 10
	replaysAtOnce    = 50
)

// New returns a Watch. Its event stream must be closed.
func New(o Options) *Watch {
	m := newMetrics()
	w := &Watch{
		Metrics: m, Events: &Stream{Hub: events.New(time.Now)}, o: o, began: time.Now(),
		Limited:   NewLimitedLog(o.Log, refusalsPerSecond, refusalsAtOnce, m.Unlogged),
		exhausted: NewLimitedLog(o.Log, rate.Every(10*time.Second), 1, m.Unlogged),
		shed:      NewLimitedLog(o.Log, rate.Every(10*time.Second), 1, m.Unlogged),
		replayed:  rate.NewLimiter(replaysPerSecond, replaysAtOnce),
		looks:     rate.NewLimiter(looksPerSecond, 1),
	}
	m.Registry.MustRegister(&census{w})
	return w
}

// DescriptorsExhausted logs that descriptors ran out, and what an operator can do about it.
func (w *Watch) DescriptorsExhausted() {
	w.exhausted.Warn("descriptors.exhausted", "limit", w.o.Descriptors, "text", "new sessions and requests are refused; raise the limit of open files (ulimit -n)")
}

// IdleClosed counts and logs idle connections that were closed to free descriptors.
func (w *Watch) IdleClosed(n int) {
	w.Metrics.Shed.Add(float64(n))
	w.shed.Warn("descriptors.short", "limit", w.o.Descriptors, "text", "idle connections are closed, the longest idle first; raise the limit of open files (ulimit -n)")
}

// MemoryExhausted logs that --buffer-total ran out.
func (w *Watch) MemoryExhausted() {
	w.exhausted.Warn("buffer.total_exhausted", "bytes", w.o.Store.Used(), "limit", w.o.Store.Limit(),
		"text", "sessions that hold most and do not read it end, those of addresses with more than a quarter first; raise --buffer-total")
}
