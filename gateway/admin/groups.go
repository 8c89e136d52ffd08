package admin

import (
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"reseat/gateway"
)

// group returns a handler that applies do to all sessions of a group.
func (a *api) group(do func(g *gateway.Gateway, group, by string) int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, err := groupOf(r)
		if err != nil || name == "" { // "" would name the sessions without a group
			problem(w, http.StatusNotFound, "no such resource")
			return
		}
		answer(w, http.StatusOK, struct {
			Sessions int `json:"sessions"`
		}{do(a.g, name, callerOf(r).name)})
	}
}

// groupOf returns the group in a path. The router leaves it escaped if its escapes matter.
func groupOf(r *http.Request) (string, error) {
	name := chi.URLParam(r, "group")
	if r.URL.RawPath == "" {
		return name, nil
	}
	return url.PathUnescape(name)
}
