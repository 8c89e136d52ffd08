package webhook

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// results are the outcomes of an event: delivered; dropped, as the oldest of a full
// queue; refused by the receiver maxRefusals times; expired after maxAge; gone, after
// a 410; or unsent when the process ended.
var results = []string{"delivered", "dropped", "refused", "expired", "gone", "unsent"}

// A Counter makes and registers a counter with one label, and its values.
type Counter = func(name, help, label string, values ...string) *prometheus.CounterVec

type metrics struct {
	events   *prometheus.CounterVec
	attempts *prometheus.CounterVec
	waiting  atomic.Int64
	gauge    prometheus.GaugeFunc
}

func newMetrics(c Counter) *metrics {
	m := &metrics{
		events:   c("reseat_webhook_events_total", "Events of --webhook, by what became of them.", "result", results...),
		attempts: c("reseat_webhook_attempts_total", "Posts to --webhook, by result.", "result", "ok", "failed"),
	}
	m.gauge = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "reseat_webhook_waiting_events", Help: "Events that wait to be posted.",
	}, func() float64 { return float64(m.waiting.Load()) })
	return m
}

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
