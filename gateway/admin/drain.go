package admin

import "net/http"

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
