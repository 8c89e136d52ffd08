package watch

import (
	"reseat/gateway/front"
	"reseat/gateway/registry"
	"reseat/gateway/session"
)

// RouteFigures holds the counts of one route since the process began.
type RouteFigures struct {
	Pattern  string      `json:"pattern"`
	Upstream string      `json:"upstream"` // its URL, without a password
	Sessions StateCounts `json:"sessions"` // of the moment

	Created  uint64 `json:"created"`
	Detached uint64 `json:"detached"` // how often a client was disconnected
	Resumed  uint64 `json:"resumed"`
	Refused  uint64 `json:"refused"` // first handshakes and resumes
	Ended    uint64 `json:"ended"`

	// Keepalive is the flag for what clients send at a steady pace, to paste; "" if nothing was noticed.
	Keepalive string `json:"keepalive"`
	// NewestHint is the flag for messages that look like states, to paste; "" if none do.
	NewestHint string `json:"newest_hint"`
}

// counts returns the counts of a session's route.
func (w *Watch) counts(e *registry.Record) *front.Counts { return w.o.Table.Route(e.Route).Counts }

// looksPerSecond limits the looks at what waits for clients: a mass reconnect must not pay for each.
const looksPerSecond = 10

// Look reports whether to look if what waits for e's client looks like states: not if some were noticed on its route.
func (w *Watch) Look(e *registry.Record) bool {
	return w.counts(e).Newest.Load() == nil && w.looks.Allow()
}

// routeFigures returns the figures of all routes, in the order of the settings.
func (w *Watch) routeFigures(all *registry.Survey) []RouteFigures {
	type of struct {
		route string
		state session.State
	}
	living := make(map[of]int)
	for i, e := range all.List {
		living[of{e.Route, all.Infos[i].State}]++
	}
	list := make([]RouteFigures, 0, len(w.o.Routes))
	for _, r := range w.o.Routes {
		c := w.o.Table.Route(r.Pattern).Counts
		f := RouteFigures{
			Pattern: r.Pattern, Upstream: r.Upstream.URL.Redacted(),
			Sessions: StateCounts{living[of{r.Pattern, session.Connecting}], living[of{r.Pattern, session.Attached}], living[of{r.Pattern, session.Detached}]},
			Created:  c.Created.Load(), Detached: c.Detached.Load(), Resumed: c.Resumed.Load(), Refused: c.Refused.Load(), Ended: c.Ended.Load(),
		}
		if flag := c.Keepalive.Load(); flag != nil {
			f.Keepalive = *flag
		}
		if flag := c.Newest.Load(); flag != nil {
			f.NewestHint = *flag
		}
		list = append(list, f)
	}
	return list
}

// StateCounts counts the living sessions by state.
type StateCounts struct {
	Connecting int `json:"connecting"`
	Attached   int `json:"attached"`
	Detached   int `json:"detached"`
}
