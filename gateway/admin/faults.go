package admin

import (
	"net/http"

	"reseat/gateway/faults"
)

// maxFault is the max size of the body of a fault in bytes.
const maxFault = 1 << 10

// fault begins a fault of a session's connections.
func (a *api) fault(w http.ResponseWriter, r *http.Request) {
	if !a.mayFault(w, r) {
		return
	}
	body, err := readBody(w, r, maxFault)
	var f faults.Fault
	if err == nil {
		f, err = faults.Parse(body)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	if err := a.Faults.Apply(id(r), f); err != nil {
		problem(w, http.StatusConflict, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// clearFaults ends all faults of a session.
func (a *api) clearFaults(w http.ResponseWriter, r *http.Request) {
	if a.mayFault(w, r) {
		a.Faults.Clear(id(r))
		w.WriteHeader(http.StatusNoContent)
	}
}

// mayFault refuses faults without --dev, and for a session that does not live.
func (a *api) mayFault(w http.ResponseWriter, r *http.Request) bool {
	if a.Faults == nil {
		problem(w, http.StatusConflict, "faults need --dev, which is not for production")
		return false
	}
	s, ok := a.g.Control().Session(id(r))
	switch {
	case !ok:
		problem(w, http.StatusNotFound, noSession)
	case s.State == "ended":
		problem(w, http.StatusConflict, sessionEnded)
	}
	return ok && s.State != "ended"
}
