package admin

import (
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"reseat/gateway"
)

// group makes a call of something that is done to all sessions of a group.
func (a *api) group(do func(g *gateway.Gateway, group, by string) int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, err := groupOf(r)
		if err != nil || name == "" { // "" would be those that have no group
			problem(w, http.StatusNotFound, "no such resource")
			return
		}
		answer(w, http.StatusOK, struct {
			Sessions int `json:"sessions"`
		}{do(a.g, name, callerOf(r).name)})
	}
}

// groupOf is the name in a path, which the router leaves escaped where its
// escapes matter.
func groupOf(r *http.Request) (string, error) {
	name := chi.URLParam(r, "group")
	if r.URL.RawPath == "" {
		return name, nil
	}
	return url.PathUnescape(name)
}
