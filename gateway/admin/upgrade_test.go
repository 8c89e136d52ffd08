package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"reseat/gateway"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// frozenPath is a described path with values for its parameters.
var frozenPath = strings.NewReplacer("{id}", strings.Repeat("0", 32), "{group}", "red", "{name}", "ann")

func TestEveryCallOfTheAPIIsRefusedDuringFreeze(t *testing.T) {
	inTown(t, three[:1], func(t *testing.T, nodes []*place) {
		w := nodes[0]
		frozen, err := w.gw.Freeze(t.Context(), session.Formats[0], 0, func(gateway.FrozenSession) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		for path, item := range described.Paths.Map() {
			if !strings.HasPrefix(path, "/api/v1/") || path == "/api/v1/events" {
				continue
			}
			for method := range item.Operations() {
				calls++
				rec := w.call(method, frozenPath.Replace(path))
				wantProblem(t, rec, http.StatusServiceUnavailable, "upgrade")
				if got := rec.Header().Get("Retry-After"); got != "1" {
					t.Errorf("%s %s: Retry-After %q", method, path, got)
				}
			}
		}
		if calls < 15 {
			t.Errorf("only %d calls", calls)
		}
		for _, path := range []string{"/healthz", "/readyz", "/"} {
			if rec := w.call("GET", path); rec.Code != http.StatusOK {
				t.Errorf("%s: %d", path, rec.Code)
			}
		}
		frozen.Thaw()
		w.wantObject("GET", "/api/v1/drain", "", "draining", false)
	}, func(c *gateway.Config, _ *Options) { c.Driver = transport.Net }) // an event loop waits outside the bubble
}

func TestLastUpgradeIsDescribed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.wantObject("GET", "/api/v1/upgrade", "", "state", "none", "from", "", "error", "")
	})
	last := Upgrade{State: "ok", From: "v1.0.0", To: "v1.1.0", Sessions: UpgradeSessions{Moved: 40, Pumped: 2, Kept: 1}, FreezeMS: 12.5}
	inWorld(t, func(t *testing.T, w *world) {
		for _, last = range []Upgrade{last, {State: "running", From: "v1.1.0"}, {State: "refused", From: "v1.1.0", Error: "draining"}, {State: "aborted", From: "v1.1.0", To: "v1.2.0", Error: "offer: no room"}} {
			for name, body := range map[string][]byte{
				"upgrade":  w.call("GET", "/api/v1/upgrade").Body.Bytes(),
				"overview": member(t, w.call("GET", "/api/v1/overview").Body.Bytes(), "upgrade"),
			} {
				var got Upgrade
				if err := json.Unmarshal(body, &got); err != nil || got != last {
					t.Errorf("%s: %s, want %+v", name, body, last)
				}
			}
		}
	}, func(_ *gateway.Config, o *Options) { o.Upgrade = func() Upgrade { return last } })
}

// member returns a member of a JSON object.
func member(t *testing.T, object []byte, name string) []byte {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		t.Fatal(err)
	}
	return all[name]
}
