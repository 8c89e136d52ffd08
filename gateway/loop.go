package gateway

import (
	"net/http"
	"regexp"
	"strings"
)

// ViaHeader carries the ids of the gateways that a request has passed; each gateway makes
// its id at its start. A gateway that finds its own id is its own game server, perhaps via
// others, and would dial itself until it had no descriptors left. It is the only header of
// the gateway's that it takes from a client: a forged id only has the forger's own request
// refused.
const ViaHeader = "X-Reseat-Via"

// maxHops is how many gateways a request may pass.
const maxHops = 8

var instanceID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// hops are the gateways that a request has passed, the first one first. It is empty if
// the header contains anything but ids.
func hops(h http.Header) (ids []string) {
	if h[ViaHeader] == nil {
		return nil
	}
	for id := range strings.SplitSeq(strings.Join(h[ViaHeader], ","), ",") {
		id = strings.TrimSpace(id)
		if !instanceID.MatchString(id) {
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

// loops reports whether r has passed this gateway before, or too many gateways.
func (g *Gateway) loops(r *http.Request) bool {
	ids := hops(r.Header)
	if len(ids) >= maxHops {
		return true
	}
	for _, id := range ids {
		if id == g.id {
			return true
		}
	}
	return false
}

// via is the ViaHeader of r towards the game server.
func (g *Gateway) via(r *http.Request) []string {
	return []string{strings.Join(append(hops(r.Header), g.id), ", ")}
}

// refuseLoop refuses a request that has passed this gateway before.
func (g *Gateway) refuseLoop(w http.ResponseWriter, r *http.Request) {
	g.refusals.warn("upstream.loop", "path", requestPath(r), "text", "the upstream of a route is this gateway itself; check --upstream and --route against --listen")
	g.refuseHTTP(w, r, http.StatusLoopDetected, "loop", "this gateway is its own game server")
}
