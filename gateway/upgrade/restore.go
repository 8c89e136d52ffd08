package upgrade

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"reseat/gateway/events"
	"reseat/gateway/front"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
	"reseat/gateway/watch"
	"reseat/gateway/wire"
	"reseat/upstream"
)

// This file is the successor's side of an upgrade: it restores sessions, and begins to
// serve them once they are its own.

// Incoming restores a predecessor's sessions. Its methods must not be called at the same
// time, except for Decode.
type Incoming struct {
	u     *Sessions
	list  []restored
	terms map[termsKey]*registry.Terms

	renew  bool       // the clients of sessions that follow late
	pumped []restored // those with a connection whose bytes the predecessor forwards
}

// Incoming returns the Incoming of about n sessions for u.
func (u *Sessions) Incoming(n int) *Incoming {
	u.Registry.Expect(n)
	return &Incoming{u: u, terms: make(map[termsKey]*registry.Terms)}
}

// A restored session waits for Adopt.
type restored struct {
	Received
	e    *registry.Record
	core *session.Session

	client   session.Leg // at the restore; nil: none was attached
	upstream *session.Upstream

	upBy, downBy forwarder // of the connections that are forwarded
}

// A forwarder is a process that forwards a connection. The system does not report its pid in
// another container.
type forwarder struct {
	pid   int
	older bool
}

// A termsKey identifies terms that sessions can share.
type termsKey struct {
	route  string
	terms  registry.StateTerms // without BeforeStart
	before time.Duration       // BeforeStart; negative: nil
}

// A Received is a predecessor's FrozenSession, as it arrives.
type Received struct {
	Record, State, Content []byte
	Up, Down               int // descriptors; negative: there is none
	// UpForwarded and DownForwarded: the predecessor, or a process older than that, forwards
	// the connection's bytes. Older: an older one does.
	UpForwarded, DownForwarded, Older bool
}

// A Decoded session is returned by Decode, for Restore.
type Decoded struct {
	Received
	state *registry.State
	core  *session.Session
}

// Decode is the part of Restore that takes long. It may be called from any goroutine, after
// InheritRoutes.
func (t *Incoming) Decode(format int, m Received) (Decoded, error) {
	s, err := registry.ReadState(m.Record)
	if err != nil {
		return Decoded{}, err
	}
	core, err := session.Restore(format, m.State, m.Content, t.u.Store, registry.MaskingKey)
	if err != nil {
		return Decoded{}, fmt.Errorf("session %s: %w", s.ID, err)
	}
	m.Record, m.State, m.Content = nil, nil, nil
	return Decoded{m, s, core}, nil
}

// Restore makes a session of what a predecessor has frozen. It touches no connection; the
// descriptors are used by Adopt.
func (t *Incoming) Restore(d Decoded) error {
	u, s := t.u, d.state
	rt := u.Table.Route(s.Route)
	if rt == nil {
		return fmt.Errorf("session %s: no route %q", s.ID, s.Route)
	}
	e, err := rt.Restore(u.Registry, s, t.termsOf(rt, &s.Terms), u.Store)
	if err != nil {
		return err
	}
	t.list = append(t.list, restored{e: e, core: d.core, Received: d.Received, client: session.Leg(d.core.Attachment()), upstream: d.core.Upstream()})
	return nil
}

// InheritRoutes adds the predecessor's routes, with their game servers, that the settings do
// not have any more: their sessions go on under the general settings, and no new ones begin.
// It must be called before Restore.
func (u *Sessions) InheritRoutes(upstreams map[string]string) error {
	for pattern, url := range upstreams {
		if u.Table.Route(pattern) != nil {
			continue
		}
		target, err := upstream.ParseTarget(url)
		if err != nil {
			return fmt.Errorf("route %q: %w", pattern, err)
		}
		u.Table.Inherit(front.NewRoute(policy.Route{Pattern: pattern, Policy: u.Default, Upstream: upstream.Target{URL: target}}))
	}
	return nil
}

// RouteUpstreams returns the upstream of each route, for InheritRoutes.
func (u *Sessions) RouteUpstreams() map[string]string {
	all := make(map[string]string)
	for rt := range u.Table.All() {
		all[rt.Pattern] = rt.Upstream.URL.String()
	}
	return all
}

