package webhook

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// results are the outcomes of an event: delivered; dropped, as the oldest of a full
// queue; refused by the receiver maxRefusals times; expired after maxAge; gone, after
// a 410; or unsent when the process ended.
var results = []string{"delivered", "dropped", "refused", "expired", "gone", "unsent"}

type metrics struct {
	events   *prometheus.CounterVec
	attempts *prometheus.CounterVec
	waiting  atomic.Int64
	gauge    prometheus.GaugeFunc
}

func newMetrics() *metrics {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reseat_webhook_events_total", Help: "Events of --webhook, by what became of them.",
		}, []string{"result"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reseat_webhook_attempts_total", Help: "Posts to --webhook, by result.",
		}, []string{"result"}),
	}
	m.gauge = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "reseat_webhook_waiting_events", Help: "Events that wait to be posted.",
	}, func() float64 { return float64(m.waiting.Load()) })
	for _, r := range results {
		m.events.WithLabelValues(r)
	}
	for _, r := range []string{"ok", "failed"} {
		m.attempts.WithLabelValues(r)
	}
	return m
}

func (m *metrics) register(r prometheus.Registerer) { r.MustRegister(m.events, m.attempts, m.gauge) }

func (m *metrics) event(result string, n uint64) {
	m.events.WithLabelValues(result).Add(float64(n))
}

func (m *metrics) attempt(a attempt) {
	result := "ok"
	if a.verdict != delivered {
		result = "failed"
	}
	m.attempts.WithLabelValues(result).Inc()
}
