package report

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
)

//go:embed performance.md.tmpl
var page string

// tables returns a run's tables, by their names in the page: all that Text prints.
func tables(r *Results) map[string]string {
	return map[string]string{
		"cpu": r.build(versus("W1"), versus("W2"), versus("W3"), versus("W4"), versus("W5")).String(),
		"latency": r.build(
			column{title: "W1 µs", workload: "W1", figures: quantiles}, column{title: "W2 µs", workload: "W2", figures: quantiles},
			column{title: "W3 µs", workload: "W3", figures: quantiles}, column{title: "W5 µs", workload: "W5", figures: quantiles},
			rate("W3"), rate("W4"), rate("W5")).String(),
		"memory": r.build(
			column{title: "opened", workload: "W6", figures: []string{"opened_kib"}, spread: true},
			column{title: "after one message each way", workload: "W6", figures: []string{"used_kib"}, spread: true},
			column{title: "the same, PSS", workload: "W6", figures: []string{"used_pss_kib"}},
			column{title: "cores while idle", workload: "W6", figures: []string{"cores"}},
			column{title: "detached, added", workload: "W6det", figures: []string{"detached_kib"}, spread: true}).String(),
		"resume": r.build(
			column{title: "until all have resumed, ms", workload: "W7", figures: []string{"back_ms"}, spread: true},
			column{title: "one session p50 / p99, ms", workload: "W7", figures: []string{"one_p50_ms", "one_p99_ms"}},
			column{title: "CPU per resume, µs", workload: "W7", figures: []string{"resume_us"}, spread: true}).String(),
		"beside": r.build(
			ends("alone, p50 / p99, µs", "W1W7"),
			column{title: "during the reconnect, p50 / p99, µs", workload: "W1W7", figures: []string{"storm_p50_us", "storm_p99_us"}},
			times("p50, × alone", "W1W7", "times_p50_us"), times("p99, × alone", "W1W7", "times_p99_us"),
			cost("until all have resumed, ms", "W1W7", "back_ms")).String(),
		"hop": r.build(
			cost("game tick, µs a message", "H1", "cpu_us"), sameDriver("× own node", "H1", "cpu_us", "hop", "reseat"),
			column{title: "session's / client's node, µs", workload: "H1", figures: []string{"cpu_owner_us", "cpu_front_us"}},
			ends("p50 / p99, µs", "H1"),
			cost("ping-pong, µs a message", "H3", "cpu_us"), sameDriver("× own node", "H3", "cpu_us", "hop", "reseat"),
			ends("p50 / p99, µs", "H3")).String(),
		"hopResume": r.build(
			cost("CPU per resume, µs", "H7", "resume_us"), sameDriver("× own node", "H7", "resume_us", "hop", "reseat"),
			column{title: "session's / client's node, µs", workload: "H7", figures: []string{"resume_owner_us", "resume_front_us"}},
			cost("1,000 back, ms", "H7", "back_ms")).String(),
		"acks": r.build(acks("W1"), acks("W2"), acks("G100"), acks("G1000"), acks(r.mostSessions()).titled("Gmax")).String(),
		"nginxLatency": r.build(
			slower("W1, p50", "W1", "p50_us"), slower("W1, p99", "W1", "p99_us"), slower("W2, p50", "W2", "p50_us"), slower("W2, p99", "W2", "p99_us"),
			slower("W3, p50", "W3", "p50_us"), slower("W3, messages/s", "W3", "rate")).String(),
		"cluster": r.build(
			cost("game tick, µs a message", "C1", "cpu_us"), ends("p50 / p99, µs", "C1"),
			column{title: "40,000 sessions, µs a message", workload: "C40", figures: []string{"cpu_us"}, spread: true},
			column{title: "KiB a session", workload: "C40", figures: []string{"used_kib"}}).String(),
		"storm": r.build(
			column{title: "CPU per connection, µs", workload: "W8", figures: []string{"connection_us"}, spread: true},
			column{title: "connections/s", workload: "W8", figures: []string{"connections"}}).String(),
		"growth": r.build(
			versus("G100"), versus("G1000"), versus("Gmax"),
			column{title: "MiB of G100", workload: "G100", figures: []string{"used_mib"}},
			column{title: "of G1000", workload: "G1000", figures: []string{"used_mib"}},
			column{title: "of Gmax", workload: "Gmax", figures: []string{"used_mib"}},
			column{title: "KiB per session, Gmax", workload: "Gmax", figures: []string{"used_kib"}, spread: true}).String(),
		"tls": r.build(
			cost("without, µs", "noTLS", "cpu_us"), cost("TLS, µs", "TLS", "cpu_us"), versus("noTLS").titled("without, × nginx"), versus("TLS").titled("TLS, × nginx"),
			ends("without, p50 / p99", "noTLS"), ends("TLS, p50 / p99", "TLS"),
			column{title: "KiB a session, TLS, opened", workload: "W6TLS", figures: []string{"opened_kib"}},
			column{title: "used", workload: "W6TLS", figures: []string{"used_kib"}}).String(),
		"deflate": r.build(
			cost("without, µs", "nodeflate", "cpu_us"), cost("compressed, µs", "deflate", "cpu_us"),
			cost("incl. game server, without", "nodeflate", "both_us"), cost("incl. game server, compressed", "deflate", "both_us"),
			ends("without, p50 / p99", "nodeflate"), ends("compressed, p50 / p99", "deflate"),
			column{title: "bytes on the wire, without", workload: "nodeflate", figures: []string{"wire_bytes"}},
			column{title: "bytes, compressed", workload: "deflate", figures: []string{"wire_bytes"}}).String(),
		"bars":      r.barTable().String(),
		"capacity":  r.capacityTable().String(),
		"generator": r.build(busy("W1"), busy("W2"), busy("W3"), busy("W4"), busy("W5")).String(),
		"strangers": r.strangers(),
		"paused":    r.paused(),
	}
}

