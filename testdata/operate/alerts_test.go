package operate

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"gopkg.in/yaml.v3"
)

// calm are the series of a healthy gateway, a sample every half minute for three hours.
// One resume in a hundred fails.
var calm = map[string]string{
	`up`:                                "1x360",
	`reseat_resumes_total{result="ok"}`: "0+60x360",
	`reseat_resumes_total{result="no_session"}`:             "0+0.6x360",
	`reseat_handshakes_refused_total{reason="upstream"}`:    "0x360",
	`reseat_handshakes_refused_total{reason="descriptors"}`: "0x360",
	`reseat_handshakes_refused_total{reason="origin"}`:      "0+9x360",
	`reseat_sessions_ended_total{reason="upstream_lost"}`:   "0x360",
	`reseat_sessions_ended_total{reason="bye"}`:             "0+9x360",
	`reseat_loops`: "2x360",
	`reseat_loop_busy_seconds_total{loop="0"}`:                      "0+25x360",
	`reseat_loop_busy_seconds_total{loop="1"}`:                      "0+26x360",
	`reseat_buffer_bytes`:                                           "7e8x360",
	`reseat_buffer_limit_bytes`:                                     "1e9x360",
	`process_open_fds`:                                              "700x360",
	`process_max_fds`:                                               "1000x360",
	`reseat_dropped_messages_total`:                                 "0x360",
	`reseat_session_panics_total`:                                   "0x360",
	`reseat_tokens_replayed_total`:                                  "0x360",
	`reseat_logins_refused_total{reason="no_keys"}`:                 "0x360",
	`reseat_logins_refused_total{reason="expired"}`:                 "0+9x360",
	`reseat_reloads_total{result="failed"}`:                         "0x360",
	`reseat_reloads_total{result="ok"}`:                             "0+1x360",
	`reseat_certificate_not_after_timestamp_seconds`:                "2e6x360",
	`reseat_log_lines_dropped_total`:                                "0x360",
	`reseat_webhook_events_total{result="delivered"}`:               "0+9x360",
	`reseat_webhook_events_total{result="dropped"}`:                 "0x360",
	`reseat_draining`:                                               "0x360",
	`reseat_upgrades_total{result="ok"}`:                            "0+1x360",
	`reseat_upgrades_total{result="aborted"}`:                       "0x360",
	`reseat_pumped_connections`:                                     "0x340 90x15 0x5",
	`reseat_detached_seconds_bucket{le="+Inf"}`:                     "0+60x360",
	`reseat_outage_seconds_bucket{le="6.1"}`:                        "0+60x360",
	`reseat_outage_seconds_bucket{le="38"}`:                         "0+60x360",
	`reseat_outage_seconds_bucket{le="+Inf"}`:                       "0+60x360",
	`reseat_outage_seconds_count`:                                   "0+60x360",
	`reseat_handshakes_refused_total{reason="max_sessions_per_ip"}`: "0+1x360",
	`reseat_cluster_engine_up`:                                      "1x300 0 1x60", // a restart
	`reseat_cluster_nodes{state="up"}`:                              "3x360",
	`reseat_cluster_nodes{state="gone"}`:                            "1x360",
	`reseat_cluster_nodes{state="silent"}`:                          "0x300 1x2 0x60", // an hour ago, and it was reported then
	`reseat_forwards_total{direction="out",result="ok"}`:            "0+40x360",
	`reseat_forwards_total{direction="out",result="gone"}`:          "0+9x360",
	`reseat_forwards_total{direction="out",result="unreachable"}`:   "0+0.3x360",
	`reseat_clock_skew_seconds`:                                     "-0.4x360",
	`reseat_durable_sessions{state="covered"}`:                      "900x360",
	`reseat_durable_sessions{state="exposed"}`:                      "0x300 12x2 0x60", // NATS was restarted
	`reseat_sessions_fenced_total`:                                  "3x360",
}

