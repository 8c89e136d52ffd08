package server

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"reseat/gateway/internal/test/testcert"
)

// metrics are those of a scrape.
func (p *started) metrics() map[string]*dto.MetricFamily {
	p.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(p.ask("GET", "/metrics", "").Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return families
}

// reloaded sends SIGHUP twice: when the line of the second reload is logged, the first one
// has been counted.
func (p *started) reloaded(result, line string) {
	p.t.Helper()
	for range 2 {
		p.signals <- syscall.SIGHUP
		p.wait(line)
	}
	for _, m := range p.metrics()["reseat_reloads_total"].Metric {
		if m.Label[0].GetValue() == result && m.Counter.GetValue() == 0 {
			p.t.Errorf("a reload is not counted as %s", result)
		}
	}
}

func TestScrapeIncludesProcessMetrics(t *testing.T) {
	pair := testcert.New(t, "game.example")
	cert, key := pair.Write(t.TempDir())
	p := begin(t, "--tls-cert="+cert, "--tls-key="+key)
	m := p.metrics()
	for _, name := range []string{
		"go_goroutines", "go_memstats_heap_inuse_bytes", "process_open_fds", "process_max_fds", "process_resident_memory_bytes",
		"process_cpu_seconds_total", "process_start_time_seconds", "reseat_sessions", "reseat_admin_refused_total", "reseat_log_lines_dropped_total",
	} {
		if m[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	labels := make(map[string]string)
	for _, l := range m["reseat_build_info"].GetMetric()[0].Label {
		labels[l.GetName()] = l.GetValue()
	}
	if labels["version"] == "" || !strings.HasPrefix(labels["goversion"], "go1.") || len(labels) != 2 {
		t.Errorf("build info %v", labels)
	}
	if got := m["reseat_certificate_not_after_timestamp_seconds"].GetMetric()[0].Gauge.GetValue(); got != float64(pair.Leaf.NotAfter.Unix()) {
		t.Errorf("the certificate is good until %v, want %v", got, pair.Leaf.NotAfter.Unix())
	}
}

func TestMetricsFollowPrometheusConventions(t *testing.T) {
	p := begin(t)
	body, err := io.ReadAll(p.ask("GET", "/metrics", "").Body)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(bytes.NewReader(body)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	if resp := p.ask("GET", "/metrics", ""); !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain; version=0.0.4") || resp.StatusCode != http.StatusOK {
		t.Errorf("%s, %s", resp.Status, resp.Header)
	}
}

func TestReloadsAreCountedByTheirResult(t *testing.T) {
	pair := testcert.New(t, "game.example")
	cert, key := pair.Write(t.TempDir())
	tokens := writeFile(t, filepath.Join(t.TempDir(), "key"), strings.Repeat("0123456789abcdef", 2))
	p := begin(t, "--tls-cert="+cert, "--tls-key="+key, "--token-key-file="+tokens)
	p.reloaded("ok", "keys.reloaded")
	if err := os.WriteFile(cert, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.reloaded("failed", "cert.reload_failed")
}