// pageTables returns the page's tables. Where it has fewer rows or columns than the terminal,
// the rest is in performance.json.
func pageTables(r *Results) map[string]string {
	all, few := tables(r), r.without("plain", "single", "hs256")
	maps.Copy(all, map[string]string{
		"cpu":     r.without("single", "nginx").build(versus("W1"), versus("W2"), versus("W3"), versus("W4"), versus("W5")).String(),
		"latency": few.build(ends("W1 µs", "W1"), ends("W2 µs", "W2"), ends("W3 µs", "W3"), ends("W5 µs", "W5"), typical("W3, 1,000/s", "W3", "rate", 1e-3), typical("W4, 1,000/s", "W4", "rate", 1e-3)).String(),
		"memory": few.build(
			typical("opened", "W6", "opened_kib", 1), typical("after one message each way", "W6", "used_kib", 1),
			typical("cores while idle", "W6", "cores", 1), typical("detached, added", "W6det", "detached_kib", 1)).String(),
		"resume": few.build(
			cost("until all have resumed, ms", "W7", "back_ms"), typical("one session p50, ms", "W7", "one_p50_ms", 1), typical("p99", "W7", "one_p99_ms", 1),
			cost("CPU per resume, µs", "W7", "resume_us")).String(),
		"storm": few.build(cost("CPU per connection, µs", "W8", "connection_us"), typical("connections/s", "W8", "connections", 1)).String(),
		"growth": few.build(
			versus("G100"), versus("G1000"), versus("Gmax"),
			typical("MiB of G100", "G100", "used_mib", 1), typical("of G1000", "G1000", "used_mib", 1), typical("of Gmax", "Gmax", "used_mib", 1)).String(),
		"hop": r.build(
			typical("game tick, µs a message", "H1", "cpu_us", 1), sameDriver("× own node", "H1", "cpu_us", "hop", "reseat"), ends("p50 / p99, µs", "H1"),
			typical("CPU per resume, µs", "H7", "resume_us", 1), typical("1,000 back, ms", "H7", "back_ms", 1)).String(),
		"tls": r.without("direct").build(
			cost("without, µs", "noTLS", "cpu_us"), cost("TLS, µs", "TLS", "cpu_us"), versus("TLS").titled("TLS, × nginx"),
			typical("KiB a session, opened", "W6TLS", "opened_kib", 1), typical("used", "W6TLS", "used_kib", 1)).String(),
		"deflate": r.without("direct").build(
			cost("without, µs", "nodeflate", "cpu_us"), cost("compressed, µs", "deflate", "cpu_us"),
			typical("bytes on the wire, without", "nodeflate", "wire_bytes", 1), typical("compressed", "deflate", "wire_bytes", 1)).String(),
		"missed": r.barTable().missed().String(),
	})
	return all
}

