package watch

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens/login"
)

// Metrics holds the metrics of docs/operating.md. No label ever holds a session, a player or an
// address. Each series exists from the start, so that a rate over it includes the first
// count.
type Metrics struct {
	Registry *prometheus.Registry

	Created, Drops, Replayed          prometheus.Counter
	Panics, Unlogged, RequestsRefused prometheus.Counter
	Shed                              prometheus.Counter
	Evicted                           *prometheus.CounterVec // by state
	Ended, Resumes, Refused           *prometheus.CounterVec
	Logins, Keepalives                *prometheus.CounterVec
	Detached, Outage, Resume, RTT     prometheus.Histogram
	Forwards                          *prometheus.CounterVec // by direction and result
	Forward                           prometheus.Histogram
	Claims, Handoffs                  *prometheus.CounterVec // of durable sessions, by result
	Fenced                            prometheus.Counter
	Failover                          prometheus.Histogram
	AdminRefused                      *prometheus.CounterVec // requests at the admin address, by reason

	vecs map[string]*prometheus.CounterVec // all counters, by name
}

// RefusalReasons are the labels of handshakes that are answered by HTTP.
var RefusalReasons = []string{
	"bad_handshake", "buffer_total", "descriptors", "draining", "duplicate", "host_not_allowed", "internal_error", "loop",
	"max_sessions", "max_sessions_per_ip", "no_route", "node_unreachable", "origin", "unauthorized", "unsafe_path", "upstream",
}

func newMetrics() *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry(), vecs: make(map[string]*prometheus.CounterVec)}
	m.Created = m.counter("reseat_sessions_created_total", "Sessions created, by clients or by the control API, once the game server has accepted them.")
	m.Drops = m.counter("reseat_sessions_detached_total", "How often a session's client was disconnected.")
	m.Replayed = m.counter("reseat_tokens_replayed_total", "Resumes refused because the token's generation was superseded: a bug or a stolen token.")
	m.Panics = m.counter("reseat_session_panics_total", "Panics in a session's code, each of which ended that session.")
	m.Unlogged = m.counter("reseat_log_lines_limited_total", "Log lines left out by the rate limit on lines that clients can cause.")
	m.RequestsRefused = m.counter("reseat_requests_refused_total", "Ordinary requests refused because descriptors ran out.")
	m.Shed = m.counter("reseat_waiting_closed_total", "Idle connections closed because descriptors ran out.")
	m.Evicted = m.Vec("reseat_sessions_evicted_total", "Sessions ended because --buffer-total was exhausted, or nearly, and they held much of it, by their state.", "state", session.Attached.String(), session.Connecting.String(), session.Detached.String())
	m.Ended = m.Vec("reseat_sessions_ended_total", "Sessions that ended, by reason.", "reason", session.Reasons()...)
	m.Forwards = m.Vec("reseat_forwards_total", "Resumes that a node has passed on to the session's node (out), or has received from another (in), by result.", "direction,result", "in,ok", "out,ok", "out,gone", "out,not_there", "out,unreachable")
	m.Forward = m.histogram("reseat_forward_seconds", "From a resume's arrival at one node to the first byte of the answer of the session's node.", 0.0005, 2, 16)
	m.Claims = m.Vec("reseat_claims_total", "Attempts to claim a durable session whose node may be lost, by result.", "result", "won", "lost", "owner_alive", "engine")
	m.Handoffs = m.Vec("reseat_handoffs_total", "Durable sessions that a drain has handed off to another node, by result.", "result", "ok", "lost", "failed")
	m.Fenced = m.counter("reseat_sessions_fenced_total", "Durable sessions that this node has released because another node has claimed them.")
	m.Failover = m.histogram("reseat_failover_seconds", "From the arrival of a resume to its hello, where the session was claimed from a lost node.", 0.001, 2, 16)
	m.Resumes = m.Vec("reseat_resumes_total", "Resumes, by result: ok or the name of the close code.", "result", append(wire.Names(), ResumeOK)...)
	m.Refused = m.Vec("reseat_handshakes_refused_total", "Handshakes answered with an HTTP error, by reason.", "reason", RefusalReasons...)
	m.AdminRefused = m.Vec("reseat_admin_refused_total", "Requests refused at the admin address, by reason.", "reason", "host", "cross_site", "no_token", "bad_token", "viewer")
	m.Logins = m.Vec("reseat_logins_refused_total", "Logins refused, or missing, by reason.", "reason", login.Reasons()...)
	m.Keepalives = m.Vec("reseat_keepalives_sent_total", "Keepalives sent to game servers for clients that were away, by source: --keepalive-send (flag), or noticed of the client (auto).", "source", "flag", "auto")
	m.Detached = m.histogram("reseat_detached_seconds", "How long sessions were detached, up to their resume or end.", 0.01, 2.5, 13)
	m.Outage = m.histogram("reseat_outage_seconds", "How long clients were disconnected: from the last sign of life to the resume.", 0.01, 2.5, 13)
	m.Resume = m.histogram("reseat_resume_seconds", "From a resume's arrival to the last replayed message written.", 0.0005, 2, 16)
	m.RTT = m.histogram("reseat_client_rtt_seconds", "Round trip of the gateway's pings to clients.", 0.0005, 2, 16)
	return m
}

