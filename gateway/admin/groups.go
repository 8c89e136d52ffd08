package admin

import (
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"reseat/gateway/control"
)

// group returns a handler that applies do to all sessions of a group, on all nodes. If a
// node does not answer it has been done on the others: the caller repeats the call.
func (a *api) group(do func(c *control.Control, group, by string) int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, err := inPath(r, "group")
		if err != nil || name == "" { // "" would name the sessions without a group
			problem(w, http.StatusNotFound, "no such resource")
			return
		}
		n := do(a.g.Control(), name, callOf(r).name)
		if a.alone(r) {
			answer(w, http.StatusOK, groupSize{Sessions: n})
			return
		}
		a.groupElsewhere(w, r, n)
	}
}

// A groupSize is the number of a group's sessions.
type groupSize struct {
	Sessions int      `json:"sessions"`
	Missing  []string `json:"nodes_missing,omitzero"` // nil outside a cluster
}

// groupElsewhere sends a call for a group, which has been done here to n sessions, to the
// other nodes.
func (a *api) groupElsewhere(w http.ResponseWriter, r *http.Request, n int) {
	list, missing := askEach[groupSize](a, r, a.others(), r.Method, pathIn(r), "")
	for _, there := range list {
		if there != nil {
			n += there.Sessions
		}
	}
	if missing == nil {
		answer(w, http.StatusOK, groupSize{n, []string{}})
		return
	}
	details{Status: http.StatusBadGateway, Detail: "it was not done by nodes that did not answer: repeat the call", Sessions: &n, Missing: names(missing)}.write(w)
}

// inPath returns a part of a path. The router leaves it escaped if its escapes matter.
func inPath(r *http.Request, part string) (string, error) {
	name := chi.URLParam(r, part)
	if r.URL.RawPath == "" {
		return name, nil
	}
	return url.PathUnescape(name)
}
