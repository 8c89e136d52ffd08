package report

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

//go:embed performance.md.tmpl
var page string

// A figureTable is a table of figures, as the page and the terminal show it.
type figureTable struct {
	name, title string
	without     []string // subjects that it leaves out
	columns     []column
}

var figureTables = []figureTable{
	{"cpu", "CPU of the proxy per data message, × nginx in the same round", []string{"nginx"}, []column{versus("W1"), versus("W2"), versus("W3"), versus("W4"), versus("W5")}},
	{"latency", "Latency p50 / p99 in µs, and thousands of messages a second", []string{"plain"}, []column{
		ends("W1 µs", "W1"), ends("W2 µs", "W2"), ends("W3 µs", "W3"), ends("W5 µs", "W5"), typical("W3, 1,000/s", "W3", "rate").times(1e-3), typical("W4, 1,000/s", "W4", "rate").times(1e-3)}},
	{"memory", "Memory a session, KiB", []string{"plain"}, []column{
		typical("opened", "W6", "opened_kib"), typical("after one message each way", "W6", "used_kib"), typical("cores while idle", "W6", "cores"), typical("detached, added", "W6det", "detached_kib")}},
	{"growth", "More sessions, the same messages: CPU per message × nginx, and memory", []string{"plain"}, []column{
		versus("G100"), versus("G1000"), versus("Gmax"), typical("MiB of G100", "G100", "used_mib"), typical("of G1000", "G1000", "used_mib"), typical("of Gmax", "Gmax", "used_mib")}},
	{"acks", "CPU per data message of resumable clients, × plain ones, same driver", nil, []column{acks("W1", "W1"), acks("W2", "W2"), acks("G100", "G100"), acks("G1000", "G1000"), acks("Gmax", "Gacks")}},
	{"resume", "W7, all cut and resumed at once", nil, []column{
		cost("until all have resumed, ms", "W7", "back_ms"), typical("one session p50, ms", "W7", "one_p50_ms"), typical("p99", "W7", "one_p99_ms"), cost("CPU per resume, µs", "W7", "resume_us")}},
	{"beside", "Latency of W1 in µs, alone, and while all connections of W7 are reset and resume", nil, []column{
		ends("alone, p50 / p99", "W1W7"), {title: "during the reconnect, p50 / p99", workload: "W1W7", figures: []string{"storm_p50_us", "storm_p99_us"}}, cost("p99, × alone", "W1W7", "times_p99_us")}},
	{"storm", "W8, connect, handshake, echo, close", []string{"plain"}, []column{cost("CPU per connection, µs", "W8", "connection_us"), typical("connections/s", "W8", "connections")}},
	{"hop", "A forwarded connection: CPU of both nodes", nil, []column{
		typical("game tick, µs a message", "H1", "cpu_us"), sameDriver("× own node", "H1", "hop", "reseat"), ends("p50 / p99, µs", "H1"), typical("CPU per resume, µs", "H7", "resume_us"), typical("1,000 back, ms", "H7", "back_ms")}},
	{"cluster", "A cluster: processes of all nodes together, NATS not counted", nil, []column{cost("game tick, µs a message", "C1", "cpu_us"), ends("p50 / p99, µs", "C1")}},
	{"tls", "TLS with the client: CPU of the proxy per data message", []string{"direct"}, []column{
		cost("without, µs", "noTLS", "cpu_us"), cost("TLS, µs", "TLS", "cpu_us"), versus("TLS").titled("TLS, × nginx"), typical("KiB a session, opened", "W6TLS", "opened_kib"), typical("used", "W6TLS", "used_kib")}},
	{"deflate", "permessage-deflate with the client: CPU per data message, bytes downward on the wire", []string{"direct"}, []column{
		cost("without, µs", "nodeflate", "cpu_us"), cost("compressed, µs", "deflate", "cpu_us"), typical("bytes on the wire, without", "nodeflate", "wire_bytes"), typical("compressed", "deflate", "wire_bytes")}},
}

