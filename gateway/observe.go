package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"reseat/gateway/events"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// Events observes a session: it logs, counts, and does what the gateway owes
// to a session that has ended or wants a new token.
func (e *entry) Events(list []session.Event) {
	for _, ev := range list {
		e.event(ev)
	}
}

func (e *entry) event(ev session.Event) {
	g, m := e.g, e.g.metrics
	switch ev.Kind {
	case session.Created:
		e.setPeer(ev.Peer)
		m.created.Inc()
		e.publish(events.Created, "")
		g.log.Info("session.created", "session", e.ID, "route", e.Route, "peer", ev.Peer, "resumable", e.Resumable, "group", e.terms().Group)
	case session.Resumed:
		e.setPeer(ev.Peer)
		m.detached.Observe(ev.Took.Seconds())
		e.publish(events.Resumed, "")
		g.log.Info("session.resumed", "session", e.ID, "peer", ev.Peer, "epoch", ev.Epoch, "away", ev.Took, "replay", ev.Replay, "lost", ev.Lost)
	case session.Superseded:
		e.setPeer(ev.Peer)
		e.publish(events.Superseded, "")
		g.log.Info("session.superseded", "session", e.ID, "peer", ev.Peer, "was", ev.Was, "epoch", ev.Epoch, "replay", ev.Replay, "lost", ev.Lost)
	case session.Dropped:
		e.publish(events.Detached, ev.Reason)
		g.log.Info("session.detached", "session", e.ID, "peer", ev.Peer, "epoch", ev.Epoch, "reason", ev.Reason)
	case session.Overflowed:
		e.publish(events.Overflowed, ev.Reason)
		g.log.Warn("buffer.overflowed", "session", e.ID, "reason", ev.Reason)
	case session.Replayed:
		m.resume.Observe(ev.Took.Seconds())
	case session.Pong:
		m.rtt.Observe(ev.Took.Seconds())
		e.pongs.ring()
	case session.Message:
		e.logMessage(ev)
	case session.Started:
		e.publish(events.Started, "")
		g.log.Info("session.started", "session", e.ID, "group", e.terms().Group)
	case session.Renew:
		g.running.Go(func() { g.renew(e) })
	case session.Over:
		e.over(ev)
	}
}

// logMessage writes the line of one message, --log-messages.
func (e *entry) logMessage(ev session.Event) {
	args := []any{"session", e.ID, "direction", "to_upstream", "kind", "binary", "size", ev.Size}
	if ev.Down {
		args[3] = "to_client"
	}
	if ev.Text {
		args[5] = "text"
	}
	if e.terms().Tell.Prefix > 0 {
		args = append(args, "head", strconv.Quote(ev.Head))
	}
	e.g.log.Info("message", args...)
}

func (e *entry) over(ev session.Event) {
	g := e.g
	g.metrics.ended.WithLabelValues(ev.Reason).Inc()
	if ev.Took > 0 {
		g.metrics.detached.Observe(ev.Took.Seconds())
	}
	var info session.Info
	if d := e.drive(); d != nil { // nil: a fault before its first attach
		info = d.Info()
	}
	g.reg.bury(e, info)
	e.pongs.ring()
	e.breakDial()
	e.publish(events.Ended, ev.Reason)
	g.log.Info("session.ended", "session", e.ID, "peer", e.lastPeer(), "reason", ev.Reason, "detail", clip(ev.Detail),
		"to_client", info.Stats.ToClient, "to_upstream", info.Stats.ToUpstream, "dropped", info.Stats.Dropped)
}

// publish hands on what has happened to e.
func (e *entry) publish(kind, reason string) {
	e.g.events.Publish(events.Event{Type: kind, Session: e.ID, Player: e.Player, Group: e.terms().Group, Reason: reason})
}

// Events is where those of interface section 3 are read.
func (g *Gateway) Events() *events.Hub { return g.events }

// What a thief, or a client's fault, may put into the event stream; all of it is
// counted.
const (
	replaysPerSecond = 10
	replaysAtOnce    = 50
)

// noteReplayed tells that a resume brought a token of e's whose generation was
// spent: a bug or a theft.
func (g *Gateway) noteReplayed(e *entry) {
	g.metrics.replayed.Inc()
	if g.replays.Allow() {
		e.publish(events.Replayed, "")
	}
}

