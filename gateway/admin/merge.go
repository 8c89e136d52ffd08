package admin

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/registry"
	"reseat/gateway/watch"
)

// maxMerged bounds how far an overview can look into the sorted sessions of a cluster: each node
// sends all of its sessions up to there, since any of them may be among the first.
const maxMerged = 5000

// figures are what is left of the last answers of the other nodes: of a node that does not
// answer, the counts stay in the sums, so that those do not fall and rise again.
type figures struct {
	mu   sync.Mutex
	last map[string]overview // by node id
}

// overviewOfAll is the overview of all nodes. What cannot be summed is this node's: times,
// names, the drain and the upgrade.
func (a *api) overviewOfAll(r *http.Request, v registry.View, since time.Time) overview {
	wide := v
	wide.Offset, wide.Limit = 0, min(v.Offset+v.Limit, maxMerged)
	others, missing := a.overviewsElsewhere(r, overviewQuery(r.URL.Query(), wide.Limit, since))
	own := a.ownOverview(r, wide, since)
	sum := own
	sum.EndedBy, sum.ResumesBy, sum.Routes = maps.Clone(own.EndedBy), maps.Clone(own.ResumesBy), slices.Clone(own.Routes)
	peers, unlimited := make([]peer, 0, len(others)), own.MaxSessions == 0
	for id, o := range others {
		o, present := a.heard.note(id, o)
		sum.add(&o)
		unlimited = unlimited || present && o.MaxSessions == 0
		if !o.Time.IsZero() {
			peers = append(peers, peer{append(slices.Clone(o.Samples), o.Totals), o.Since})
		}
	}
	if unlimited {
		sum.MaxSessions = 0
	}
	sum.Offset = min(v.Offset, max(sum.Matching-v.Limit, 0), maxMerged-v.Limit)
	sum.Sessions = v.Merge(sum.Sessions, sum.Offset)
	sum.Samples = slices.Clone(own.Samples)
	for i := range sum.Samples {
		for _, p := range peers {
			addTotals(&sum.Samples[i], p.at(sum.Samples[i].Time))
		}
	}
	sum.Nodes, sum.Missing, sum.Engine = shown(a.present()), names(missing), a.engine()
	return sum
}

// overviewsElsewhere returns the overviews of the other nodes by their ids; nil for those
// that did not answer.
func (a *api) overviewsElsewhere(r *http.Request, query string) (list map[string]*overview, missing []cluster.Node) {
	nodes := a.others()
	answers, missing := askEach[overview](a, r, nodes, http.MethodGet, "/overview", query)
	list = make(map[string]*overview)
	for i, n := range nodes {
		list[n.ID] = answers[i]
	}
	a.heard.keep(list)
	return list, missing
}

// overviewQuery asks another node for its part of an overview: as the caller has asked, but
// for its first sessions, and for samples on both sides of each of this node's.
func overviewQuery(asked url.Values, limit int, since time.Time) string {
	q := make(url.Values)
	for _, name := range []string{"q", "group", "player", "state", "sort"} {
		if asked.Has(name) {
			q.Set(name, asked.Get(name))
		}
	}
	q.Set("limit", strconv.Itoa(limit))
	if !since.IsZero() {
		q.Set("since", since.Add(-2*sampleEvery).Format(time.RFC3339Nano))
	}
	return q.Encode()
}

// keep forgets the nodes that are not in list.
func (f *figures) keep(list map[string]*overview) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.last, func(id string, _ overview) bool { _, known := list[id]; return !known })
}

// note keeps what a node has answered. For nil it returns what was kept, and present is
// false: what the node had then is not counted any more.
func (f *figures) note(id string, o *overview) (_ overview, present bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o == nil {
		return f.last[id], false
	}
	if f.last == nil {
		f.last = make(map[string]overview)
	}
	f.last[id] = o.counted()
	return *o, true
}

// counted is the part of o that only grows.
func (o overview) counted() overview {
	o.Sessions, o.Matching, o.BufferMaxBytes, o.MaxSessions = nil, 0, 0, 0
	o.Totals, o.Routes = counted(&o.Totals), slices.Clone(o.Routes)
	for i := range o.Routes {
		o.Routes[i].Sessions = watch.StateCounts{}
	}
	return o
}

