//go:build linux

package failover

import (
	"fmt"
	"time"

	"reseat/gateway/internal/test/harness/chaos/history"
)

// claimTime is how long before its log line a claim may have begun.
const claimTime = 15 * time.Second

// judgeOwners checks who had each session when: by the logs' claims, and by the hellos that its client took.
func (co *company) judgeOwners() (faults []string) {
	ids := map[[2]int]string{} // of nodes
	for _, l := range co.s.said("cluster.joined") {
		ids[[2]int{l.node, l.life}] = l.Node
	}
	claims := map[string][]line{}
	for _, l := range co.s.said("session.claimed") {
		claims[l.Session] = append(claims[l.Session], l)
	}
	for _, c := range co.clients {
		c.mu.Lock()
		var o history.Owners
		for _, l := range claims[c.session] {
			if !o.Took(l.Epoch, ids[[2]int{l.node, l.life}], l.at.Add(-claimTime).UnixNano(), l.at.UnixNano()) {
				faults = append(faults, fmt.Sprintf("client %d (%s): two nodes claim it in epoch %d", c.id, c.session, l.Epoch))
			}
		}
		for _, h := range c.hellos {
			o.Hello(h.epoch(), h.owner(), h.asked.UnixNano(), h.at.UnixNano())
		}
		if !o.Check() {
			faults = append(faults, fmt.Sprintf("client %d (%s): no order of what its nodes did is allowed: %v", c.id, c.session, &o))
		}
		c.mu.Unlock()
	}
	return faults
}
