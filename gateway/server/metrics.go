package server

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"reseat/gateway/asynclog"
	"reseat/gateway/config"
	"reseat/gateway/secure"
	"reseat/gateway/watch"
)

// addVitals adds the metrics of the process to others: memory, descriptors, CPU time, log and certificate. certs may be nil.
// It returns the counter of reloads.
func addVitals(m *watch.Metrics, lines *asynclog.Writer, certs *secure.Certificates) *prometheus.CounterVec {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "reseat_build_info", Help: "1, labelled with what is running.",
		ConstLabels: prometheus.Labels{"version": config.Version(), "goversion": runtime.Version()},
	})
	build.Set(1)
	m.Registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "reseat_log_lines_dropped_total", Help: "Log lines dropped because they were not written fast enough.",
		}, func() float64 { return float64(lines.Dropped()) }),
	)
	if certs != nil {
		m.Registry.MustRegister(&expiry{certs})
	}
	return m.Vec("reseat_reloads_total", "Reloads by SIGHUP, by result: failed if a file was invalid and its old content stays in use.", "result", "ok", "failed")
}

// An expiry collects the expiry of the certificate in use; nothing before a CA has issued
// one.
type expiry struct{ certs *secure.Certificates }

var descExpiry = prometheus.NewDesc("reseat_certificate_not_after_timestamp_seconds", "When the certificate at the client address expires.", nil, nil)

func (e *expiry) Describe(ch chan<- *prometheus.Desc) { ch <- descExpiry }

func (e *expiry) Collect(ch chan<- prometheus.Metric) {
	if leaf := e.certs.Leaf(); leaf != nil {
		ch <- prometheus.MustNewConstMetric(descExpiry, prometheus.GaugeValue, float64(leaf.NotAfter.Unix()))
	}
}