// without returns r without these subjects, whatever their driver.
func (r *Results) without(names ...string) *Results {
	few := *r
	few.Subjects = slices.DeleteFunc(slices.Clone(r.Subjects), func(s Subject) bool {
		base, _, _ := strings.Cut(s.Name, "@")
		return slices.Contains(names, base)
	})
	return &few
}

var quantiles = []string{"p50_us", "p99_us", "p999_us"}

func versus(w string) column {
	return column{title: w, workload: w, figures: []string{"cpu_us"}, versus: "nginx", spread: true}
}

func (c column) titled(title string) column {
	c.title = title
	return c
}

func cost(title, w, figure string) column {
	return column{title: title, workload: w, figures: []string{figure}, spread: true}
}

// typical is a figure's median alone.
func typical(title, w, figure string, scale float64) column {
	return column{title: title, workload: w, figures: []string{figure}, scale: scale}
}

func ends(title, w string) column {
	return column{title: title, workload: w, figures: quantiles[:2]}
}

func rate(w string) column {
	return column{title: w + " k/s", workload: w, figures: []string{"rate"}, scale: 1e-3, spread: true}
}

// acks compares resumable clients with plain ones, by driver.
func acks(w string) column { return sameDriver(w, w, "cpu_us", "reseat", "plain") }

func sameDriver(title, w, figure, of, versus string) column {
	return column{title: title, workload: w, figures: []string{figure}, versus: versus, of: of, spread: true}
}

// slower compares a figure with nginx's.
func slower(title, w, figure string) column {
	return column{title: title, workload: w, figures: []string{figure}, versus: "nginx", spread: true}
}

// times is a figure that is a ratio itself.
func times(title, w, figure string) column {
	return column{title: title, workload: w, figures: []string{figure}, spread: true}
}

func busy(w string) column {
	return column{title: w, workload: w, figures: []string{"load_cores", "game_cores", "cores"}}
}

