// Package history records what clients saw of one session's attaches, takeovers, ends
// and expiry, each with the times before the request and after the answer. porcupine
// then looks for an order of them that the protocol allows.
package history

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A Kind is what a client did or observed.
type Kind int

// The kinds.
const (
	New        Kind = iota // a first connection, answered by generation Got
	Resume                 // with the token of generation Gen
	Live                   // a ping on the connection whose hello carried Gen, and its pong
	Superseded             // close 4409 on the connection whose hello carried Gen
	End                    // an end was requested, by bye or by the game server
	Expire                 // the grace period was over
)

// An Outcome is the answer.
type Outcome int

// The outcomes.
const (
	Unknown Outcome = iota // no answer arrived: it may have happened, may still happen, or not
	Done                   // hello, pong, Close
	Refused                // by close with Code
)

type input struct {
	kind Kind
	gen  int
}

type output struct {
	outcome Outcome
	got     int // generation of hello
	code    int // of close
}

// state is the session's state according to the protocol.
type state struct {
	issued    int // the newest generation
	confirmed int // the last confirmed one: older ones are superseded
	current   int // that of the newest attach
	over      bool
}

// step returns every state that the session may be in after an operation; none: the
// protocol does not allow the operation.
func step(s state, in input, out output) []state {
	switch in.kind {
	case New:
		if s.issued == 0 {
			return []state{{issued: out.got, confirmed: out.got, current: out.got}}
		}
	case Resume:
		return s.resume(in.gen, out)
	case Live:
		return s.live(in.gen, out)
	case Superseded:
		if s.current > in.gen {
			return []state{s}
		}
	case End, Expire:
		over := s
		over.over = true
		if out.outcome == Unknown {
			return []state{s, over}
		}
		return []state{over}
	}
	return nil
}

func (s state) good(gen int) bool {
	return !s.over && gen >= s.confirmed && gen <= s.issued
}

func (s state) attach(gen int) state {
	return state{issued: s.issued + 1, confirmed: max(s.confirmed, gen), current: s.issued + 1}
}

func (s state) resume(gen int, out output) []state {
	switch {
	case out.outcome == Done && s.good(gen) && out.got == s.issued+1:
		return []state{s.attach(gen)}
	case out.outcome == Unknown && s.good(gen):
		return []state{s, s.attach(gen)}
	case out.outcome == Unknown:
		return []state{s}
	case out.outcome == Refused && s.mayRefuse(gen, out.code):
		return []state{s}
	}
	return nil
}

// mayRefuse reports whether a refusal is allowed: 4401 for a superseded generation,
// 4404 and 4410 for a session that has ended, 4408 for one that overflowed, 4409 while it
// lives (a hard resume that another has superseded during its dial: an abandoned one may reach
// the gateway later), 4429, 4502 (a hard resume whose dial failed), 4503 and 4504 at any time.
func (s state) mayRefuse(gen, code int) bool {
	switch code {
	case 4401:
		return gen < s.confirmed || s.over
	case 4404, 4408, 4410:
		return s.over
	case 4409:
		return !s.over
	case 4429, 4502, 4503, 4504:
		return true
	}
	return false
}

// live is the step of a ping: only the newest attach is answered, and its ping confirms
// its generation.
func (s state) live(gen int, out output) []state {
	heard := s
	heard.confirmed = max(s.confirmed, gen)
	alive := !s.over && s.current == gen
	switch {
	case out.outcome == Done && alive:
		return []state{heard}
	case out.outcome == Unknown && alive:
		return []state{s, heard}
	case out.outcome == Unknown:
		return []state{s}
	}
	return nil
}

// A History is what is known about one session. All its clients may add to it.
type History struct {
	mu  sync.Mutex
	ops []porcupine.Operation
}

var began = time.Now()

// Now is the clock of histories.
func Now() int64 { return int64(time.Since(began)) }

// Never is the return time of an operation that was never answered.
const Never = math.MaxInt64

// Begin records the start of an operation; the function that it returns, called once,
// records the answer.
func (h *History) Begin(client int, kind Kind, gen int) func(o Outcome, got, code int) {
	call := Now()
	return func(o Outcome, got, code int) {
		end := Now()
		if o == Unknown {
			end = Never
		}
		h.Add(client, kind, gen, call, end, o, got, code)
	}
}

// Add adds an operation whose times are known.
func (h *History) Add(client int, kind Kind, gen int, call, end int64, o Outcome, got, code int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Call: call, Return: end, Input: input{kind, gen}, Output: output{o, got, code}})
}

// Len returns the number of operations.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

var model = func() porcupine.Model {
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, in, out any) (next []any) {
			for _, n := range step(s.(state), in.(input), out.(output)) {
				next = append(next, n)
			}
			return next
		},
		DescribeOperation: describe,
	}
	return nm.ToModel()
}()

func describe(in, out any) string {
	i, o := in.(input), out.(output)
	what := fmt.Sprintf("%s %d", [...]string{"new", "resume with generation", "ping on generation", "4409 on generation", "end", "expiry"}[i.kind], i.gen)
	switch o.outcome {
	case Unknown:
		return what + " -> no answer"
	case Refused:
		return fmt.Sprintf("%s -> refused with %d", what, o.code)
	}
	if o.got > 0 {
		return fmt.Sprintf("%s -> generation %d", what, o.got)
	}
	return what + " -> done"
}

// A Verdict is porcupine's result for a history.
type Verdict int

// The verdicts.
const (
	Linearizable Verdict = iota
	Impossible
	Undecided // porcupine ran out of time
)

// Check has porcupine check the history. If it is impossible, Check also returns what
// the clients saw, in order of the answers.
func (h *History) Check(patience time.Duration) (Verdict, []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch porcupine.CheckOperationsTimeout(model, h.ops, patience) {
	case porcupine.Ok:
		return Linearizable, nil
	case porcupine.Unknown:
		return Undecided, nil
	}
	return Impossible, h.story()
}

func (h *History) story() (lines []string) {
	for _, op := range h.ops {
		end := "never"
		if op.Return != Never {
			end = fmt.Sprintf("%.3f", float64(op.Return)/1e9)
		}
		lines = append(lines, fmt.Sprintf("client %d, asked %.3f, answered %s: %s", op.ClientId, float64(op.Call)/1e9, end, describe(op.Input, op.Output)))
	}
	return lines
}
