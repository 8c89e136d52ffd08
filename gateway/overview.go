package gateway

import (
	"slices"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// Totals are the counts of a gateway since the process began, except those marked as
// current.
type Totals struct {
	Time     time.Time   `json:"time"`
	Sessions StateCounts `json:"sessions"` // current

	Durable DurableCounts `json:"durable"` // current

	Created  uint64 `json:"created"`
	Detached uint64 `json:"detached"` // how often a client was disconnected
	Resumed  uint64 `json:"resumed"`
	Refused  uint64 `json:"refused"` // resumes
	Ended    uint64 `json:"ended"`

	ToUpstream      uint64 `json:"to_upstream"` // data messages, each once
	ToClient        uint64 `json:"to_client"`
	ToUpstreamBytes uint64 `json:"to_upstream_bytes"` // their payload
	ToClientBytes   uint64 `json:"to_client_bytes"`
	Replayed        uint64 `json:"replayed"`
	Dropped         uint64 `json:"dropped"`

	BufferBytes int64   `json:"buffer_bytes"`  // current: memory of all replay buffers
	RTTMedian   float64 `json:"rtt_median_ms"` // of the attached clients; 0 if none was measured
	RTTHigh     float64 `json:"rtt_p95_ms"`
}

// DurableCounts counts the living sessions that may go on at another node.
type DurableCounts struct {
	Covered int `json:"covered"` // another node can go on with them
	Exposed int `json:"exposed"` // it cannot: NATS does not have what that takes
}

func countDurable(all *registry.Survey) (n DurableCounts) {
	for i, e := range all.List {
		state := all.Infos[i].State
		if state == session.Ended {
			continue
		}
		switch e.Durability(state) {
		case registry.Covered:
			n.Covered++
		case registry.Exposed:
			n.Exposed++
		}
	}
	return n
}

// An Overview is a gateway at one moment: its totals, and the sessions that a
// registry.View selects.
type Overview struct {
	Time           time.Time  `json:"time"`
	Since          time.Time  `json:"since"` // when the process began
	ID             string     `json:"id"`    // of the process, as in X-Reseat-Via
	Draining       bool       `json:"draining"`
	DrainUntil     *time.Time `json:"drain_until"`  // as DrainInfo.Until
	DrainTime      string     `json:"drain_time"`   // Config.Drain
	MaxSessions    int        `json:"max_sessions"` // 0: no limit
	BufferMaxBytes int64      `json:"buffer_max_bytes"`

	Totals    Totals            `json:"totals"`
	EndedBy   map[string]uint64 `json:"ended_by"`   // reason
	ResumesBy map[string]uint64 `json:"resumes_by"` // result
	Refusals  int               `json:"refusals"`   // first handshakes and resumes that were refused: see Gateway.Refusals
	Routes    []RouteFigures    `json:"routes"`

	Matching int                 `json:"matching"` // sessions that fit the registry.View
	Offset   int                 `json:"offset"`   // of the first one below, among them
	Sessions []registry.Snapshot `json:"sessions"`
}

// Totals returns the current totals.
func (g *Gateway) Totals() Totals {
	all := g.reg.Survey()
	return g.totals(&all)
}

// Overview returns the totals and the sessions that v selects. It asks every living
// session once, as a scrape of the metrics does.
func (g *Gateway) Overview(v registry.View) Overview {
	all := g.reg.Survey()
	o := Overview{
		Totals: g.totals(&all), Since: g.began.UTC(), ID: g.id, DrainTime: registry.FormatDuration(g.cfg.Drain),
		MaxSessions: g.cfg.MaxSessions, BufferMaxBytes: g.cfg.BufferTotal,
		EndedBy: g.metrics.endedBy(), ResumesBy: g.metrics.resumesBy(), Refusals: g.refused.count(), Routes: g.routeFigures(&all),
	}
	drain := g.DrainInfo()
	o.Draining, o.DrainUntil = drain.Draining, drain.Until
	o.Time = o.Totals.Time
	if v.State == session.Ended.String() {
		ended := v.Filter
		ended.Limit = 0 // the window is chosen once they are sorted
		o.Sessions, o.Offset, o.Matching = v.Remembered(g.reg.ListTombstones(ended))
	} else {
		o.Sessions, o.Offset, o.Matching = v.Living(&all)
	}
	return o
}

func (g *Gateway) totals(all *registry.Survey) Totals {
	states, sum := all.Census()
	m := g.metrics
	t := Totals{
		Time:     time.Now().UTC(),
		Sessions: StateCounts{states[session.Connecting], states[session.Attached], states[session.Detached]},
		Durable:  countDurable(all),
		Created:  value(m.created), Detached: value(m.drops),
		ToUpstream: sum.ToUpstream, ToClient: sum.ToClient, ToUpstreamBytes: sum.ToUpstreamBytes, ToClientBytes: sum.ToClientBytes,
		Replayed: sum.Replayed, Dropped: sum.Dropped,
		BufferBytes: g.store.Used(),
	}
	for _, n := range m.endedBy() {
		t.Ended += n
	}
	for result, n := range m.resumesBy() {
		if result == resumeOK {
			t.Resumed = n
		} else {
			t.Refused += n
		}
	}
	t.RTTMedian, t.RTTHigh = roundTrips(all.Infos)
	return t
}

// roundTrips returns the median and the 95th percentile, in milliseconds.
func roundTrips(infos []session.Info) (median, high float64) {
	var list []time.Duration
	for i := range infos {
		if infos[i].State == session.Attached && infos[i].RTT > 0 {
			list = append(list, infos[i].RTT)
		}
	}
	if len(list) == 0 {
		return 0, 0
	}
	slices.Sort(list)
	return milliseconds(list[len(list)/2]), milliseconds(list[len(list)*95/100])
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// resumeOK is the label of a resume that was not refused.
const resumeOK = "ok"

func (m *metrics) endedBy() map[string]uint64 { return values(m.ended, session.Reasons()) }

func (m *metrics) resumesBy() map[string]uint64 {
	return values(m.resumes, append(wire.Names(), resumeOK))
}
