package client_test

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/client"
	"reseat/gateway/newest"
	"reseat/gateway/policy"
)

// A narrow connection carries so many bytes a second each way.
type narrow struct {
	net.Conn
	rate   int
	bytes  *atomic.Int64
	closed chan struct{}
	close  sync.Once
}

func (c *narrow) pass(n int) {
	c.bytes.Add(int64(n))
	select {
	case <-time.After(time.Duration(n) * time.Second / time.Duration(c.rate)):
	case <-c.closed:
	}
}

func (c *narrow) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *narrow) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), 1400)])
	c.pass(n)
	return n, err
}

func (c *narrow) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		k, err = c.Conn.Write(b[n:min(n+1400, len(b))])
		c.pass(k)
		n += k
	}
	return n, err
}

// A cut costs what was on its way, and no side takes a line for dead on which a large message comes or goes.
func TestLargeMessagesGoOnWhereTheyWereCut(t *testing.T) {
	inWorld(t, func(w *world) {
		const rate, size = 12_000, 600_000
		var bytes atomic.Int64
		w.wrap = func(c net.Conn) net.Conn {
			return &narrow{Conn: c, rate: rate, bytes: &bytes, closed: make(chan struct{})}
		}
		var resumes atomic.Int32
		c, game := w.play(client.Options{OnResume: func(client.Resumed) { resumes.Add(1) }})
		large := strings.Repeat("0123456789", size/10)
		for _, way := range []struct {
			name       string
			send, take func()
		}{
			{"down", func() { game.Text(large) }, func() { c.want(large) }},
			{"up", func() { c.say(large) }, func() { game.Want(large) }},
		} {
			bytes.Store(0)
			resumes.Store(0)
			began := time.Now()
			over := make(chan struct{})
			go func() {
				for {
					select {
					case <-time.After(7 * time.Second):
						w.cut()
					case <-over:
						return
					}
				}
			}()
			way.send()
			way.take()
			close(over)
			if took, native := time.Since(began), time.Duration(size/rate)*time.Second; took > native*3/2 || bytes.Load() > size*3/2 {
				t.Errorf("%s: %v and %d bytes, natively %v and %d", way.name, took, bytes.Load(), native, size)
			}
			if n := resumes.Load(); n < 5 || n > 11 {
				t.Errorf("%s: %d resumes", way.name, n)
			}
		}
	}, func(p *policy.Policy) { p.MaxMessage = 1 << 20 })
}

func TestReplacedMessagesAreSkipped(t *testing.T) {
	rules, err := newest.Parse([]string{"tick=tick"})
	if err != nil {
		t.Fatal(err)
	}
	inWorld(t, func(w *world) {
		var skipped, told uint64
		c, game := w.play(client.Options{
			OnResume: func(r client.Resumed) { told += r.Skipped },
			OnSkip:   func(n uint64) { skipped += n },
		})
		game.Text("tick 0")
		c.want("tick 0")
		w.down.Store(true)
		w.cut()
		synctest.Wait()
		for range 100 {
			game.Text("tick 1")
		}
		game.Text("hello")
		game.Text("tick 2")
		game.Text("tick 3")
		synctest.Wait()
		w.down.Store(false)
		c.want("hello", "tick 3")
		if skipped != 101 || told != 101 {
			t.Errorf("skipped %d, and %d at the resume, want 101", skipped, told)
		}
	}, func(p *policy.Policy) { p.Newest = rules })
}