// wrong contains for each alert its cause: one series that differs from calm.
var wrong = map[string][2]string{
	"ReseatDown":                   {`up`, "1x300 0x60"},
	"ReseatResumesFail":            {`reseat_resumes_total{result="no_session"}`, "0+9x360"},
	"ReseatOutagesAreLong":         {`reseat_outage_seconds_bucket{le="6.1"}`, "0+6x360"},
	"ReseatUpstreamRefuses":        {`reseat_handshakes_refused_total{reason="upstream"}`, "0+30x360"},
	"ReseatUpstreamLost":           {`reseat_sessions_ended_total{reason="upstream_lost"}`, "0x355 20x5"},
	"ReseatBuffersNearlySpent":     {`reseat_buffer_bytes`, "9e8x360"},
	"ReseatLoopsSaturated":         {`reseat_loop_busy_seconds_total{loop="0"}`, "0+29x360"},
	"ReseatNoRoom":                 {`reseat_handshakes_refused_total{reason="descriptors"}`, "0+1x360"},
	"ReseatDescriptorsNearlySpent": {`process_open_fds`, "900x360"},
	"ReseatMessagesDropped":        {`reseat_dropped_messages_total`, "0x355 3x5"},
	"ReseatSessionFault":           {`reseat_session_panics_total`, "0x300 1x60"},
	"ReseatTokenReplayed":          {`reseat_tokens_replayed_total`, "0x350 9x10"},
	"ReseatLoginsRefused":          {`reseat_logins_refused_total{reason="no_keys"}`, "0+1x360"},
	"ReseatReloadFailed":           {`reseat_reloads_total{result="failed"}`, "0x350 1x10"},
	"ReseatCertificateExpires":     {`reseat_certificate_not_after_timestamp_seconds`, "5e5x360"},
	"ReseatLogIsLost":              {`reseat_log_lines_dropped_total`, "0x350 1x10"},
	"ReseatWebhookLosesEvents":     {`reseat_webhook_events_total{result="dropped"}`, "0x350 1x10"},
	"ReseatDrainsForLong":          {`reseat_draining`, "1x360"},
	"ReseatUpgradeAborted":         {`reseat_upgrades_total{result="aborted"}`, "0x350 1x10"},
	"ReseatPumpsLinger":            {`reseat_pumped_connections`, "0x300 3x60"},
	"ReseatEngineLost":             {`reseat_cluster_engine_up`, "1x350 0x10"},
	"ReseatNodeSilent":             {`reseat_cluster_nodes{state="silent"}`, "0x355 1x2 0x5"},
	"ReseatForwardsFail":           {`reseat_forwards_total{direction="out",result="unreachable"}`, "0+0.6x360"},
	"ReseatExposed":                {`reseat_durable_sessions{state="exposed"}`, "0x350 5x10"},
	"ReseatFenced":                 {`reseat_sessions_fenced_total`, "3x350 4x10"},
	"ReseatClockSkew":              {`reseat_clock_skew_seconds`, "-1.1x360"},
}

// A ruleTest is one of promtool's tests, which checks that exactly fires are firing at
// the end.
func ruleTest(series map[string]string, fires ...string) map[string]any {
	var input, want []map[string]any
	for name, values := range series {
		labels := `{job="reseat",instance="one:8081"`
		if i := strings.IndexByte(name, '{'); i > 0 {
			labels, name = labels+","+strings.TrimSuffix(name[i+1:], "}"), name[:i]
		}
		input = append(input, map[string]any{"series": name + labels + "}", "values": values})
	}
	for _, name := range fires {
		want = append(want, map[string]any{"labels": fmt.Sprintf("{alertname=%q}", name), "value": 1})
	}
	return map[string]any{"interval": "30s", "input_series": input, "promql_expr_test": []map[string]any{{
		"expr": `count by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": "3h", "exp_samples": want,
	}}}
}

// Each alert fires when its cause occurs, and no other does; for a healthy gateway none
// does.
func TestEachAlertFiresOnItsCause(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("there is no promtool: ./.ci/tools proof installs it")
	}
	rules, err := filepath.Abs(docs + "prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests := []any{ruleTest(calm)}
	for _, r := range alerts(t) {
		name := r.Alert
		change, ok := wrong[name]
		if _, same := calm[change[0]]; !ok || !same {
			t.Fatalf("what is %s for? %q", name, change)
		}
		series := maps.Clone(calm)
		series[change[0]] = change[1]
		tests = append(tests, ruleTest(series, name))
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "1m", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(promtool, "test", "rules", write(t, filepath.Join(t.TempDir(), "alerts.yml"), string(text))).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// alerts returns all rules.
func alerts(t *testing.T) (rules []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.Parse([]byte(file(t, "prometheus/alerts.yml")), false)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) != len(wrong) {
		t.Errorf("%d alerts, want a cause for each: %d", len(rules), len(wrong))
	}
	return rules
}