// strangers describes how much of the machine others used meanwhile.
func (r *Results) strangers() string {
	most, sum, n := 0.0, 0.0, 0.0
	for _, s := range r.Samples {
		v := s.Figures["other_cores"] + s.Figures["steal_cores"]
		most, sum, n = max(most, v), sum+v, n+1
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("Other processes, the kernel's own and other machines on the same hardware used %s cores on average, and %s at most in any one measurement.", number(sum/n), number(most))
}

// paused describes what the proxies used while others had traffic.
func (r *Results) paused() string {
	most, of := 0.0, ""
	for _, s := range r.Samples {
		if v := s.Figures["paused_cores"]; v > most {
			most, of = v, s.Subject+" with "+s.Workload
		}
	}
	if of == "" {
		return ""
	}
	return fmt.Sprintf("Meanwhile a proxy used %s cores at most (%s).", number(most), of)
}

// Text returns only the tables, for a terminal.
func Text(r *Results) string {
	t := tables(r)
	var b strings.Builder
	for _, p := range []struct{ name, title string }{
		{"cpu", "CPU of the proxy per data message, × nginx in the same round: median [lowest–highest]"},
		{"latency", "Latency p50 / p99 / p99.9, and messages a second"},
		{"nginxLatency", "Latency and rate, × nginx in the same round"},
		{"memory", "Memory a session, KiB"},
		{"resume", "W7, all cut and resumed at once"},
		{"beside", "W1 alone, and while all connections of W7 are reset and resume"},
		{"acks", "CPU per data message of resumable clients, × plain ones, same driver"},
		{"hop", "A forwarded connection: CPU of both nodes per data message"},
		{"hopResume", "A forwarded connection: CPU of both nodes per resume"},
		{"growth", "More sessions, the same messages: CPU per message × nginx, and memory"},
		{"cluster", "A cluster: processes of all nodes together, NATS not counted"},
		{"storm", "W8, connect, handshake, echo, close"},
		{"tls", "TLS with the client: CPU of the proxy per data message, latency in µs"},
		{"deflate", "permessage-deflate with the client: CPU µs per data message, latency in µs, bytes downward on the wire"},
		{"bars", "Bars"},
		{"generator", "Cores used by clients / game server / proxy"},
	} {
		if t[p.name] != "" {
			fmt.Fprintf(&b, "%s\n\n%s\n", p.title, t[p.name])
		}
	}
	b.WriteString(strings.TrimSpace(t["strangers"]+" "+t["paused"]) + "\n")
	return b.String()
}

// document returns the whole page.
func document(r *Results) string {
	var b strings.Builder
	all := pageTables(r)
	funcs := template.FuncMap{"table": func(name string) string { return all[name] }, "base": func(w string) string {
		return number(r.shown(w, "nginx", "cpu_us").Median)
	}, "has": r.has, "beside": func() string { return thousands(float64(r.Sessions["W1W7"])) }, "million": r.million, "targets": func() int { return len(r.barTable().rows) }}
	if err := template.Must(template.New("page").Funcs(funcs).Parse(page)).Execute(&b, r); err != nil {
		panic(err) // a fault in the page's template
	}
	text := b.String()
	for strings.Contains(text, "\n\n\n") { // where a part was left out
		text = strings.ReplaceAll(text, "\n\n\n", "\n\n")
	}
	return text
}

// charts returns the page's charts, by file name.
func charts(r *Results) map[string]chart {
	cpu := chart{title: "CPU time per message beside nginx (1.0, the dashed line); less is better", mark: 1, ratio: true}
	for _, w := range []struct{ name, title string }{
		{"W1", "W1, game tick: 500 sessions"}, {"W2", "W2: 2,000 sessions"}, {"W3", "W3, ping-pong"}, {"W4", "W4, firehose"}, {"W5", "W5, messages of 64 KiB"},
	} {
		cpu.add(r, w.title, func(s string) stroke { return stroke{value: r.ratio(w.name, s, "cpu_us", "nginx")} })
	}
	memory := chart{title: "Memory per session, KiB; less is better"}
	memory.add(r, "opened, idle", func(s string) stroke { return stroke{value: r.spread("W6", s, "opened_kib")} })
	memory.add(r, "after one message each way", func(s string) stroke { return stroke{value: r.spread("W6", s, "used_kib")} })
	list := map[string]chart{}
	for name, c := range map[string]chart{
		"performance-cpu.svg": cpu, "performance-memory.svg": memory, "performance-acks.svg": ackChart(r), "performance-reconnect.svg": besideChart(r),
	} {
		if len(c.groups) > 0 {
			list[name] = c
		}
	}
	return list
}

// ackChart shows what acks cost, the fewer messages a session has the more.
func ackChart(r *Results) chart {
	c := chart{title: "CPU time per message of resumable clients beside plain ones (1.0, the dashed line)", mark: 1, ratio: true}
	for _, w := range []struct{ name, title string }{{"W1", "W1: 25 messages/s a session"}, {"W2", "W2: 12.5 messages/s a session"}, {r.mostSessions(), "Gmax: 1.4 messages/s a session"}} {
		c.add(r, w.title, func(s string) stroke {
			base, driver, _ := strings.Cut(s, "@")
			if base != "reseat" {
				return stroke{}
			}
			return stroke{value: r.ratio(w.name, s, "cpu_us", named("plain", driver))}
		})
	}
	return c
}

// mostSessions returns the workload with the most sessions that compares the two kinds of
// clients: there are not always descriptors for them and nginx at once.
func (r *Results) mostSessions() string {
	if r.has("Gacks") {
		return "Gacks"
	}
	return "Gmax"
}

func besideChart(r *Results) chart {
	c := chart{title: "Latency of W1 during a mass reconnect, µs; less is better"}
	for _, f := range []struct{ name, title string }{
		{"p50_us", "p50, alone"}, {"storm_p50_us", "p50, during the reconnect"}, {"p99_us", "p99, alone"}, {"storm_p99_us", "p99, during the reconnect"},
	} {
		c.add(r, f.title, func(s string) stroke { return stroke{value: r.spread("W1W7", s, f.name)} })
	}
	return c
}

// add adds a group with a bar for each proxy with a value.
func (c *chart) add(r *Results, title string, of func(subject string) stroke) {
	g := group{title: title}
	for _, s := range r.Subjects {
		if b := of(s.Name); b.value.N > 0 && s.Name != "direct" {
			b.title, b.own = strings.ReplaceAll(s.Title, "*", ""), strings.HasPrefix(s.Title, "*")
			g.bars = append(g.bars, b)
		}
	}
	if len(g.bars) > 0 {
		c.groups = append(c.groups, g)
	}
}
