package upgrade

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"reseat/gateway/watch"
)

// metrics counts upgrades: docs/operating.md.
type metrics struct {
	results  *prometheus.CounterVec
	freeze   prometheus.Histogram
	sessions *prometheus.CounterVec
	// forwarded counts the connections that older processes forward, and these processes; nil:
	// there was no predecessor.
	forwarded atomic.Pointer[func() (conns, processes int)]
}

// The results of an upgrade, as labels and as states of GET /upgrade.
const (
	None    = "none"
	Running = "running"
	OK      = "ok"
	Refused = "refused"
	Aborted = "aborted"
)

// newMetrics registers them.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reseat_upgrades_total", Help: "Upgrades, by result: refused before anything was done, aborted with everything as before, or ok.",
		}, []string{"result"}),
		freeze: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "reseat_upgrade_freeze_seconds", Help: "How long an upgrade kept all sessions from being served.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 11),
		}),
		sessions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reseat_upgrade_sessions_total", Help: "Sessions in upgrades, by result: moved with their sockets, pumped where the older process forwards a connection's bytes, kept by it until they were finished, or lost because they could not be read then.",
		}, []string{"result"}),
	}
	for _, result := range []string{OK, Refused, Aborted} {
		m.results.WithLabelValues(result)
	}
	for _, result := range []string{"moved", "pumped", "kept", "lost"} {
		m.sessions.WithLabelValues(result)
	}
	r.MustRegister(m.results, m.freeze, m.sessions, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "reseat_pumped_connections", Help: "Connections of this process whose bytes an older process forwards.",
	}, func() float64 {
		conns, _ := m.count()
		return float64(conns)
	}))
	return m
}

// count counts the connections that older processes forward, and these processes. They cannot be
// asked: their admin address is this one's now.
func (m *metrics) count() (conns, processes int) {
	if f := m.forwarded.Load(); f != nil {
		return (*f)()
	}
	return 0, 0
}

// counts returns the counters of upgrades, for a successor.
func (m *metrics) counts() map[string]float64 {
	all := make(map[string]float64)
	for _, result := range []string{OK, Refused, Aborted} {
		all[result] = watch.Value(m.results.WithLabelValues(result))
	}
	return all
}

// add adds the counts of a predecessor.
func (m *metrics) add(counts map[string]float64) {
	for _, result := range []string{OK, Refused, Aborted} {
		m.results.WithLabelValues(result).Add(counts[result])
	}
}
