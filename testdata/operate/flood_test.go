package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// floods are what a stranger or a faulty client can do without end, each until ctx is
// done.
var floods = map[string]func(ctx context.Context, t *testing.T, url string){
	"messages of a client that acks nothing": func(ctx context.Context, t *testing.T, url string) {
		for ctx.Err() == nil {
			p := &player{t: t, url: url}
			if p.connect() != nil {
				continue
			}
			for ctx.Err() == nil && p.conn.Write(ctx, websocket.MessageBinary, make([]byte, 1000)) == nil {
			}
			p.conn.CloseNow()
		}
	},
	"pings": func(ctx context.Context, t *testing.T, url string) {
		p := &player{t: t, url: url}
		if p.connect() != nil {
			return
		}
		defer p.conn.CloseNow()
		go func() {
			for ctx.Err() == nil {
				if _, _, err := p.conn.Read(ctx); err != nil {
					return
				}
			}
		}()
		for ctx.Err() == nil && p.conn.Write(ctx, websocket.MessageText, []byte("\x10ping "+strings.Repeat("x", 32))) == nil {
		}
	},
	"empty messages of a plain client": func(ctx context.Context, t *testing.T, url string) {
		c, _, err := websocket.Dial(ctx, url, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for ctx.Err() == nil && c.Write(ctx, websocket.MessageBinary, nil) == nil {
		}
	},
	"resumes with bad tokens": func(ctx context.Context, t *testing.T, url string) {
		for ctx.Err() == nil {
			p := &player{t: t, url: url, token: strings.Repeat("x.", 1000)}
			if p.connect(); p.conn != nil {
				p.conn.CloseNow()
			}
		}
	},
	"new sessions that are left at once": func(ctx context.Context, t *testing.T, url string) {
		for ctx.Err() == nil {
			p := &player{t: t, url: url}
			if p.connect() == nil {
				p.tell("bye")
			}
			if p.conn != nil {
				p.conn.CloseNow()
			}
		}
	},
}

// Whatever one client does without end, another session receives all its messages, in
// order and over one connection, and afterwards the gateway holds nothing of the flood.
// The test logs the other's round trip times, and does not assert them.
func TestFloodCostsAnotherSessionNoMessage(t *testing.T) {
	for name, flood := range floods {
		for _, driver := range []string{"net", "poll"} {
			t.Run(name+", "+driver, func(t *testing.T) {
				ga := newGame(t, 0)
				g := start(t, "--upstream="+ga.url(), "--driver="+driver, "--grace=1s")
				p := g.join()
				ctx, stop := context.WithTimeout(context.Background(), time.Second)
				defer stop()
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() { flood(ctx, t, g.url()) })
				}
				var trips []time.Duration
				for ctx.Err() == nil || len(trips) < 20 {
					word, began := fmt.Sprint("word ", len(trips)), time.Now()
					p.wantEcho(word)
					trips = append(trips, time.Since(began))
				}
				all.Wait()
				slices.Sort(trips)
				t.Logf("%d round trips beside it: median %v, 99%% within %v", len(trips), trips[len(trips)/2], trips[len(trips)*99/100])
				if p.resumes > 0 {
					t.Errorf("the other session was cut %d times", p.resumes)
				}
				eventually(t, "only the other session is left", func() bool { return len(g.sessions()) == 1 })
				eventually(t, "its goroutines have ended", func() bool { return g.metric("go_goroutines", "") < 60 })
			})
		}
	}
}
