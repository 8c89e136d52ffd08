package gateway_test

import (
	"bytes"
	"compress/flate"
	goflag "flag"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// compression makes the clients of all tests offer and use permessage-deflate: all
// guarantees must hold for compressing clients too.
var compression = goflag.Bool("compression", false, "all clients of the tests compress")

const browserOffer = "permessage-deflate; client_max_window_bits"

// compressAll turns compression on for all routes if the tests' flag is set, and returns
// the offer of the clients.
func compressAll(c *gateway.Config) (offer string) {
	if !*compression {
		return ""
	}
	policies := []*policy.Policy{&c.Default}
	for i := range c.Routes {
		policies = append(policies, &c.Routes[i].Policy)
	}
	for _, p := range policies {
		if !p.Compression.On {
			p.Compression = policy.Compression{On: true, Window: 4 << 10}
		}
	}
	return browserOffer
}

// noise returns n bytes that do not compress, the same each time.
func noise(n int) string {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return string(b)
}

func compressing() policy.Policy {
	p := testPolicy()
	p.Compression.On = true
	return p
}

// newCompressingWorld is a world with one route with compression, whose clients offer it.
func newCompressingWorld(t *testing.T, p policy.Policy, change ...func(*gateway.Config)) *world {
	t.Helper()
	p.Compression.On = true
	w := newWorld(t, p, change...)
	w.Offer = browserOffer
	return w
}

// prose returns n bytes that compress.
func prose(n int) string { return strings.Repeat("one word follows the other, ", n/28+1)[:n] }

func TestTranscriptsOfCompressingClients(t *testing.T) {
	was := *compression
	*compression = true
	defer func() { *compression = was }()
	TestTranscripts(t)
}

const (
	answered = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	takeover = "permessage-deflate; client_max_window_bits=12" // with a window of 4 KiB
)

func withTakeover() policy.Policy {
	p := compressing()
	p.Compression.Window = 4 << 10
	return p
}

func extensions(p *wstest.Peer) string {
	return strings.Join(p.Answer.Header.Values("Sec-WebSocket-Extensions"), " and ")
}

func TestCompressionNeedsRouteAndOffer(t *testing.T) {
	for name, c := range map[string]struct {
		policy      policy.Policy
		offer, want string
	}{
		"both":                 {compressing(), browserOffer, answered},
		"takeover":             {withTakeover(), browserOffer, takeover},
		"takeover one way":     {withTakeover(), "permessage-deflate", "permessage-deflate; client_no_context_takeover"},
		"smaller window":       {compressing(), "permessage-deflate; server_max_window_bits=10", answered + "; server_max_window_bits=10"},
		"off":                  {testPolicy(), browserOffer, ""},
		"not offered":          {compressing(), "", ""},
		"something else":       {compressing(), "x-webkit-deflate-frame", ""},
		"with a bad parameter": {compressing(), "permessage-deflate; mux", ""},
		"malformed header":     {compressing(), "permessage-deflate;;", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if *compression {
				t.Skip("all clients of these tests compress")
			}
			inWorld(t, c.policy, func(t *testing.T, w *world) {
				w.Offer = c.offer
				for _, join := range []func() *wstest.Peer{func() *wstest.Peer { return w.Player("/match/7").Peer }, func() *wstest.Peer { return w.Plain("/match/7") }} {
					peer := join()
					if got := extensions(peer); got != c.want {
						t.Errorf("answered %q, want %q", got, c.want)
					}
					game := w.game.Next()
					if got := game.Req.Header.Values("Sec-WebSocket-Extensions"); got != nil {
						t.Errorf("the upstream is offered %q", got)
					}
					for _, s := range []string{"", "short", "\x10", "\x10\x10x", "\x10hello {}", prose(1000), noise(1000), prose(1001), prose(100000)} {
						peer.Pass(game, s)
						game.Pass(peer, s)
					}
				}
			})
		})
	}
}

// The path of a resume is ignored: its session's own route decides.
func TestResumeUsesCompressionOfItsSessionsRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			on := c.Routes[0]
			on.Pattern, on.Policy = "/packed/*", compressing()
			c.Routes = append(c.Routes, on)
		})
		w.Offer = browserOffer
		for path, want := range map[string]string{"/packed/1": answered, "/match/1": map[bool]string{true: takeover}[*compression]} {
			p := w.Player(path)
			game := w.game.Next()
			if got := extensions(p.Peer); got != want {
				t.Errorf("%s: answered %q, want %q", path, got, want)
			}
			p.Drop()
			p = p.Resume(0) // at /resume, the route without compression
			if got := extensions(p.Peer); got != want {
				t.Errorf("%s: a resume is answered %q, want %q", path, got, want)
			}
			game.Pass(p, prose(500))
			if got := extensions(p.TryResume("not.a.token", "0")); got != "" {
				t.Errorf("a resume of no session is answered %q", got)
			}
		}
	})
}

// packed returns a client's compressed message.
func packed(op byte, s string) []byte {
	var z bytes.Buffer
	w, _ := flate.NewWriter(&z, flate.BestSpeed)
	w.Write([]byte(s))
	w.Flush()
	return rsv1(frame.AppendMasked(nil, op, [4]byte{1, 2, 3, 4}, bytes.TrimSuffix(z.Bytes(), []byte("\x00\x00\xff\xff"))))
}

func rsv1(b []byte) []byte {
	b[0] |= 0x40
	return b
}

