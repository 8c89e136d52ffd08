package admin

import (
	"context"
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
		created := new(string)
		r = r.WithContext(context.WithValue(r.Context(), createdKey{}, created))
		watched := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(watched, r)
		id := *created
		if id == "" {
			id = chi.URLParam(r, "id")
		}
		log, who := a.Log, callerOf(r)
		if who.node != "" {
			log = log.With("from_node", who.node)
		}
		log.Info("admin.write", "who", who.name, "peer", r.RemoteAddr, "method", front.Clip(r.Method), "path", front.Clip(r.URL.Path), "session", front.Clip(id), "status", watched.Status())
	})
}

// createdKey is the context key for the id of the session that a request creates.
type createdKey struct{}

// noteCreated gives the id of the created session to the audit line of r.
func noteCreated(r *http.Request, id string) {
	if created, ok := r.Context().Value(createdKey{}).(*string); ok {
		*created = id
	}
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
