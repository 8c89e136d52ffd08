//go:build linux

package failover

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// An operation is one on the register of a session's owner.
type operation struct {
	taken bool   // by another node; else a hello that the client took
	epoch uint64 // of the seat
	owner string
}

type register struct {
	epoch uint64 // of the newest owner,
	owner string
	hello uint64 // and of the newest hello that was taken
}

// owners is that register: whoever takes the session counts a new epoch, a hello is said by the owner
// of its epoch, and a client takes none of an older epoch after one of a newer.
var owners = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, _ any) (bool, any) {
		s, op := state.(register), input.(operation)
		switch {
		case op.taken && op.epoch != s.epoch+1, !op.taken && (op.epoch > s.epoch || op.epoch < s.hello):
			return false, s
		case op.taken:
			s.epoch, s.owner = op.epoch, op.owner
		case op.epoch == s.epoch && op.owner != s.owner && op.epoch > 0:
			return false, s
		default:
			s.hello = op.epoch
		}
		return true, s
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

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
		ops, epochs := historyOf(c, claims[c.session], ids)
		if n := slices.Max(append(epochs, 0)); !slices.Equal(epochs, slices.Sorted(slices.Values(epochs))) || len(epochs) > 0 && uint64(len(epochs)) > n {
			faults = append(faults, fmt.Sprintf("client %d (%s): taken in the epochs %v", c.id, c.session, epochs))
		}
		if !porcupine.CheckOperations(owners, ops) {
			faults = append(faults, fmt.Sprintf("client %d (%s): no order of what nodes and client did is allowed: %+v", c.id, c.session, ops))
		}
		c.mu.Unlock()
	}
	return faults
}

// historyOf makes the operations of a session, and returns the epochs in which it was taken. A hand-over is
// known by the first hello after it; one without any, by the next epoch.
func historyOf(c *client, claims []line, ids map[[2]int]string) (ops []porcupine.Operation, epochs []uint64) {
	add := func(op operation, from, to time.Time) {
		ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: op, Call: from.UnixNano(), Return: to.UnixNano()})
	}
	taken := map[uint64]bool{}
	for _, l := range claims {
		add(operation{true, l.Epoch, ids[[2]int{l.node, l.life}]}, l.at.Add(-claimTime), l.at)
		epochs = append(epochs, l.Epoch)
		taken[l.Epoch] = true
	}
	last := time.Now()
	var newest uint64
	for _, h := range c.hellos {
		newest = max(newest, h.epoch())
		add(operation{false, h.epoch(), h.owner()}, h.asked, h.at)
		if e := h.epoch(); e > 0 && !taken[e] {
			taken[e] = true
			add(operation{true, e, h.owner()}, c.hellos[0].asked, h.at)
		}
	}
	for e := range max(newest, slices.Max(append(slices.Collect(maps.Keys(taken)), 0))) {
		if e > 0 && !taken[e] {
			add(operation{true, e, "unknown"}, c.hellos[0].asked, last)
		}
	}
	return ops, epochs
}
