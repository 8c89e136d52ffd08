package watch

import (
	"slices"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
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
	Skipped         uint64 `json:"skipped"`

	BufferBytes int64   `json:"buffer_bytes"`  // current: memory of all replay buffers
	Loops       int     `json:"loops"`         // current: event loops in use
	LoopBusy    uint64  `json:"loop_busy_ms"`  // spent by all of them
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

// DrainInfo is a drain as the control API shows it.
type DrainInfo struct {
	Draining bool `json:"draining"`
	// Until is when the remaining sessions will be closed. Nil if they have been closed,
	// if there is no drain, or if the process is shutting down.
	Until    *time.Time `json:"until"`
	Sessions int        `json:"sessions"`
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
	Refusals  int               `json:"refusals"`   // first handshakes and resumes that were refused: see Watch.Refusals
	Routes    []RouteFigures    `json:"routes"`

	Matching int                 `json:"matching"` // sessions that fit the registry.View
	Offset   int                 `json:"offset"`   // of the first one below, among them
	Sessions []registry.Snapshot `json:"sessions"`
}

// Totals returns the current totals.
func (w *Watch) Totals() Totals {
	all := w.o.Registry.Survey()
	return w.totals(&all)
}

// Overview returns the totals and the sessions that v selects. It asks every living
// session once, as a scrape of the metrics does.
func (w *Watch) Overview(v registry.View) Overview {
	all := w.o.Registry.Survey()
	drain := w.o.Drain()
	_, refusals := w.ring.kept()
	o := Overview{
		Totals: w.totals(&all), Since: w.began.UTC(), ID: w.o.ID, DrainTime: registry.FormatDuration(w.o.DrainTime),
		Draining: drain.Draining, DrainUntil: drain.Until, MaxSessions: w.o.MaxSessions, BufferMaxBytes: w.o.Store.Limit(),
		EndedBy: w.Metrics.endedBy(), ResumesBy: w.Metrics.resumesBy(), Refusals: refusals, Routes: w.routeFigures(&all),
	}
	o.Time = o.Totals.Time
	if v.State == session.Ended.String() {
		ended := v.Filter
		ended.Limit = 0 // the window is chosen once they are sorted
		o.Sessions, o.Offset, o.Matching = v.Remembered(w.o.Registry.ListTombstones(ended))
	} else {
		o.Sessions, o.Offset, o.Matching = v.Living(&all)
	}
	return o
}

func (w *Watch) totals(all *registry.Survey) Totals {
	states, sum := all.Census()
	m := w.Metrics
	t := Totals{
		Time:     time.Now().UTC(),
		Sessions: StateCounts{states[session.Connecting], states[session.Attached], states[session.Detached]},
		Durable:  countDurable(all),
		Created:  value(m.Created), Detached: value(m.Drops),
		ToUpstream: sum.ToUpstream, ToClient: sum.ToClient, ToUpstreamBytes: sum.ToUpstreamBytes, ToClientBytes: sum.ToClientBytes,
		Replayed: sum.Replayed, Dropped: sum.Dropped, Skipped: sum.Skipped,
		BufferBytes: w.o.Store.Used(),
	}
	loops := w.o.Loops()
	t.Loops = transport.InUse(loops)
	for _, l := range loops {
		t.LoopBusy += uint64(l.Busy.Milliseconds())
	}
	for _, n := range m.endedBy() {
		t.Ended += n
	}
	for result, n := range m.resumesBy() {
		if result == ResumeOK {
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

func (m *Metrics) endedBy() map[string]uint64 { return values(m.Ended, session.Reasons()) }

func (m *Metrics) resumesBy() map[string]uint64 {
	return values(m.Resumes, append(wire.Names(), ResumeOK))
}

// BufferBytes is the memory that all replay buffers hold, in bytes.
func (w *Watch) BufferBytes() int64 { return w.o.Store.Used() }
