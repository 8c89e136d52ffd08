package message

import (
	"strings"
	"testing"
)

func take(c *Check, numbers ...uint64) {
	for _, n := range numbers {
		c.Take(c.Message(n))
	}
}

// stages passes message 1 of one try to c, and then 1 and 2 of another, starting at a
// number.
func stages(c *Check, one, other int, from uint64) {
	c.Staged = true
	first, then := c.Stream, c.Stream
	first.Try, then.Try = one, other
	c.Take(first.Message(1))
	for n := from; n <= 2; n++ {
		c.Take(then.Message(n))
	}
}

// Each kind of error is distinguished, and its description names the message.
func TestCheckDescribesEachError(t *testing.T) {
	for _, c := range []struct {
		name string
		feed func(*Check)
		want Verdicts
		says string
	}{
		{"all in order", func(c *Check) { take(c, 1, 2, 3); c.Complete(3) }, Verdicts{}, ""},
		{"a gap", func(c *Check) { take(c, 1, 4); c.Complete(4) }, Verdicts{Lost: 2}, "messages 2 to 3 were lost"},
		{"a repeat", func(c *Check) { take(c, 1, 2, 2, 3) }, Verdicts{Twice: 1}, "message 2 came twice"},
		{"swapped", func(c *Check) { take(c, 1, 3, 2, 4) }, Verdicts{Disorder: 1}, "message 2 came out of order"},
		{"the end missing", func(c *Check) { take(c, 1, 2); c.Complete(5) }, Verdicts{Lost: 3}, "messages 3 to 5 were lost at the end"},
		{"more than was sent", func(c *Check) { take(c, 1, 2); c.Complete(1) }, Verdicts{Wrong: 1}, "only 1 were sent"},
		{"a changed byte", func(c *Check) {
			text, p := c.Message(1)
			p[len(p)-1] ^= 1
			c.Take(text, p)
		}, Verdicts{Wrong: 1}, "message 1 was altered"},
		{"the other kind", func(c *Check) {
			text, p := c.Message(1)
			c.Take(!text, p)
		}, Verdicts{Wrong: 1}, "message 1 was altered"},
		{"midway", func(c *Check) { c.Midway(); take(c, 7, 8); c.Complete(8) }, Verdicts{}, ""},
		{"a gap behind midway", func(c *Check) { c.Midway(); take(c, 7, 9) }, Verdicts{Lost: 1}, "messages 8 to 8 were lost"},
		{"come again, as allowed", func(c *Check) { take(c, 1, 2, 3); c.Rewind(); take(c, 2, 3, 4) }, Verdicts{}, ""},
		{"come again later than allowed", func(c *Check) { take(c, 1, 2, 3); c.Rewind(); take(c, 4, 2) }, Verdicts{Twice: 1}, "message 2 came twice"},
		{"a gap where some might have repeated", func(c *Check) { take(c, 1, 2, 3); c.Rewind(); take(c, 5) }, Verdicts{Lost: 1}, "messages 4 to 4 were lost"},
		{"as many lost as was said", func(c *Check) { take(c, 1); c.Skip(2); take(c, 4); c.Complete(4) }, Verdicts{}, ""},
		{"more lost than was said", func(c *Check) { take(c, 1); c.Skip(2); take(c, 5) }, Verdicts{Lost: 1}, "messages 4 to 4 were lost"},
		{"fewer lost than was said", func(c *Check) { take(c, 1); c.Skip(2); take(c, 3) }, Verdicts{Twice: 1}, "message 3 came twice"},
		{"replaced ones that are states", func(c *Check) {
			c.States = true
			take(c, 1)
			c.Replaced(2)
			take(c, 4, 5, 6, 7)
			c.Complete(7)
		}, Verdicts{}, ""},
		{"one that is no state", func(c *Check) { c.States = true; take(c, 1, 2); c.Replaced(2); take(c, 5, 6, 7, 8); c.Complete(8) }, Verdicts{Lost: 1}, "message 4 was lost: it was skipped"},
		{"the newest of its key", func(c *Check) { c.States = true; take(c, 1); c.Replaced(1); take(c, 3, 4, 5); c.Complete(5) }, Verdicts{Lost: 1}, "message 2 was lost: it was skipped"},
		{"the next stage", func(c *Check) { stages(c, 0, 1, 1); c.Complete(2) }, Verdicts{}, ""},
		{"a stage without its beginning", func(c *Check) { stages(c, 0, 1, 2) }, Verdicts{Lost: 1}, "messages 1 to 1 were lost"},
		{"a stage that was over", func(c *Check) { stages(c, 1, 0, 1) }, Verdicts{Wrong: 2}, "none of this session's"},
		{"another session's", func(c *Check) {
			other := c.Stream
			other.Session++
			c.Take(other.Message(1))
		}, Verdicts{Wrong: 1}, "none of this session's"},
	} {
		check := &Check{Stream: Stream{Seed: 7, Session: 3}}
		c.feed(check)
		if check.Verdicts != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, check.Verdicts, c.want)
		}
		if said := strings.Join(check.Faults, "; "); !strings.Contains(said, c.says) || c.says == "" && said != "" {
			t.Errorf("%s: said %q", c.name, said)
		}
	}
}

func TestStreamsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, up := range []bool{false, true} {
		for session := range 3 {
			for n := range uint64(50) {
				_, p := Stream{Seed: 1, Up: up, Session: session}.Message(n + 1)
				if seen[string(p)] {
					t.Fatalf("message %d of session %d came a second time", n+1, session)
				}
				seen[string(p)] = true
			}
		}
	}
}

// Which messages of a session with several connections of the game server were replaced shows when the next one comes.
func TestReplacedMessagesBelongToTheTryOfTheNextOne(t *testing.T) {
	for _, c := range []struct {
		replaced uint64
		try      int
		next     uint64
		lost     uint64
	}{
		{3, 0, 8, 0},  // 5 to 7 are states
		{4, 0, 9, 1},  // 8 is none
		{2, 1, 1, 0},  // 5 and 6, of the older connection
		{4, 1, 2, 0},  // and 1 of the newer
		{5, 1, 2, 1},  // 8 of the older one
		{9, 2, 3, 0},  // of a connection of which nothing came
		{1, 1, 3, 1},  // of the newer one 1 or 2 is missing
		{10, 1, 6, 2}, // 8 of the older one, 4 of the newer
	} {
		k := Check{Stream: Stream{States: true}, Staged: true}
		take(&k, 1, 2, 3, 4)
		k.Replaced(c.replaced)
		s := k.Stream
		s.Try = c.try
		k.Take(s.Message(c.next))
		if k.Verdicts != (Verdicts{Lost: c.lost}) || k.Try != c.try || k.Taken != c.next {
			t.Errorf("%+v: %+v, message %d of try %d, %q", c, k.Verdicts, k.Taken, k.Try, k.Faults)
		}
	}
}
