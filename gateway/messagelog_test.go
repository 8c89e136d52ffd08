package gateway_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"reseat/gateway"
	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// Each data message has its line, with the configured part of it; control messages have none.
func TestMessagesAreLoggedIfConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		log  session.MessageLog
		want []string
	}{
		"off":  {session.MessageLog{}, nil},
		"size": {session.MessageLog{On: true}, []string{"to_upstream kind=text size=5\n", "to_client kind=binary size=300\n", "to_upstream kind=text size=3\n", "to_client kind=text size=4\n", "to_upstream kind=text size=6\n"}},
		"prefix": {session.MessageLog{On: true, Prefix: 4}, []string{
			`size=5 head="\"hell\""`, `size=300 head="\"zzzz\""`, `size=3 head="\"\\x10ab\""`, `size=4 head="\"\\x10\\x10\\nx\""`, `size=6 head="\"in p\""`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pol := testPolicy()
				pol.MessageLog = c.log
				said := new(bytes.Buffer)
				w := newWorld(t, pol, func(c *gateway.Config) { c.Log = slog.New(slog.NewTextHandler(said, nil)) })
				p, game := w.play()
				p.Pass(game, "hello")
				game.Binary(strings.Repeat("z", 300))
				p.Want(strings.Repeat("z", 300))
				p.Pass(game, "\x10ab")
				game.Pass(p, "\x10\x10\nx")
				p.Frame(frame.Text, false, "in")
				p.Frame(frame.Continuation, true, " par")
				game.Next()
				synctest.Wait()
				var got []string
				for line := range strings.Lines(said.String()) {
					if strings.Contains(line, "msg=message") {
						got = append(got, line)
					}
				}
				if len(got) != len(c.want) {
					t.Fatalf("%d lines, want %d: %q", len(got), len(c.want), got)
				}
				for i, want := range c.want {
					if !strings.Contains(got[i], want) {
						t.Errorf("line %q, want %q in it", got[i], want)
					}
				}
			})
		})
	}
}
