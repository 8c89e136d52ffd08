package report

import (
	"fmt"

	"reseat/gateway/internal/test/harness/bench/stat"
)

// A bar is the target of one of the gateway's figures.
type bar struct {
	what, workload, subject, figure string

	versus string // the subject that it is compared with; empty: none
	pace   pace   // how the bar moves with the machine's speed
	least  bool   // the figure must not be below the bar, rather than not above
	net    float64
	poll   float64
}

// A pace is a figure of nginx's, in µs, on the machine that the bars come from. Bars in
// time scale with it: if nginx takes three times as long on a machine, so may the
// gateway.
type pace struct {
	workload, figure string
	there            float64
}

var (
	asMessages    = pace{"W1", "cpu_us", 9.46}
	asConnections = pace{"W8", "connection_us", 42}
)

// factor returns the scale of the bar on r's machine; 1 if unknown.
func (p pace) factor(r *Results) float64 {
	if s := r.spread(p.workload, "nginx", p.figure); p.there > 0 && s.N > 0 {
		return s.Median / p.there
	}
	return 1
}

// bars are the gateway's targets. Each has a margin slightly above the spread of the
// prototypes that reached it.
var bars = []bar{
	{what: "W1, CPU per message, × nginx", workload: "W1", subject: "reseat", figure: "cpu_us", versus: "nginx", net: 1.60, poll: 1.25},
	{what: "W2, the same", workload: "W2", subject: "reseat", figure: "cpu_us", versus: "nginx", net: 1.45, poll: 1.08},
	{what: "W3, CPU per message, × nginx", workload: "W3", subject: "reseat", figure: "cpu_us", versus: "nginx", net: 1.40, poll: 1.12},
	{what: "W4, × nginx", workload: "W4", subject: "reseat", figure: "cpu_us", versus: "nginx", net: 0.85, poll: 0.75},
	{what: "W4, × HAProxy", workload: "W4", subject: "reseat", figure: "cpu_us", versus: "haproxy", net: 1.15, poll: 1.00},
	{what: "W5, × nginx", workload: "W5", subject: "reseat", figure: "cpu_us", versus: "nginx", net: 0.90, poll: 0.50},
	{what: "W5, × HAProxy", workload: "W5", subject: "reseat", figure: "cpu_us", versus: "haproxy", net: 1.60, poll: 0.95},
	{what: "W1, plain clients, × resumable ones", workload: "W1", subject: "plain", figure: "cpu_us", versus: "reseat", net: 1.00, poll: 1.00},
	{what: "W2, plain clients, × resumable ones", workload: "W2", subject: "plain", figure: "cpu_us", versus: "reseat", net: 1.00, poll: 1.00},
	{what: "Gmax, resumable clients, × plain ones", workload: "Gacks", subject: "reseat", figure: "cpu_us", versus: "plain", net: 1.20, poll: 1.20},
	{what: "W1, median latency, × nginx", workload: "W1", subject: "reseat", figure: "p50_us", versus: "nginx", net: 1.10, poll: 1.10},
	{what: "W1, p99 latency, × nginx", workload: "W1", subject: "reseat", figure: "p99_us", versus: "nginx", net: 1.50, poll: 1.25},
	{what: "W1, p99 latency beside a mass reconnect, × alone", workload: "W1W7", subject: "reseat", figure: "times_p99_us", net: 2, poll: 2},
	{what: "W3, messages/s, × nginx", workload: "W3", subject: "reseat", figure: "rate", versus: "nginx", least: true, net: 0.85, poll: 0.92},
	{what: "W6, KiB a session, opened", workload: "W6", subject: "reseat", figure: "opened_kib", net: 14, poll: 5},
	{what: "W6, KiB a session, after a message", workload: "W6", subject: "reseat", figure: "used_kib", net: 16, poll: 8},
	{what: "W6, cores while idle, heartbeats included", workload: "W6", subject: "reseat", figure: "cores", pace: asMessages, net: 0.02, poll: 0.01},
	{what: "W6det, KiB added by 32 KiB buffered", workload: "W6det", subject: "reseat", figure: "detached_kib", net: 44, poll: 44},
	{what: "W7, ms until all are back, EdDSA", workload: "W7", subject: "eddsa", figure: "back_ms", pace: asConnections, net: 1000, poll: 800},
	{what: "W7, the same, HS256", workload: "W7", subject: "reseat", figure: "back_ms", pace: asConnections, net: 600, poll: 400},
	{what: "W8, CPU µs a connection, HS256", workload: "W8", subject: "reseat", figure: "connection_us", pace: asConnections, net: 150, poll: 130},
}

// against returns the measured figure with a driver.
func (b bar) against(r *Results, driver string) stat.Spread {
	versus := b.versus
	switch versus {
	case "":
		return r.spread(b.workload, b.subject+"@"+driver, b.figure)
	case "reseat", "plain":
		versus += "@" + driver
	}
	return r.ratio(b.workload, b.subject+"@"+driver, b.figure, versus)
}

// drivers are the gateway's.
var drivers = []string{"net", "poll"}

// barTable compares the gateway with its bars, for each driver.
func (r *Results) barTable() table {
	t := table{head: []string{"", "driver", "target", "measured", ""}}
	for _, b := range bars {
		for i, driver := range drivers {
			s, limit, sign, verdict := b.against(r, driver), []float64{b.net, b.poll}[i], "≤ ", "met"
			if s.N == 0 {
				continue
			}
			if b.least {
				sign = "≥ "
			}
			shown := sign + number(limit)
			if f := b.pace.factor(r); f != 1 {
				limit *= f
				shown += fmt.Sprintf(" × %.1f = %s", f, number(limit))
			}
			if s.Median != limit && s.Median > limit != b.least {
				verdict = "**missed**"
			}
			t.rows = append(t.rows, []string{b.what, driver, shown, fmt.Sprintf("%s [%s–%s]", number(s.Median), number(s.Low), number(s.High)), verdict})
		}
	}
	return t
}

// missed returns the rows of barTable whose target was missed.
func (t table) missed() table {
	few := table{head: t.head[:len(t.head)-1]}
	for _, row := range t.rows {
		if last := len(row) - 1; row[last] != "met" {
			few.rows = append(few.rows, row[:last])
		}
	}
	return few
}
