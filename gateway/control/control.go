// Package control serves the admin address: the control API, metrics and
// health, interface section 3.
package control

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"reseat/gateway"
	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

type api struct{ g *gateway.Gateway }

// New makes the handler of the admin address. It trusts whoever reaches it
// from this machine, but no foreign page in a browser that does.
func New(g *gateway.Gateway) http.Handler {
	a := &api{g}
	mux := chi.NewMux()
	mux.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") })
	mux.Get("/readyz", a.ready)
	mux.Group(func(r chi.Router) {
		r.Use(ownPagesOnly)
		r.Handle("/metrics", promhttp.HandlerFor(g.Metrics(), promhttp.HandlerOpts{}))
		r.Route("/api/v1/sessions", func(r chi.Router) {
			r.Get("/", a.list)
			r.Get("/{id}", a.get)
			r.Delete("/{id}", a.end)
			r.Post("/{id}/disconnect", a.disconnect)
		})
		r.NotFound(func(w http.ResponseWriter, _ *http.Request) { problem(w, http.StatusNotFound, "no such resource") })
		r.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", "GET, DELETE, POST")
			problem(w, http.StatusMethodNotAllowed, "method not allowed for this resource")
		})
	})
	return mux
}

func (a *api) ready(w http.ResponseWriter, _ *http.Request) {
	if a.g.Draining() {
		text(w, http.StatusServiceUnavailable, "draining")
		return
	}
	text(w, http.StatusOK, "ok")
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := gateway.Filter{Group: q.Get("group"), Player: q.Get("player"), State: q.Get("state"), Limit: defaultLimit}
	var err error
	if s := q.Get("limit"); s != "" {
		if f.Limit, err = strconv.Atoi(s); err != nil || f.Limit < 1 || f.Limit > maxLimit {
			problem(w, http.StatusBadRequest, "limit: want 1 to "+strconv.Itoa(maxLimit))
			return
		}
	}
	if s := q.Get("cursor"); s != "" {
		if f.After, err = strconv.ParseUint(s, 10, 64); err != nil {
			problem(w, http.StatusBadRequest, "cursor: want the next of an earlier answer")
			return
		}
	}
	switch f.State {
	case "", "connecting", "attached", "detached", "ended":
	default:
		problem(w, http.StatusBadRequest, "state: want connecting, attached, detached or ended")
		return
	}
	page := struct {
		Sessions []gateway.SessionInfo `json:"sessions"`
		Next     string                `json:"next"`
	}{Sessions: []gateway.SessionInfo{}}
	list, next := a.g.Sessions(f)
	page.Sessions = append(page.Sessions, list...)
	if next > 0 {
		page.Next = strconv.FormatUint(next, 10)
	}
	answer(w, page)
}

func (a *api) get(w http.ResponseWriter, r *http.Request) {
	info, ok := a.g.Session(chi.URLParam(r, "id"))
	if !ok {
		problem(w, http.StatusNotFound, "no such session")
		return
	}
	answer(w, info)
}

func (a *api) end(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	code := wire.CodeNormal
	if s := q.Get("code"); s != "" {
		var err error
		if code, err = strconv.Atoi(s); err != nil || !wire.ByeCode(code) {
			problem(w, http.StatusBadRequest, "code: want 1000, 1001 or 3000 to 4999")
			return
		}
	}
	reason := q.Get("reason")
	if frame.Clip(reason, frame.MaxReason) != reason || !validText(reason) {
		problem(w, http.StatusBadRequest, "reason: want UTF-8 text of at most 123 bytes")
		return
	}
	outcome(w, a.g.End(chi.URLParam(r, "id"), code, reason), "the session has ended")
}

func (a *api) disconnect(w http.ResponseWriter, r *http.Request) {
	outcome(w, a.g.Disconnect(chi.URLParam(r, "id")), "no client is attached")
}

func outcome(w http.ResponseWriter, o gateway.Outcome, conflict string) {
	switch o {
	case gateway.Unknown:
		problem(w, http.StatusNotFound, "no such session")
	case gateway.Conflict:
		problem(w, http.StatusConflict, conflict)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	json.NewEncoder(w).Encode(v)
}

func text(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	w.Write([]byte(s + "\n"))
}

// problem answers with an error, RFC 9457.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}
