package operate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// exposed are a gateway's series: metric to label to its values.
type exposed map[string]map[string][]string

// scrape starts a gateway with all features, and reads its metrics.
func scrape(t *testing.T) exposed {
	t.Helper()
	cert, key := certificate(t)
	secret := write(t, filepath.Join(t.TempDir(), "secret"), "whsec_"+strings.Repeat("MDEy", 8)+"\n")
	game := newGame(t, 0)
	g := start(t, "--upstream="+game.url(), "--tls-cert="+cert, "--tls-key="+key, "--webhook=http://127.0.0.1:9/", "--webhook-secret-file="+secret,
		"--token-key-file="+tokenKey(t), "--cluster="+startNATS(t).url(), "--node-listen=127.0.0.1:0")
	eventually(t, "the node has joined", func() bool {
		return bytes.Contains(g.get("/metrics"), []byte("\nreseat_cluster_engine_seconds_bucket"))
	})
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	player, _, err := websocket.Dial(t.Context(), "wss://"+g.addr+"/", &websocket.DialOptions{HTTPClient: insecure}) // the event loops begin
	if err != nil {
		t.Fatal(err)
	}
	defer player.CloseNow()
	families, err := new(expfmt.TextParser).TextToMetricFamilies(bytes.NewReader(g.get("/metrics")))
	if err != nil {
		t.Fatal(err)
	}
	all := exposed{"up": {}} // Prometheus adds this one
	for name, f := range families {
		series := map[string][]string{}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				series[l.GetName()] = append(series[l.GetName()], l.GetValue())
			}
		}
		all[name] = series
		if f.GetType().String() == "HISTOGRAM" {
			all[name+"_sum"], all[name+"_count"] = series, series
			all[name+"_bucket"] = maps.Clone(series)
			all[name+"_bucket"]["le"] = []string{"+Inf"}
			delete(all, name) // never queried by its bare name
		}
	}
	return all
}

// certificate makes a certificate for loopback, valid for a day.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(23 * time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	encode := func(name, kind string, b []byte) string {
		return write(t, filepath.Join(dir, name), string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})))
	}
	return encode("cert.pem", "CERTIFICATE", der), encode("key.pem", "PRIVATE KEY", secret)
}

// target are the labels that Prometheus adds to each series.
var target = []string{"job", "instance"}

// faults lists what an expression queries and the gateway does not expose.
func (all exposed) faults(expr string) (list []string) {
	ast, err := parser.ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	known := slices.Clone(target)
	parser.Inspect(ast, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			list = append(list, all.selector(v)...)
			for label := range all[v.Name] {
				known = append(known, label)
			}
		}
		return nil
	})
	parser.Inspect(ast, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, label := range a.Grouping {
				if !slices.Contains(known, label) {
					list = append(list, "no label "+label)
				}
			}
		}
		return nil
	})
	return list
}

func (all exposed) selector(v *parser.VectorSelector) (list []string) {
	series, ok := all[v.Name]
	if !ok {
		return []string{"no metric " + v.Name}
	}
	for _, m := range v.LabelMatchers {
		if m.Name == labels.MetricName || slices.Contains(target, m.Name) {
			continue
		}
		positive := labels.MustNewMatcher(map[labels.MatchType]labels.MatchType{
			labels.MatchEqual: labels.MatchEqual, labels.MatchNotEqual: labels.MatchEqual,
			labels.MatchRegexp: labels.MatchRegexp, labels.MatchNotRegexp: labels.MatchRegexp,
		}[m.Type], m.Name, m.Value)
		values := []string{m.Value}
		if positive.Type == labels.MatchRegexp {
			values = strings.Split(m.Value, "|")
		}
		for _, want := range values {
			if one := labels.MustNewMatcher(positive.Type, m.Name, want); !slices.ContainsFunc(series[m.Name], one.Matches) {
				list = append(list, "no "+v.Name+" with "+m.Name+" "+want)
			}
		}
	}
	return list
}

var legend = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// A dashboard is the part of Grafana's JSON that the tests examine.
type dashboard struct {
	Panels []struct {
		Title, Type string
		Targets     []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

// The dashboard and the alerts query, and the pages name, what a gateway exposes.
func TestOperatorsAreToldOfExposedMetrics(t *testing.T) {
	all := scrape(t)
	t.Run("dashboard", func(t *testing.T) { wantDashboard(t, all) })
	t.Run("alerts", func(t *testing.T) { wantAlerts(t, all) })
	t.Run("pages", func(t *testing.T) { wantPages(t, all) })
}

func wantDashboard(t *testing.T, all exposed) {
	var d dashboard
	if err := json.Unmarshal([]byte(file(t, "grafana/reseat.json")), &d); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", "5m", "$job", ".+", "$instance", ".+")
	n := 0
	for _, p := range d.Panels {
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("%s: a %s with %d targets", p.Title, p.Type, len(p.Targets))
		}
		for _, x := range p.Targets {
			n++
			expr := fill.Replace(x.Expr)
			for _, fault := range all.faults(expr) {
				t.Errorf("%s: %s: %s", p.Title, x.Expr, fault)
			}
			for _, m := range legend.FindAllStringSubmatch(x.LegendFormat, -1) {
				if !strings.Contains(expr, m[1]) {
					t.Errorf("%s: the legend names %s, which %s has not", p.Title, m[1], x.Expr)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("%d expressions, want the whole dashboard", n)
	}
	for _, v := range d.Templating.List {
		if metric, _, ok := strings.Cut(strings.TrimPrefix(v.Definition, "label_values("), ","); v.Type == "query" && (!ok || all[strings.Split(metric, "{")[0]] == nil) {
			t.Errorf("variable %s asks for %s", v.Name, v.Definition)
		}
	}
}

func wantAlerts(t *testing.T, all exposed) {
	for _, r := range alerts(t) {
		for _, fault := range all.faults(r.Expr) {
			t.Errorf("%s: %s", r.Alert, fault)
		}
		if r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%s: no summary, or no severity", r.Alert)
		}
	}
}

// wantPages checks that both pages name exactly the existing metrics.
func wantPages(t *testing.T, all exposed) {
	page := file(t, "operating.md") + file(t, "cluster.md")
	told := map[string]bool{}
	for _, name := range regexp.MustCompile("`(reseat_[a-z_]+)").FindAllStringSubmatch(page, -1) {
		told[name[1]] = true
		if all[name[1]] == nil && all[name[1]+"_sum"] == nil {
			t.Errorf("the page tells of %s, which there is not", name[1])
		}
	}
	for name := range all {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if strings.HasPrefix(name, "reseat_") && !told[base] {
			t.Errorf("the page does not tell of %s", base)
		}
	}
}

func TestMain(m *testing.M) {
	os.Unsetenv("RESEAT_BIN") // to the program it would be a setting
	if _, err := os.Stat(program); err != nil {
		os.Stderr.WriteString("want bin/reseat: make build\n")
		os.Exit(1)
	}
	os.Exit(m.Run())
}
