package front

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// ViaHeader carries the ids of the gateways that a request has passed; each gateway makes
// its id at its start. A gateway that finds its own id is its own game server, perhaps via
// others, and would dial itself until it had no descriptors left. It is the only header of
// the gateway's that it takes from a client: a forged id only has the forger's own request
// refused.
const ViaHeader = "X-Reseat-Via"

// maxHops bounds the gateways that a request may pass.
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

// Loops reports whether r has passed the gateway with that id before, or too many gateways.
func (r *Request) Loops(id string) bool {
	ids := hops(r.Header)
	return len(ids) >= maxHops || slices.Contains(ids, id)
}

// Via is the ViaHeader of r towards the game server, from the gateway with that id.
func Via(h http.Header, id string) []string {
	return []string{strings.Join(append(hops(h), id), ", ")}
}
