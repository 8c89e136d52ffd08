package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/upgrade"
	"reseat/gateway/watch"
)

const (
	// maxRows is the max number of sessions in an overview, defaultRows the number without
	// a limit in the query: what a screen holds and a little more.
	maxRows     = 200
	defaultRows = 50
	// maxText is the max length of a search text in bytes.
	maxText = 200
)

// An overview is polled by the dashboard: one answer of bounded size holds everything that
// it shows.
type overview struct {
	watch.Overview
	Host    string         `json:"host"`    // the machine's own name
	Version string         `json:"version"` // of the program
	Listen  string         `json:"listen"`  // the client address
	Write   bool           `json:"write"`   // whether the caller may change things
	Every   string         `json:"every"`   // time between samples
	Samples []watch.Totals `json:"samples"`
	Upgrade upgrade.Status `json:"upgrade"` // as in GET /upgrade

	// In a cluster: all nodes, this one first, the names of those that did not answer, and this
	// node's connection to NATS.
	Nodes   []shownNode   `json:"nodes,omitzero"`
	Missing []string      `json:"nodes_missing,omitzero"`
	Engine  *engineStatus `json:"engine,omitzero"`
}

func (a *api) overview(w http.ResponseWriter, r *http.Request) {
	most := maxRows
	if callOf(r).node != "" {
		most = maxMerged
	}
	v, since, err := view(r.URL.Query(), most)
	if err != nil {
		refuse(w, err)
		return
	}
	if !a.alone(r) {
		answer(w, http.StatusOK, a.overviewOfAll(r, v, since))
		return
	}
	answer(w, http.StatusOK, a.ownOverview(r, v, since))
}

// ownOverview is the overview of this node.
func (a *api) ownOverview(r *http.Request, v registry.View, since time.Time) overview {
	o := overview{Overview: a.g.Watch().Overview(v), Host: a.Host, Version: a.Version, Listen: a.Listen, Write: callOf(r).write, Every: sampleEvery.String(), Samples: a.Recorder.since(since), Upgrade: a.Upgrade()}
	if o.Sessions == nil {
		o.Sessions = []registry.Snapshot{}
	}
	o.Sessions = a.named(o.Sessions)
	return o
}

// view parses the query of an overview of up to most sessions.
func view(q url.Values, most int) (v registry.View, since time.Time, err error) {
	v = registry.View{Filter: registry.Filter{Group: q.Get("group"), Player: q.Get("player"), State: q.Get("state"), Limit: defaultRows}, Text: q.Get("q")}
	if err = checkState(v.State); err != nil {
		return v, since, err
	}
	if len(v.Text) > maxText {
		return v, since, badRequest("q: want at most %d bytes", maxText)
	}
	if err = readWindow(q, &v, most); err != nil {
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
func readWindow(q url.Values, v *registry.View, most int) error {
	if s := q.Get("limit"); s != "" {
		n, ok := number(s)
		if !ok || n > uint64(most) {
			return badRequest("limit: want 0 to %d", most)
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
func (a *api) refusals(w http.ResponseWriter, r *http.Request) {
	page := refusalPage{Refusals: []refusal{}}
	name := a.nodeName()
	for _, own := range a.g.Watch().Refusals() {
		page.Refusals = append(page.Refusals, refusal{own, name})
	}
	if !a.alone(r) {
		a.refusalsElsewhere(r, &page)
	}
	answer(w, http.StatusOK, page)
}

// A refusalPage is the newest refusals.
type refusalPage struct {
	Refusals []refusal `json:"refusals"`
	Missing  []string  `json:"nodes_missing,omitzero"` // nil outside a cluster
}

type refusal struct {
	watch.Refusal
	Node string `json:"node,omitempty"`
}

// maxRefusals is the max number of them, as of one node.
const maxRefusals = 100

// refusalsElsewhere adds those of the other nodes, in order of time.
func (a *api) refusalsElsewhere(r *http.Request, page *refusalPage) {
	list, missing := askEach[refusalPage](a, r, a.others(), http.MethodGet, "/refusals", "")
	for _, there := range list {
		if there != nil {
			page.Refusals = append(page.Refusals, there.Refusals...)
		}
	}
	slices.SortStableFunc(page.Refusals, func(x, y refusal) int { return y.Time.Compare(x.Time) })
	page.Refusals = page.Refusals[:min(len(page.Refusals), maxRefusals)]
	page.Missing = names(missing)
}

// history answers with the events of one session.
func (a *api) history(w http.ResponseWriter, r *http.Request) {
	list, left, ok := a.g.Control().History(id(r))
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
