package admin

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"reseat/gateway"
	"reseat/gateway/faults"
	"reseat/gateway/transport/rawconn"
)

// withFaults runs the gateway as --dev does.
func withFaults(lines *faults.Lines) change {
	return func(_ *gateway.Config, o *Options) { o.Faults = lines }
}

func TestFaultsNeedDev(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		w.wantRefused("POST", path(p)+"/faults", `{"fault":"reset"}`, http.StatusConflict, "--dev")
		w.wantProblem("DELETE", path(p)+"/faults", http.StatusConflict, "--dev")
		p.Sync()
	})
}

func TestFaultsActOnLivingSessionsAlone(t *testing.T) {
	lines := faults.NewLines()
	inWorld(t, func(t *testing.T, w *world) {
		lines.Serve(faults.Options{
			Client: func(id string) net.Conn { return rawconn.Lowest(w.gw.Control().ClientConn(id)) },
			Close:  func(net.Conn) bool { return true },
		})
		p, _ := w.play("")
		q, _ := w.play("")
		w.wantStatus("DELETE", path(q), http.StatusNoContent)
		w.wantRefused("POST", path(q)+"/faults", `{"fault":"offline"}`, http.StatusConflict, "ended")
		w.wantRefused("POST", sessions+"/nothing/faults", `{"fault":"offline"}`, http.StatusNotFound, "no such")
		w.wantRefused("POST", path(p)+"/faults", `{"fault":"earthquake"}`, http.StatusBadRequest, "want one of silence")
		w.wantRefused("POST", path(p)+"/faults", `{"fault":"`+strings.Repeat("x", maxFault)+`"}`, http.StatusRequestEntityTooLarge, "at most")
		// The connection of the test has no relay.
		w.wantRefused("POST", path(p)+"/faults", `{"fault":"reset"}`, http.StatusConflict, "no client")
		if rec := w.send("POST", path(p)+"/faults", `{"fault":"slow","latency":"1s","for":"2s","direction":"up","rate":1000}`); rec.Code != http.StatusNoContent {
			t.Errorf("slow: %d %s", rec.Code, rec.Body)
		}
		w.wantStatus("DELETE", path(p)+"/faults", http.StatusNoContent)
	}, withFaults(lines))
}