// add adds what another node has answered.
func (o *overview) add(other *overview) {
	o.Sessions = append(o.Sessions, other.Sessions...)
	o.Matching += other.Matching
	o.BufferMaxBytes += other.BufferMaxBytes
	o.MaxSessions += other.MaxSessions
	o.Refusals += other.Refusals
	addTotals(&o.Totals, other.Totals)
	addMap(o.EndedBy, other.EndedBy)
	addMap(o.ResumesBy, other.ResumesBy)
	for i := range other.Routes {
		to, f := o.route(&other.Routes[i]), &other.Routes[i]
		addStates(&to.Sessions, f.Sessions)
		to.Created += f.Created
		to.Detached += f.Detached
		to.Resumed += f.Resumed
		to.Refused += f.Refused
		to.Ended += f.Ended
		to.Keepalive = cmp.Or(to.Keepalive, f.Keepalive)
		to.NewestHint = cmp.Or(to.NewestHint, f.NewestHint)
	}
}

// route returns the figures of the same route as f, which are added if there are none.
func (o *overview) route(f *watch.RouteFigures) *watch.RouteFigures {
	i := slices.IndexFunc(o.Routes, func(own watch.RouteFigures) bool { return own.Pattern == f.Pattern && own.Upstream == f.Upstream })
	if i < 0 {
		i = len(o.Routes)
		o.Routes = append(o.Routes, watch.RouteFigures{Pattern: f.Pattern, Upstream: f.Upstream})
	}
	return &o.Routes[i]
}

func addMap(to, from map[string]uint64) {
	for name, n := range from {
		to[name] += n
	}
}

func addStates(to *watch.StateCounts, n watch.StateCounts) {
	to.Connecting += n.Connecting
	to.Attached += n.Attached
	to.Detached += n.Detached
}

// counted is the part of t that only grows.
func counted(t *watch.Totals) watch.Totals {
	c := *t
	c.Sessions, c.Durable, c.BufferBytes, c.Loops, c.RTTMedian, c.RTTHigh = watch.StateCounts{}, watch.DurableCounts{}, 0, 0, 0, 0
	return c
}

// counters are those of t, in a fixed order.
func counters(t *watch.Totals) []*uint64 {
	return []*uint64{&t.Created, &t.Detached, &t.Resumed, &t.Refused, &t.Ended, &t.ToUpstream, &t.ToClient, &t.ToUpstreamBytes, &t.ToClientBytes, &t.Replayed, &t.Dropped, &t.Skipped, &t.LoopBusy}
}

// addTotals adds the totals of another node. Round trips cannot be summed: the median
// becomes the nodes' mean, weighted by their clients, and the 95th percentile the largest.
func addTotals(to *watch.Totals, from watch.Totals) {
	if n, m := weight(to), weight(&from); n+m > 0 {
		to.RTTMedian = (to.RTTMedian*n + from.RTTMedian*m) / (n + m)
	}
	to.RTTHigh = max(to.RTTHigh, from.RTTHigh)
	addStates(&to.Sessions, from.Sessions)
	to.Durable.Covered += from.Durable.Covered
	to.Durable.Exposed += from.Durable.Exposed
	to.BufferBytes += from.BufferBytes
	to.Loops += from.Loops
	more := counters(&from)
	for i, n := range counters(to) {
		*n += *more[i]
	}
}

// weight is the number of clients that a median stands for, 0 if none was measured.
func weight(t *watch.Totals) float64 {
	if t.RTTMedian == 0 {
		return 0
	}
	return float64(t.Sessions.Attached)
}

// A peer is another node's totals over time.
type peer struct {
	points []watch.Totals // oldest first; the last are those of its answer
	since  time.Time      // when its process began
}

// at returns the totals at a time, as far as they are known: between two points
// proportionally, since nodes take their samples at different times.
func (p peer) at(t time.Time) watch.Totals {
	i, exact := slices.BinarySearchFunc(p.points, t, func(x watch.Totals, t time.Time) int { return x.Time.Compare(t) })
	switch {
	case exact:
		return p.points[i]
	case i == len(p.points):
		return p.points[i-1]
	case i == 0 && p.since.Before(t):
		return counted(&p.points[0])
	case i == 0:
		return watch.Totals{}
	}
	before, after := p.points[i-1], p.points[i]
	part := float64(t.Sub(before.Time)) / float64(after.Time.Sub(before.Time))
	later := counters(&after)
	for i, n := range counters(&before) {
		if *later[i] > *n {
			*n += uint64(part * float64(*later[i]-*n))
		}
	}
	return before
}
