package admin

import (
	"context"
	"net/http"
	"runtime/debug"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"reseat/gateway/frame"
)

// audit writes a line for each request that may change something: who sent it,
// for which session, and the outcome. Bodies, queries and tokens are never
// part of it.
func (a *api) audit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		made := new(string)
		r = r.WithContext(context.WithValue(r.Context(), madeKey{}, made))
		watched := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(watched, r)
		id := *made
		if id == "" {
			id = chi.URLParam(r, "id")
		}
		a.log.Info("admin.write", "who", callerOf(r).name, "peer", r.RemoteAddr, "method", clip(r.Method), "path", clip(r.URL.Path), "session", clip(id), "status", watched.Status())
	})
}

// madeKey finds the place for the session that a request has made.
type madeKey struct{}

// noteMade tells the audit line of r which session it has made.
func noteMade(r *http.Request, id string) {
	if made, ok := r.Context().Value(madeKey{}).(*string); ok {
		*made = id
	}
}

// rescue answers 500 where a handler panics, and says so in the log.
func (a *api) rescue(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch v := recover(); v {
			case nil:
			case http.ErrAbortHandler:
				panic(v)
			default:
				a.log.Error("admin.panicked", "method", clip(r.Method), "path", clip(r.URL.Path), "fault", v, "stack", string(debug.Stack()))
				problem(w, http.StatusInternalServerError, "internal error: see the gateway's log")
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// clip bounds what a caller can put into a log line.
func clip(s string) string { return frame.Clip(s, 200) }