// termsOf returns the terms of a restored session. Sessions with the same terms share them.
func (t *Incoming) termsOf(rt *front.Route, s *registry.StateTerms) *registry.Terms {
	key := termsKey{route: rt.Pattern, terms: *s, before: -1}
	if s.BeforeStart != nil {
		key.terms.BeforeStart, key.before = nil, *s.BeforeStart
	}
	if known := t.terms[key]; known != nil {
		return known
	}
	n := s.Apply(rt.Terms)
	t.terms[key] = n
	return n
}

// Adopt begins to serve the restored sessions. left are the ids of those that the
// predecessor still has: resumes wait for them until AdoptLate or NoneLate.
func (t *Incoming) Adopt(left []string) {
	t.u.Late.expect(left)
	t.adoptAll()
	t.u.Driver.Pause()()    // returns when all event loops have the sessions
	t.u.Running.Go(func() { // the predecessor may have been about to write them
		t.u.Owner.RenewSeats()
	})
}

// adoptAll adopts the restored sessions, on all processors: they stand still meanwhile.
func (t *Incoming) adoptAll() {
	for _, r := range t.list {
		if r.UpForwarded || r.DownForwarded {
			r.upBy, r.downBy = forwarder{rawconn.PeerOf(r.Up), r.Older}, forwarder{rawconn.PeerOf(r.Down), r.Older}
			t.pumped = append(t.pumped, r)
		}
	}
	var all sync.WaitGroup
	for part := range slices.Chunk(t.list, len(t.list)/runtime.GOMAXPROCS(0)+1) {
		all.Go(func() {
			for _, r := range part {
				t.adopt(r)
			}
		})
	}
	all.Wait()
	t.list = nil
}

func (t *Incoming) adopt(r restored) {
	t.u.Owner.KeepPlayer(r.e)
	now := t.u.Clock.Now() // nobody else has the core yet
	r.core.RenewSoon(now)
	if r.DownForwarded {
		r.core.Move(now, moveWithin, "upgrade")
	}
	without, _ := r.core.Outage()
	up, down := transport.End{FD: r.Up, Forwarded: r.UpForwarded}, transport.End{FD: r.Down, Forwarded: r.DownForwarded}
	r.e.Adopt(t.u.Driver.Adopt(r.core, up, down, t.u.Observe(r.e)))
	if without > 0 {
		t.u.Dialer.BeginOutage(r.e)
	}
}

// Forwarded counts the connections of the sessions of predecessors whose bytes predecessors
// still forward, and these processes.
func (t *Incoming) Forwarded() (conns, processes int) {
	all := make(map[forwarder]bool)
	count := func(by forwarder) {
		conns++
		all[by] = true
	}
	for _, r := range t.pumped {
		r.e.Do(func(core *session.Session, _ session.Time) {
			down, up := r.depends(core)
			if down {
				count(r.downBy)
			}
			if up {
				count(r.upBy)
			}
		})
	}
	return conns, len(all)
}

// depends reports which of the connections of r are still those that a predecessor forwards.
func (r *restored) depends(core *session.Session) (down, up bool) {
	if core.State() == session.Ended {
		return false, false
	}
	a := core.Attachment()
	return r.DownForwarded && a != nil && session.Leg(a) == r.client, r.UpForwarded && core.Upstream() == r.upstream
}

// Abandon forgets the restored sessions, which will not be adopted, and closes their
// descriptors: if the predecessor has crashed, nobody else has them.
func (t *Incoming) Abandon() {
	for _, r := range t.list {
		t.u.Registry.Release(r.e, t.u.Store)
		rawconn.Release(r.Up)
		rawconn.Release(r.Down)
	}
	t.list = nil
}

// moveWithin limits the time in which clients leave a pumped connection.
const moveWithin = 5 * time.Second

