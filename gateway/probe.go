package gateway

import (
	"net/http"

	"reseat/gateway/front"
	"reseat/gateway/wire"
)

// isProbe reports whether r only asks whether a gateway is there: protocol section 2. The answer
// says nothing else, so neither routes nor logins nor Origin matter.
func isProbe(r *front.Request) bool {
	return r.URL.RawQuery == wire.ProbeQuery && (r.Method == http.MethodGet || r.Method == http.MethodHead) && !r.WebSocket
}

// answerProbe answers such a request. The connection is closed: its client goes on by another one.
func answerProbe(w http.ResponseWriter, r *front.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	if r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	w.WriteHeader(http.StatusNoContent)
}
