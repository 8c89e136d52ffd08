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

// Every way to be wrong is told from the others, and the sentence names the message.
func TestCheckSaysWhatIsWrong(t *testing.T) {
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
