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
	"io/fs"
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

// drop resets the player's connection and waits until the gateway has noticed.
func (p *player) drop(g *gateway) {
	p.t.Helper()
	p.conn.CloseNow()
	eventually(p.t, "the gateway has noticed the cut", func() bool {
		list := g.sessions()
		return len(list) == 1 && list[0].State == "detached"
	})
}

// Each log line in the page has the fields, and the level, of a real one.
func TestOperatingPageShowsRealLogLines(t *testing.T) {
	page := file(t, "operating.md")
	block := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(page)
	if block == nil {
		t.Fatal("the page shows no log lines")
	}
	shown := map[string]map[string]any{}
	for line := range strings.Lines(block[1]) {
		fields := map[string]any{}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		shown[fields["msg"].(string)] = fields
	}
	for _, real := range lived(t) {
		msg := real["msg"].(string)
		fields, ok := shown[msg]
		if !ok {
			continue
		}
		delete(shown, msg)
		if got, want := slices.Sorted(maps.Keys(fields)), slices.Sorted(maps.Keys(real)); !slices.Equal(got, want) || fields["level"] != real["level"] {
			t.Errorf("%s: the page shows %s %q, the log has %s %q", msg, fields["level"], got, real["level"], want)
		}
	}
	for msg := range shown {
		t.Errorf("%q never was in the log", msg)
	}
}

// lived returns the log of a session in which all these events occur.
func lived(t *testing.T) (lines []map[string]any) {
	t.Helper()
	ga := newGame(t, 5*time.Millisecond)
	g := start(t, "--upstream="+ga.url(), "--buffer-messages=10", "--drain=1h")
	p := g.join()
	first := p.token
	p.next()
	p.drop(g)
	p.resume()
	old := p.conn
	p.tell("ping confirmed")
	if err := p.connect(); err != nil { // a takeover
		t.Fatal(err)
	}
	old.CloseNow()
	p.next()
	g.ask("PATCH", "/api/v1/sessions/"+p.session, `{"started": true}`).want(t, "the start", 200, "")
	(&player{t: t, url: p.url, token: first}).wantRefused("a superseded token", "4401")
	p.drop(g)
	g.heard(&lines, "buffer.overflowed")
	p.resume()
	p.tell("bye")
	g.heard(&lines, "session.ended")
	p.wantRefused("a resume of an ended session", "4404")
	g.heard(&lines, "resume.refused")
	g.ask("POST", "/api/v1/drain", "").want(t, "the drain", 200, "")
	g.player().wantRefused("a new session while it drains", "503")
	g.heard(&lines, "handshake.refused")
	return lines
}

// heard waits for a log line, and keeps all lines up to it.
func (g *gateway) heard(lines *[]map[string]any, msg string) {
	g.t.Helper()
	for line := range g.log.lines {
		*lines = append(*lines, line)
		if line["msg"] == msg {
			return
		}
	}
	g.t.Fatalf("the gateway has ended and never said %q", msg)
}

// Each log line in the troubleshooting table occurs literally in the program's source.
func TestTroubleshootingTableNamesRealLogLines(t *testing.T) {
	source := sources(t)
	if strings.Contains(source, `"no such line"`) {
		t.Fatal("the search finds anything")
	}
	_, table, _ := strings.Cut(file(t, "operating.md"), "## Troubleshooting")
	table, _, _ = strings.Cut(table, "\n## ")
	named := 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, " | ")
		if len(cells) != 4 || strings.HasPrefix(row, "| symptom") {
			continue
		}
		for _, line := range regexp.MustCompile("`([^`]{6,})`").FindAllStringSubmatch(cells[1], -1) {
			if name := line[1]; name != "reason" && name != "origin" && name != "reseat:" {
				named++
				if !strings.Contains(source, `"`+name+`"`) {
					t.Errorf("%q is no line of the log", name)
				}
			}
		}
	}
	if named < 15 {
		t.Errorf("only %d lines of the log were looked at", named)
	}
}

// sources is the text of the program.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"../../gateway", "../../tokens"} {
		err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
