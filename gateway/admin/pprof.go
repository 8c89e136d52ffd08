package admin

import (
	"net/http"
	"net/http/pprof"
	runtimepprof "runtime/pprof"

	"github.com/go-chi/chi/v5"
)

// profiles are those that pprof.Index does not serve.
var profiles = map[string]http.HandlerFunc{"cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace}

// profile serves what `go tool pprof` requests.
func profile(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "profile")
	h := profiles[name]
	switch {
	case h != nil:
		h(w, r)
	case runtimepprof.Lookup(name) == nil:
		problem(w, http.StatusNotFound, "no such profile")
	default:
		pprof.Index(w, r)
	}
}
