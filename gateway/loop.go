package gateway

import (
	"net/http"
	"regexp"
	"strings"
)

// ViaHeader carries the ids of the gateways that a request has come through to its game
// server, each made at its start. A gateway that finds its own there is its own game
// server, by way of others perhaps, and would otherwise ask itself until no descriptor is
// left. It is the one header of ours that is taken over from a client: anyone who forges
// an id has only their own request refused.
const ViaHeader = "Reseat-Via"

// maxHops is how many gateways may stand one behind the other.
const maxHops = 8

var instanceID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// hops are the gateways that a request has come through, the first one first. What is
// not all ids is none.
func hops(h http.Header) (ids []string) {
	for id := range strings.SplitSeq(strings.Join(h[ViaHeader], ","), ",") {
		id = strings.TrimSpace(id)
		if !instanceID.MatchString(id) {
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

// loops reports whether r has been here before, or through too many gateways.
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

// via is the ViaHeader of what r becomes at the game server.
func (g *Gateway) via(r *http.Request) []string {
	return []string{strings.Join(append(hops(r.Header), g.id), ", ")}
}

// refuseLoop answers a request that has come back.
func (g *Gateway) refuseLoop(w http.ResponseWriter, r *http.Request) {
	g.refusals.warn("upstream.loop", "path", requestPath(r), "text", "a game server of this gateway is the gateway itself: see --upstream, --route and --listen")
	g.refuseHTTP(w, r, http.StatusLoopDetected, "loop", "this gateway is its own game server")
}
