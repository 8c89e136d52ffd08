package gateway

import (
	"testing"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/session"
)

func TestRoundTripsOmitUnmeasuredClients(t *testing.T) {
	var infos []session.Info
	if median, high := roundTrips(infos); median != 0 || high != 0 {
		t.Errorf("of none: %v, %v", median, high)
	}
	for i := range 100 {
		infos = append(infos, session.Info{},
			session.Info{State: session.Attached, RTT: time.Duration(100-i) * time.Millisecond},
			session.Info{State: session.Detached, RTT: time.Hour})
	}
	if median, high := roundTrips(infos); median != 51 || high != 96 {
		t.Errorf("of 1 to 100 ms: %v, %v", median, high)
	}
}

// An answer is as large as its window, however many sessions there are.
func TestOverviewShowsOnlyItsWindow(t *testing.T) {
	g := newCrowd(t, many)
	o := g.Overview(registry.View{Filter: registry.Filter{Limit: 60}, Offset: 5000})
	if o.Matching != many || len(o.Sessions) != 60 || o.Sessions[0].Seq() != 5001 || o.Totals.Sessions.Connecting != many {
		t.Errorf("%d fit, %d shown from %d", o.Matching, len(o.Sessions), o.Offset)
	}
	allocs := testing.AllocsPerRun(3, func() {
		g.Overview(registry.View{Filter: registry.Filter{Limit: 60}, Sort: registry.ByPlayer, Offset: 5000})
	})
	if allocs > 600 {
		t.Errorf("%v allocations for 60 rows of %d", allocs, many)
	}
}

// A list of the API stops once its page is full; the overview counts, and sorts, all of them.
func TestOverviewCountsAllEndedSessions(t *testing.T) {
	g := newCrowd(t, 10)
	for _, e := range g.reg.All() {
		g.reg.AddTombstone(e, session.Info{State: session.Ended})
		g.reg.LegsClosed()
	}
	o := g.Overview(registry.View{Filter: registry.Filter{State: "ended", Limit: 2}, Descending: true})
	if o.Matching != 10 || len(o.Sessions) != 2 || o.Sessions[0].Seq() != 10 {
		t.Errorf("%d fit, %d shown: %+v", o.Matching, len(o.Sessions), o.Sessions)
	}
	if list, next := g.Sessions(registry.Filter{State: "ended", Limit: 2}); len(list) != 2 || next != 2 {
		t.Errorf("%d listed, next %d", len(list), next)
	}
}
