package admin

import (
	"cmp"
	"net/http"
	"runtime/debug"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"reseat/gateway/front"
)

// audit logs each request that may change something: caller, session and status. Bodies,
// queries and tokens are never logged.
func (a *api) audit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		watched := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(watched, r)
		log, who := a.Log, callOf(r)
		id := cmp.Or(who.created, chi.URLParam(r, "id"))
		if who.node != "" {
			log = log.With("from_node", who.node)
		}
		log.Info("admin.write", "who", who.name, "peer", r.RemoteAddr, "method", front.Clip(r.Method), "path", front.Clip(r.URL.Path), "session", front.Clip(id), "status", watched.Status())
	})
}

// recoverPanic logs a panic in a handler and answers 500.
func (a *api) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch v := recover(); v {
			case nil:
			case http.ErrAbortHandler:
				panic(v)
			default:
				a.Log.Error("admin.panicked", "method", front.Clip(r.Method), "path", front.Clip(r.URL.Path), "fault", v, "stack", string(debug.Stack()))
				problem(w, http.StatusInternalServerError, "internal error: see the gateway's log")
			}
		}()
		next.ServeHTTP(w, r)
	})
}