// EndPumps has the clients leave that still depend on the forwarding of the predecessor, or of
// processes older than that, which is about to end. Those that can resume do so; a plain client
// gets a retry delay. With --disconnect hard the upstream is dialled again at that resume;
// other upstream connections are lost.
func (t *Incoming) EndPumps(older bool) {
	for _, r := range t.pumped {
		if r.Older != older {
			continue
		}
		r.e.Do(func(core *session.Session, now session.Time) {
			down, up := r.depends(core)
			switch {
			case core.Attachment() == nil:
			case !r.e.Resumable && (down || up):
				core.CloseClient(now, wire.CodeServiceRestart, "upgrade")
			case down, up && r.e.Terms().Hard:
				core.Disconnect(now)
			}
		})
	}
	t.pumped = slices.DeleteFunc(t.pumped, func(r restored) bool { return r.Older == older })
}

// AdoptLate begins to serve sessions that were restored after Adopt. Their players may
// have begun other sessions meanwhile.
func (t *Incoming) AdoptLate() {
	list := t.list
	t.adoptAll()
	for _, r := range list {
		if !t.u.CommitSession(r.e) {
			r.e.Supersede()
		}
		if t.renew {
			t.u.Renew(r.e)
		}
		t.u.Late.arrived(r.e.ID)
	}
}

// RenewTokens sends all attached clients new tokens, also those of AdoptLate. It is called
// once, after Adopt, if the predecessor has signed them by another key, or was about to renew
// them. It does not wait.
func (t *Incoming) RenewTokens() {
	t.renew = true
	t.u.RenewTokens()
}

// NoneLate says that the predecessor has no further sessions.
func (t *Incoming) NoneLate() { t.u.Late.none() }

// A Rest has all that a successor needs besides the sessions.
type Rest struct {
	Events   RecentEvents
	Totals   registry.Totals
	Tags     uint64
	Refusals []watch.Refusal // oldest first
	Refused  int
	Routes   map[string][5]uint64
	Counters []watch.Counter
	Renewing bool // clients are being sent new tokens: those of frozen sessions still wait
}

// RecentEvents are the events that an event stream can begin with.
type RecentEvents struct {
	List    []events.Event // oldest first
	IDs     []uint64       // of the events in List
	Evicted uint64         // the newest ID that is not kept any more
}

// Add adds newer events.
func (r *RecentEvents) Add(newer RecentEvents) {
	r.List, r.IDs, r.Evicted = append(r.List, newer.List...), append(r.IDs, newer.IDs...), newer.Evicted
}

// RecentEvents returns the events after the one with that ID, 0 for all.
func (u *Sessions) RecentEvents(after uint64) (r RecentEvents) {
	r.List, r.Evicted = u.Watch.Events.Recent(after)
	for _, e := range r.List {
		r.IDs = append(r.IDs, e.ID)
	}
	return r
}

// Rest returns the Rest for a successor. Its events are those after the
// one with that ID.
func (u *Sessions) Rest(after uint64) Rest {
	r := Rest{Events: u.RecentEvents(after), Totals: u.Registry.Totals(), Tags: u.Registry.Tags(), Routes: make(map[string][5]uint64), Counters: u.Watch.Metrics.Counts(), Renewing: u.Renewing()}
	r.Refusals, r.Refused = u.Watch.RefusalsSoFar()
	for rt := range u.Table.All() {
		r.Routes[rt.Pattern] = rt.Counts.Load()
	}
	return r
}

// RestoreRest continues the predecessor's events and counts.
func (u *Sessions) RestoreRest(r Rest) {
	list := r.Events.List
	for i := range min(len(list), len(r.Events.IDs)) {
		list[i].ID = r.Events.IDs[i]
	}
	u.Watch.Events.Continue(list, r.Events.Evicted)
	u.Registry.RestoreTotals(r.Totals)
	u.Registry.ContinueTags(r.Tags)
	u.Watch.ContinueRefusals(r.Refusals, r.Refused)
	for pattern, n := range r.Routes {
		if rt := u.Table.Route(pattern); rt != nil {
			rt.Counts.Add(n)
		}
	}
	u.Watch.Metrics.Add(r.Counters)
}

// RestoreTombstone adds a tombstone of the predecessor. If the predecessor had kept the session, resumes
// that wait for it are refused now.
func (u *Sessions) RestoreTombstone(b []byte) error {
	id, err := u.Registry.RestoreTombstone(b)
	if err == nil {
		u.Late.arrived(id)
	}
	return err
}