// Closed is called once both legs of an ended session are closed.
func (e *entry) Closed() { e.g.reg.left() }

// Panicked reports a fault in one session's code, which has ended it.
func (e *entry) Panicked(value any, stack []byte) {
	e.g.metrics.panics.Inc()
	e.g.log.Error("fault in a session's code; the session has been ended", "session", e.ID, "fault", value, "stack", string(stack))
}

// metrics are interface section 5, and a few more in the same manner. No label
// ever holds a session, a player or an address.
type metrics struct {
	registry *prometheus.Registry

	created, replayed, panics prometheus.Counter
	ended, resumes, refused   *prometheus.CounterVec
	logins                    *prometheus.CounterVec
	detached, resume, rtt     prometheus.Histogram
}

func newMetrics(g *Gateway) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, from, factor float64, n int) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(from, factor, n)})
		m.registry.MustRegister(h)
		return h
	}
	m.created = counter("reseat_sessions_created_total", "Sessions that got their first client.")
	m.replayed = counter("reseat_tokens_replayed_total", "Resumes refused since the token's generation was spent: a bug or a theft.")
	m.panics = counter("reseat_session_panics_total", "Faults in a session's code, each of which ended that session.")
	m.ended = vec("reseat_sessions_ended_total", "Sessions that ended, by reason.", "reason")
	m.resumes = vec("reseat_resumes_total", "Resumes, by result: ok or the name of the close code.", "result")
	m.refused = vec("reseat_handshakes_refused_total", "Handshakes answered with an HTTP error, by reason.", "reason")
	m.logins = vec("reseat_logins_refused_total", "Logins refused, or missing, by reason.", "reason")
	for _, reason := range session.Reasons() {
		m.ended.WithLabelValues(reason)
	}
	for _, result := range append(wire.Names(), "ok") {
		m.resumes.WithLabelValues(result)
	}
	m.detached = histogram("reseat_detached_seconds", "How long sessions were detached, up to their resume or end.", 0.01, 2.5, 13)
	m.resume = histogram("reseat_resume_seconds", "From a resume's arrival to the last replayed message written.", 0.0005, 2, 16)
	m.rtt = histogram("reseat_client_rtt_seconds", "Round trip of the gateway's pings to clients.", 0.0005, 2, 16)
	m.registry.MustRegister(&census{g: g})
	return m
}

// A census collects what the sessions themselves count, at the moment when it
// is asked for, so that counting costs the messages nothing.
type census struct{ g *Gateway }

var (
	descSessions = prometheus.NewDesc("reseat_sessions", "Living sessions, by state.", []string{"state"}, nil)
	descMessages = prometheus.NewDesc("reseat_messages_total", "Data messages relayed, each once; replays are not counted.", []string{"direction"}, nil)
	descBytes    = prometheus.NewDesc("reseat_message_bytes_total", "Payload of the data messages relayed.", []string{"direction"}, nil)
	descReplayed = prometheus.NewDesc("reseat_replayed_messages_total", "Messages that resumes had to replay.", nil, nil)
	descDropped  = prometheus.NewDesc("reseat_dropped_messages_total", "Messages dropped by --overflow drop-oldest.", nil, nil)
	descBuffer   = prometheus.NewDesc("reseat_buffer_bytes", "Memory held by all replay buffers.", nil, nil)
)

func (c *census) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descSessions, descMessages, descBytes, descReplayed, descDropped, descBuffer} {
		ch <- d
	}
}

func (c *census) Collect(ch chan<- prometheus.Metric) {
	states, total := c.g.reg.census()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for state := session.Connecting; state < session.Ended; state++ {
		gauge(descSessions, float64(states[state]), state.String())
	}
	counter(descMessages, total.ToUpstream, "to_upstream")
	counter(descMessages, total.ToClient, "to_client")
	counter(descBytes, total.ToUpstreamBytes, "to_upstream")
	counter(descBytes, total.ToClientBytes, "to_client")
	counter(descReplayed, total.Replayed)
	counter(descDropped, total.Dropped)
	gauge(descBuffer, float64(c.g.store.Used()))
}

// Metrics is what /metrics serves. An observer of events may add its own.
func (g *Gateway) Metrics() *prometheus.Registry { return g.metrics.registry }
