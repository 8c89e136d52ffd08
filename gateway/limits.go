package gateway

import "reseat/gateway/listen"

// reserved is how many of so many descriptors are not for sessions: a tenth of them, 64
// at least where there are as many. At least half of these are for clients that wait, a
// quarter is for those of the admin address, and the last one is for the process itself.
func reserved(descriptors int) int {
	return max(descriptors/10, min(64, descriptors/2))
}

// SessionsWithin is how many sessions so many descriptors allow; zero: any number.
func SessionsWithin(descriptors int) int {
	if descriptors <= 0 {
		return 0
	}
	return max((descriptors-reserved(descriptors))/2, 1)
}

// trackConns makes the trackers of the client address and of the admin address: nobody
// at the one can take a place from the other.
func (g *Gateway) trackConns() {
	closed := func(n int) {
		g.metrics.shed.Add(float64(n))
		g.shedLog.warn("descriptors.short", "limit", g.cfg.Descriptors, "text", "connections that wait are closed, the longest waiting first; raise the limit of open files")
	}
	g.conns = listen.NewConnTracker(listen.Options{
		Max: g.cfg.Descriptors - reserved(g.cfg.Descriptors)/2, InUse: g.reg.Taken, Short: g.closeIdle, Closed: closed,
	})
	g.adminConns = listen.NewConnTracker(listen.Options{Max: reserved(g.cfg.Descriptors) / 4, Closed: closed})
}

// Conns tracks the connections of the client address that wait.
func (g *Gateway) Conns() *listen.ConnTracker { return g.conns }

// AdminConns tracks those of the admin address.
func (g *Gateway) AdminConns() *listen.ConnTracker { return g.adminConns }

// closeIdle gives back the descriptors of connections to game servers between two
// ordinary requests.
func (g *Gateway) closeIdle() {
	for _, p := range g.proxies {
		p.Close()
	}
}