// ResumeOK is the result of a resume that was not refused.
const ResumeOK = "ok"

func (m *Metrics) counter(name, help string) prometheus.Counter {
	return m.Vec(name, help, "").WithLabelValues()
}

// Vec returns a new counter that a successor continues, with labels, and each of those values from the start. Commas lie
// between the names of labels, and between their values.
func (m *Metrics) Vec(name, help, labels string, values ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, split(labels))
	m.Registry.MustRegister(c)
	m.vecs[name] = c
	for _, v := range values {
		c.WithLabelValues(split(v)...)
	}
	return c
}

// split splits a list of names or values at its commas.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

func (m *Metrics) histogram(name, help string, from, factor float64, n int) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(from, factor, n)})
	m.Registry.MustRegister(h)
	return h
}

// A Counter is the value of one series, for a successor.
type Counter struct {
	Name, Label string // Label has the values of the labels, with commas between them
	Value       float64
}

// Counts returns all counters that are not zero. It asks no session: they may be frozen.
func (m *Metrics) Counts() (list []Counter) {
	for name, vec := range m.vecs {
		series := make(chan prometheus.Metric)
		go func() { vec.Collect(series); close(series) }()
		for one := range series {
			var d dto.Metric
			if one.Write(&d) != nil || d.GetCounter().GetValue() == 0 {
				continue
			}
			var labels []string // in the order of their names
			for _, l := range d.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			list = append(list, Counter{Name: name, Label: strings.Join(labels, ","), Value: d.GetCounter().GetValue()})
		}
	}
	return list
}

// Add adds what a predecessor has counted. It skips what it does not know.
func (m *Metrics) Add(list []Counter) {
	for _, c := range list {
		if vec := m.vecs[c.Name]; vec != nil {
			if own, err := vec.GetMetricWithLabelValues(split(c.Label)...); err == nil {
				own.Add(c.Value)
			}
		}
	}
}

// values reads a metric for each of its labels.
func values(vec *prometheus.CounterVec, labels []string) map[string]uint64 {
	by := make(map[string]uint64, len(labels))
	for _, l := range labels {
		by[l] = value(vec.WithLabelValues(l))
	}
	return by
}

// value reads a counter of whole numbers.
func value(c prometheus.Counter) uint64 { return uint64(Value(c)) }

// Value reads a counter.
func Value(c prometheus.Counter) float64 {
	var m dto.Metric
	c.Write(&m) // never fails for a counter
	return m.GetCounter().GetValue()
}
