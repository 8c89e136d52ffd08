package admin

import (
	"net/http"
	"net/http/pprof"
	runtimepprof "runtime/pprof"

	"github.com/go-chi/chi/v5"
)

// profile serves what `go tool pprof` requests.
func profile(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "profile")
	switch name {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		if runtimepprof.Lookup(name) == nil {
			problem(w, http.StatusNotFound, "no such profile")
			return
		}
		pprof.Handler(name).ServeHTTP(w, r)
	}
}