// The gateway checks the size of the inflated message, to the byte, without an escaping DLE; a bomb costs it no more than that.
func TestViolationsOfCompressingClientsAreRefused(t *testing.T) {
	const most = 10000
	for name, c := range map[string]struct {
		raw          []byte
		code, upCode int
	}{
		"does not inflate":   {rsv1(frame.AppendMasked(nil, frame.Text, [4]byte{1}, []byte("not deflate"))), 1002, 1008},
		"compressed Ping":    {rsv1(frame.AppendMasked(nil, frame.Ping, [4]byte{1}, nil)), 1002, 1008},
		"one byte too many":  {packed(frame.Binary, prose(most+1)), 1009, 1009},
		"a bomb":             {packed(frame.Binary, strings.Repeat("\x00", 1<<26)), 1009, 1009},
		"a DLE and too many": {packed(frame.Text, "\x10\x10"+prose(most)), 1009, 1009},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCompressingWorld(t, changed(testPolicy(), func(p *policy.Policy) { p.MaxMessage = most }))
				player, game := w.play()
				player.Pass(game, prose(most), "\x10"+prose(most-1), noise(most))
				game.Pass(player, prose(most))
				player.Raw(c.raw)
				player.WantClosing(c.code)
				game.WantClose(c.upCode)
				client, game := w.plain()
				client.Raw(c.raw)
				client.WantClose(c.code)
				game.WantClose(c.upCode)
			})
		})
	}
}

// The buffers of unfinished compressed messages count towards --buffer-total.
func TestUnfinishedCompressedMessagesCountTowardsBufferTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCompressingWorld(t, testPolicy(), func(c *gateway.Config) { c.BufferTotal = 16 << 20 })
		part := packed(frame.Binary, noise(1000<<10))[:896<<10]
		held := 0
		for ; held < 200; held++ {
			c, br, resp, err := w.Handshake("/hoard", nil, "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if resp.StatusCode != 101 {
				break
			}
			_ = br
			w.game.Next()
			c.Write(part)
			synctest.Wait()
		}
		if held < 5 || held > 18 {
			t.Errorf("%d clients hold 896 KiB each of 16 MiB in all", held)
		}
		time.Sleep(40 * time.Second) // stalled: all are closed
		if _, _, resp, err := w.Handshake("/hoard", nil, ""); err != nil || resp.StatusCode != 101 {
			t.Errorf("the memory is not released: %v, %v", resp, err)
		}
	})
}

// Messages that arrive before the hello of a hard resume are kept, also if the read was
// interrupted.
func TestCompressedMessagesWaitForAHardResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hard()
		w := newCompressingWorld(t, p)
		c, game := w.play()
		c.Sync()
		c.Drop()
		game.WantClose(wire.CodeGoingAway)
		w.wantState(c, session.Detached)
		q := c.TryResume(c.Hello.Token, "0")
		b := append(packed(frame.Text, prose(20000)), packed(frame.Text, noise(2000))...)
		q.Raw(b[:len(b)-1000])
		again := w.game.Next()
		q.Raw(b[len(b)-1000:])
		q.WantControl(wire.VerbHello)
		again.Want(prose(20000), noise(2000))
	})
}

// Windows are given up before sessions are: a connection that begins under memory pressure has
// none.
func TestNoTakeoverUnderMemoryPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 1 << 20
		w := newCompressingWorld(t, withTakeover(), func(c *gateway.Config) { c.BufferTotal = total })
		p, game := w.play()
		p.Sync()
		p.Drop()
		for {
			low := w.gw.Watch().BufferBytes() >= total/4*3
			c, _, resp, err := w.Handshake("/", nil, "")
			if err != nil || resp.StatusCode != 101 {
				t.Fatalf("%v, %v", resp, err)
			}
			c.Close()
			w.game.Next()
			want := takeover
			if low {
				want = answered
			}
			if got := resp.Header.Get("Sec-WebSocket-Extensions"); got != want {
				t.Fatalf("with %d of %d bytes: answered %q", w.gw.Watch().BufferBytes(), total, got)
			}
			if low {
				break
			}
			game.Text(strings.Repeat("x", 8<<10))
			synctest.Wait()
		}
		if p = p.Resume(0); extensions(p.Peer) != answered {
			t.Errorf("a resume is answered %q", extensions(p.Peer))
		}
	})
}

func TestWindowsCountTowardsBufferTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCompressingWorld(t, withTakeover())
		p, game := w.play()
		p.Sync()
		before, held := w.metrics(), w.gw.Watch().BufferBytes()
		for range 10 {
			game.Pass(p, prose(1000))
			p.Pass(game, prose(1000))
		}
		p.Ack(10)
		p.Sync()
		if grown := w.gw.Watch().BufferBytes() - held; grown < 7<<10 || grown > 8<<10 {
			t.Errorf("%d bytes are counted for two windows of 4 KiB", grown)
		}
		w.wantSince(before, "reseat_compression_window_bytes", map[string]float64{"": 8<<10 - 512}) // it had sent an ack
		p.Drop()
		synctest.Wait()
		if got := w.metrics()["reseat_compression_window_bytes"]; got != 0 {
			t.Errorf("%v bytes are counted after the connection", got)
		}
	})
}

// A message of 1 MiB goes each way in one frame, though the client's reaches the gateway in
// pieces.
func TestCompressedMessageIsOneFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCompressingWorld(t, withTakeover())
		p, game := w.play()
		for i, s := range []string{noise(1 << 20), prose(1 << 20)} {
			p.Text(s)
			game.WantFrames(s, 1)
			game.Text(s)
			p.WantFrames(s, 1)
			p.Ack(uint64(i + 1))
		}
	})
}
