package gateway

import "reseat/gateway/listen"

// reserved returns how many of these descriptors are not for sessions: a tenth, but at least
// 64, and at most half. Half of the reserve is for idle clients, a quarter for idle
// connections to the admin address, the rest for the process itself.
func reserved(descriptors int) int {
	return max(descriptors/10, min(64, descriptors/2))
}

// SessionsWithin returns the number of sessions that these descriptors allow; zero means no limit.
func SessionsWithin(descriptors int) int {
	if descriptors <= 0 {
		return 0
	}
	return max((descriptors-reserved(descriptors))/2, 1)
}

// trackConns makes the trackers of the client address and the admin address. They are
// separate, so that clients of one cannot use up the other's share.
func (g *Gateway) trackConns() {
	g.conns = listen.NewConnTracker(listen.Options{
		Max: g.cfg.Descriptors - reserved(g.cfg.Descriptors)/2, InUse: g.reg.InUse, Short: g.closeIdle, Closed: g.watch.IdleClosed,
	})
	g.adminConns = listen.NewConnTracker(listen.Options{Max: reserved(g.cfg.Descriptors) / 4, Closed: g.watch.IdleClosed})
}

// Conns tracks the idle connections of the client address.
func (g *Gateway) Conns() *listen.ConnTracker { return g.conns }

// AcceptOnLoops has ln accept connections for event loops, if there are any. It must be called
// before ln accepts, and only if nothing between ln and the gateway needs a net.TCPConn.
func (g *Gateway) AcceptOnLoops(ln *listen.Listener) {
	if g.driver.Loops() {
		if err := ln.AcceptBy(g.driver.Accepted); err != nil {
			g.log.Debug("listen.no_loops", "err", err)
		}
	}
}

// AdminConns tracks the idle connections of the admin address.
func (g *Gateway) AdminConns() *listen.ConnTracker { return g.adminConns }

// closeIdle closes idle connections to game servers, to free their descriptors.
func (g *Gateway) closeIdle() {
	for _, p := range g.proxies {
		p.Close()
	}
}