// titled returns the column under another title.
func (c column) titled(title string) column {
	c.title = title
	return c
}

// times returns the column in another unit.
func (c column) times(scale float64) column {
	c.scale = scale
	return c
}

// versus is CPU time, with nginx's as 1.
func versus(w string) column {
	return column{title: w, workload: w, figures: []string{"cpu_us"}, versus: "nginx", spread: true}
}

// cost is a figure with its spread.
func cost(title, w, figure string) column {
	return column{title: title, workload: w, figures: []string{figure}, spread: true}
}

// typical is a figure's median alone.
func typical(title, w, figure string) column {
	return column{title: title, workload: w, figures: []string{figure}}
}

func ends(title, w string) column {
	return column{title: title, workload: w, figures: []string{"p50_us", "p99_us"}}
}

// acks compares resumable clients with plain ones.
func acks(title, w string) column { return sameDriver(title, w, "reseat", "plain") }

// sameDriver compares CPU time by driver.
func sameDriver(title, w, of, versus string) column {
	return column{title: title, workload: w, figures: []string{"cpu_us"}, versus: versus, of: of, spread: true}
}

// table returns a table of figureTables, "" if nothing of it was measured.
func (r *Results) table(t figureTable) string {
	few := *r
	few.Subjects = slices.DeleteFunc(slices.Clone(r.Subjects), func(s Subject) bool {
		base, _, _ := strings.Cut(s.Name, "@")
		return slices.Contains(t.without, base)
	})
	return few.build(t.columns...).String()
}

// strangers describes how much of the machine others used meanwhile.
func (r *Results) strangers() string {
	most, sum := 0.0, 0.0
	for _, s := range r.Samples {
		v := s.Figures["other_cores"] + s.Figures["steal_cores"]
		most, sum = max(most, v), sum+v
	}
	return fmt.Sprintf("Other processes, the kernel's own and other machines on the same hardware used %s cores on average, and %s at most in any one measurement.", number(sum/max(float64(len(r.Samples)), 1)), number(most))
}

// paused describes what the proxies used while others had traffic.
func (r *Results) paused() string {
	most, of := 0.0, "none"
	for _, s := range r.Samples {
		if v := s.Figures["paused_cores"]; v > most {
			most, of = v, s.Subject+" with "+s.Workload
		}
	}
	return fmt.Sprintf("Meanwhile a proxy used %s cores at most (%s).", number(most), of)
}

// Text returns only the tables, for a terminal.
func Text(r *Results) string {
	var b strings.Builder
	for _, t := range figureTables {
		if text := r.table(t); text != "" {
			fmt.Fprintf(&b, "%s\n\n%s\n", t.title, text)
		}
	}
	if text := r.barTable().String(); text != "" {
		fmt.Fprintf(&b, "Targets\n\n%s\n", text)
	}
	b.WriteString(r.strangers() + " " + r.paused() + "\n")
	return b.String()
}

// document returns the whole page.
func document(r *Results) string {
	targets := r.barTable()
	var b strings.Builder
	funcs := template.FuncMap{
		"table": func(name string) string {
			return r.table(figureTables[slices.IndexFunc(figureTables, func(t figureTable) bool { return t.name == name })])
		},
		"base": func(w string) string { return number(r.shown(w, "nginx", "cpu_us").Median) },
		"has":  r.has, "million": r.million, "thousands": func(n int) string { return thousands(float64(n)) },
		"targets": func() int { return len(targets.rows) }, "missed": targets.missed().String, "capacity": r.capacityTable().String, "paused": r.paused, "strangers": r.strangers,
	}
	if err := template.Must(template.New("page").Funcs(funcs).Parse(page)).Execute(&b, r); err != nil {
		panic(err) // a fault in the page's template
	}
	text := b.String()
	for strings.Contains(text, "\n\n\n") { // where a part was left out
		text = strings.ReplaceAll(text, "\n\n\n", "\n\n")
	}
	return text
}
