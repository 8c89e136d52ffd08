package history

import (
	"testing"
	"time"
)

type op struct {
	kind      Kind
	gen       int
	call, end int64
	outcome   Outcome
	got, code int
}

// For each history it is known whether the protocol allows it.
func TestHistoriesAreJudgedByTheProtocol(t *testing.T) {
	first := op{New, 0, 0, 1, Done, 1, 0}
	for _, c := range []struct {
		name string
		ops  []op
		want Verdict
	}{
		{"a resume", []op{first, {Resume, 1, 2, 3, Done, 2, 0}}, Linearizable},
		{"two resumes at once, both attached one after the other", []op{first, {Resume, 1, 2, 5, Done, 2, 0}, {Resume, 1, 2, 5, Done, 3, 0}}, Linearizable},
		{"two resumes at once get one generation", []op{first, {Resume, 1, 2, 5, Done, 2, 0}, {Resume, 1, 2, 5, Done, 2, 0}}, Impossible},
		{"a superseded token is refused", []op{first, {Resume, 1, 2, 3, Done, 2, 0}, {Live, 2, 4, 5, Done, 0, 0}, {Resume, 1, 6, 7, Refused, 0, 4401}}, Linearizable},
		{"a superseded token is accepted", []op{first, {Resume, 1, 2, 3, Done, 2, 0}, {Live, 2, 4, 5, Done, 0, 0}, {Resume, 1, 6, 7, Done, 3, 0}}, Impossible},
		{"a good token is refused as superseded", []op{first, {Resume, 1, 2, 3, Done, 2, 0}, {Resume, 1, 6, 7, Refused, 0, 4401}}, Impossible},
		{"an older connection still answers", []op{first, {Resume, 1, 2, 3, Done, 2, 0}, {Live, 1, 4, 5, Done, 0, 0}}, Impossible},
		{"an older connection answered meanwhile", []op{first, {Resume, 1, 2, 6, Done, 2, 0}, {Live, 1, 3, 5, Done, 0, 0}}, Linearizable},
		{"4409 without a successor", []op{first, {Superseded, 1, 2, 3, Done, 0, 0}}, Impossible},
		{"4409 in a dial", []op{first, {Resume, 1, 2, Never, Unknown, 0, 0}, {Resume, 1, 3, 4, Refused, 0, 4409}, {Resume, 1, 5, 6, Done, 2, 0}}, Linearizable},
		{"4409 in a dial for a session that has ended", []op{first, {End, 0, 2, 3, Done, 0, 0}, {Resume, 1, 4, 5, Refused, 0, 4409}}, Impossible},
		{"4409 by an attempt whose hello was lost", []op{first, {Resume, 1, 2, Never, Unknown, 0, 0}, {Superseded, 1, 2, 5, Done, 0, 0}, {Resume, 1, 6, 7, Done, 3, 0}}, Linearizable},
		{"a generation left out", []op{first, {Resume, 1, 2, 3, Done, 3, 0}}, Impossible},
		{"attached after its end", []op{first, {End, 0, 2, 3, Done, 0, 0}, {Resume, 1, 4, 5, Done, 2, 0}}, Impossible},
		{"4404 before its end", []op{first, {Resume, 1, 2, 3, Refused, 0, 4404}, {End, 0, 4, 5, Done, 0, 0}}, Impossible},
		{"4502 by a hard resume, which changes nothing", []op{first, {Resume, 1, 2, 3, Refused, 0, 4502}, {Resume, 1, 4, 5, Done, 2, 0}}, Linearizable},
		{"4408 behind its end", []op{first, {End, 0, 2, Never, Unknown, 0, 0}, {Resume, 1, 4, 5, Refused, 0, 4408}}, Linearizable},
		{"attached behind 4408", []op{first, {End, 0, 2, Never, Unknown, 0, 0}, {Resume, 1, 4, 5, Refused, 0, 4408}, {Resume, 1, 6, 7, Done, 2, 0}}, Impossible},
		{"4404 after the grace period", []op{first, {Expire, 0, 10, 12, Done, 0, 0}, {Resume, 1, 13, 14, Refused, 0, 4404}}, Linearizable},
		{"a resume and the expiry at once", []op{first, {Expire, 0, 10, Never, Unknown, 0, 0}, {Resume, 1, 9, 12, Done, 2, 0}}, Linearizable},
	} {
		var h History
		for i, o := range c.ops {
			h.Add(i, o.kind, o.gen, o.call, o.end, o.outcome, o.got, o.code)
		}
		if got, story := h.Check(time.Second); got != c.want {
			t.Errorf("%s: got %d, want %d %v", c.name, got, c.want, story)
		}
	}
}
