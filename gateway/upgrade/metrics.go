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

// newMetrics returns them among all metrics of the process.
func newMetrics(all *watch.Metrics) *metrics {
	m := &metrics{
		results: all.Vec("reseat_upgrades_total", "Upgrades, by result: refused before anything was done, aborted with everything as before, or ok.", "result", OK, Refused, Aborted),
		freeze: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "reseat_upgrade_freeze_seconds", Help: "How long an upgrade kept all sessions from being served.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 11),
		}),
		sessions: all.Vec("reseat_upgrade_sessions_total", "Sessions in upgrades, by result: moved with their sockets, pumped where the older process forwards a connection's bytes, kept by it until they were finished, or lost because they could not be read then.", "result", "moved", "pumped", "kept", "lost"),
	}
	all.Registry.MustRegister(m.freeze, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
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
