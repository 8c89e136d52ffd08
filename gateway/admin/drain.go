package admin

import (
	"net/http"
)

// nodeDrain returns a handler that makes a call for the drain of the node in the path. own
// is that of this node.
func (a *api) nodeDrain(own http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, err := inPath(r, "name")
		if err != nil || callOf(r).node != "" { // nodes ask each other for /drain
			notFound(w, r)
			return
		}
		a.atNode(w, r, name, "/drain", func() { own(w, r) })
	}
}

func (a *api) drain(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, a.g.DrainInfo())
}

// beginDrain is idempotent: a drain that has begun continues.
func (a *api) beginDrain(w http.ResponseWriter, r *http.Request) {
	a.g.BeginDrain()
	a.drain(w, r)
}

func (a *api) cancelDrain(w http.ResponseWriter, r *http.Request) {
	if !a.g.CallOffDrain() {
		problem(w, http.StatusConflict, "the process is shutting down")
		return
	}
	a.drain(w, r)
}

func (a *api) upgradeState(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, a.Upgrade())
}
