package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// Owners is the register of a durable session's owner: which node of a cluster has it. Whoever takes the session
// counts one epoch on, a hello is said by the owner of its epoch, and a client takes none of an older epoch after
// one of a newer.
type Owners struct {
	ops    []porcupine.Operation
	taken  map[uint64]bool
	newest uint64
	first  int64 // when anything was asked first
}

// register is the state of Owners.
type register struct {
	epoch uint64 // of the newest owner,
	owner string
	hello uint64 // and of the newest hello that was taken
}

type ownership struct {
	taken bool // by another node; else a hello that the client took
	epoch uint64
	owner string
}

var owners = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, _ any) (bool, any) {
		s, op := state.(register), input.(ownership)
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

func (o *Owners) add(op ownership, call, end int64) {
	if len(o.ops) == 0 || call < o.first {
		o.first = call
	}
	o.newest = max(o.newest, op.epoch)
	o.ops = append(o.ops, porcupine.Operation{ClientId: len(o.ops), Input: op, Call: call, Return: end})
}

// Took adds that a node took the session in an epoch, at some time between call and end. It reports false if one
// did so already.
func (o *Owners) Took(epoch uint64, node string, call, end int64) bool {
	if o.taken == nil {
		o.taken = map[uint64]bool{}
	}
	if o.taken[epoch] {
		return false
	}
	o.taken[epoch] = true
	o.add(ownership{true, epoch, node}, call, end)
	return true
}

// Hello adds a hello of a node's in an epoch that the client has asked for at call, and taken at end. Hellos are
// added in order, after what is known of nodes that took the session: one of an epoch of which nothing is known
// says who did.
func (o *Owners) Hello(epoch uint64, node string, call, end int64) {
	o.add(ownership{false, epoch, node}, call, end)
	if epoch > 0 && !o.taken[epoch] {
		o.Took(epoch, node, o.first, end)
	}
}

// Check reports whether an order of all that is allowed. Of epochs that left no trace some node took the session.
func (o *Owners) Check() bool {
	for e := range o.newest {
		if e > 0 && !o.taken[e] {
			o.Took(e, "", o.first, Never)
		}
	}
	return porcupine.CheckOperations(owners, o.ops)
}

// String says what was added.
func (o *Owners) String() (text string) {
	for _, op := range o.ops {
		what := op.Input.(ownership)
		verb := "hello of"
		if what.taken {
			verb = "taken by"
		}
		text += fmt.Sprintf("%s %s in epoch %d, %.3f", verb, what.owner, what.epoch, float64(op.Call)/1e9)
		if op.Return != Never {
			text += fmt.Sprintf(" to %.3f", float64(op.Return)/1e9)
		}
		text += "; "
	}
	return text
}
