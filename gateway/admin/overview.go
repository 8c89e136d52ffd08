package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"reseat/gateway"
	"reseat/gateway/registry"
)

const (
	// maxRows is the max number of sessions in an overview, defaultRows the number without
	// a limit in the query: what a screen holds and a little more.
	maxRows     = 200
	defaultRows = 50
	// maxText is the max length of a search text in bytes.
	maxText = 200
)

// An overview is what the dashboard polls: one answer of bounded size holds everything that
// it shows.
type overview struct {
	gateway.Overview
	Host    string           `json:"host"`    // the machine's own name
	Version string           `json:"version"` // of the program
	Listen  string           `json:"listen"`  // the client address
	Write   bool             `json:"write"`   // whether the caller may change things
	Every   string           `json:"every"`   // time between samples
	Samples []gateway.Totals `json:"samples"`
	Upgrade Upgrade          `json:"upgrade"` // as in GET /upgrade
}

func (a *api) overview(w http.ResponseWriter, r *http.Request) {
	v, since, err := view(r.URL.Query())
	if err != nil {
		refuse(w, err)
		return
	}
	o := overview{Overview: a.g.Overview(v), Host: a.host, Version: a.version, Listen: a.listen, Write: callerOf(r).write, Every: sampleEvery.String(), Samples: a.recorder.since(since), Upgrade: a.upgrade()}
	if o.Sessions == nil {
		o.Sessions = []registry.Snapshot{}
	}
	answer(w, http.StatusOK, o)
}

// view parses the query of an overview.
func view(q url.Values) (v registry.View, since time.Time, err error) {
	v = registry.View{Filter: registry.Filter{Group: q.Get("group"), Player: q.Get("player"), State: q.Get("state"), Limit: defaultRows}, Text: q.Get("q")}
	if err = checkState(v.State); err != nil {
		return v, since, err
	}
	if len(v.Text) > maxText {
		return v, since, badRequest("q: want at most %d bytes", maxText)
	}
	if err = readWindow(q, &v); err != nil {
		return v, since, err
	}
	if s := q.Get("since"); s != "" {
		if since, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return v, since, badRequest("since: want the time of a sample, got %.100q", s)
		}
	}
	return v, since, readSort(q.Get("sort"), &v)
}

// readWindow parses limit and offset.
func readWindow(q url.Values, v *registry.View) error {
	if s := q.Get("limit"); s != "" {
		n, ok := number(s)
		if !ok || n > maxRows {
			return badRequest("limit: want 0 to %d", maxRows)
		}
		v.Limit = int(n)
	}
	if s := q.Get("offset"); s != "" {
		n, ok := number(s)
		if !ok || n > 1<<31-1 {
			return badRequest("offset: want how many sessions to skip")
		}
		v.Offset = int(n)
	}
	return nil
}

// readSort parses the name of an order, with - before it for descending.
func readSort(s string, v *registry.View) error {
	name, descending := strings.CutPrefix(s, "-")
	if s != "" && !slices.Contains(registry.Sorts(), registry.Sort(name)) {
		return badRequest("sort: want one of %v, with - before it for descending", registry.Sorts())
	}
	v.Sort, v.Descending = registry.Sort(name), descending
	return nil
}

// refusals answers with the newest refused handshakes and resumes.
func (a *api) refusals(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, struct {
		Refusals []gateway.Refusal `json:"refusals"`
	}{a.g.Refusals()})
}

// history answers with the events of one session.
func (a *api) history(w http.ResponseWriter, r *http.Request) {
	list, left, ok := a.g.History(id(r))
	if !ok {
		problem(w, http.StatusNotFound, noSession)
		return
	}
	if list == nil { // it is connecting
		list = []registry.Moment{}
	}
	answer(w, http.StatusOK, struct {
		Events []registry.Moment `json:"events"`
		Left   int               `json:"left_out"`
	}{list, left})
}
