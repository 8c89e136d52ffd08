package deflate_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"reseat/gateway/deflate"
	"reseat/gateway/frame"
)

// FuzzFramesOfAClient compares a Conn with the simplest reading of what a client sent,
// for any bytes, read and written in pieces.
func FuzzFramesOfAClient(f *testing.F) {
	const maxLen = 64 << 10
	ping := clientFrame(frame.Ping, true, 0, []byte("x"))
	for _, b := range [][]byte{
		compressed(frame.Text, "Hello"), fragments(frame.Binary, prose(1000), 5, ping), concat(ping, compressed(frame.Text, ""), clientFrame(frame.Text, false, 0, nil)),
		{0xc1, 0x80, 0, 0, 0, 0}, {0xc9, 0x80}, {0x82 | rsv1, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 2, 3, 4},
		clientFrame(frame.Text, true, rsv1, []byte{0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00}),
		compressed(frame.Text, strings.Repeat("a", 70000)), compressed(frame.Text, strings.Repeat("a", maxLen)),
	} {
		f.Add(b, uint8(3), uint16(100), false)
		f.Add(b, uint8(200), uint16(1), true)
	}
	s := newSqueezer()
	f.Add(concat(s.frame(message{frame.Text, prose(300)}), s.frame(message{frame.Binary, prose(5000)}), s.frame(message{frame.Text, prose(400)})), uint8(77), uint16(99), true)
	f.Fuzz(func(t *testing.T, b []byte, written uint8, read uint16, takeover bool) {
		if len(b) > 8<<10 {
			return
		}
		keep := 0
		if takeover {
			keep = window
		}
		want := readFrames(b, true, maxLen, keep)
		r := newRigFor(t, "permessage-deflate; client_max_window_bits", func(o *deflate.Options) { o.Limit, o.Window = maxLen, keep })
		var got []byte
		p := make([]byte, max(read, 1))
		for rest := b; ; {
			n := min(len(rest), int(written)+1)
			r.client.Write(rest[:n])
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
			if n, err := r.Read(p); err == nil && n == 0 {
				t.Fatal("a read of nothing")
			} else {
				got = append(got, p[:n]...)
			}
		}
		got = append(got, r.readAll(t)...)
		seen := uncompressed(got, maxLen)
		if whole := want.end == "none" && !want.open; seen.end != want.end || whole && seen.open {
			t.Fatalf("the reader says %s, incomplete: %t; want %s, %t", seen.end, seen.open, want.end, want.open)
		}
		if want.end != "none" { // something of the message that is refused may have been read
			seen.list = seen.list[:min(len(seen.list), len(want.list))]
		}
		wantSame(t, seen.list, want.list)
	})
}

// FuzzFramesToAClient sends messages with lengths, kinds and fragments taken from plan,
// splits the writes by cuts, and checks that the client reads the same.
func FuzzFramesToAClient(f *testing.F) {
	f.Add([]byte{0, 1, 2, 130, 255, 77}, []byte("some text that is repeated, some text"), []byte{0, 1, 255}, uint8(15))
	f.Add([]byte{200, 200, 3, 3, 9, 90}, []byte{}, []byte{9}, uint8(8))
	f.Add([]byte{20, 20, 22, 23, 100, 255, 21, 18}, []byte("some text that is repeated"), []byte{7, 200}, uint8(11))
	f.Fuzz(func(t *testing.T, plan, text, cuts []byte, bits uint8) {
		if len(plan) > 200 || len(text) == 0 || len(cuts) == 0 {
			return
		}
		var all []byte
		var want []message
		open := false
		for i, c := range plan {
			p := string(bytes.Repeat(text, int(c)*int(c)/len(text)+1)[:int(c)*int(c)])
			fin := c%3 > 0 || i == len(plan)-1
			op := byte(frame.Continuation)
			if !open {
				op = frame.Text + c%2
				want = append(want, message{op: op})
			}
			want[len(want)-1].data += p
			all = append(all, serverFrame(op, fin, p)...)
			open = !fin
		}
		offer := "permessage-deflate; server_max_window_bits=" + []string{"8", "9", "12", "15"}[bits%4]
		keep := []int{0, 1 << 10, window, 32 << 10}[bits/4%4]
		r := newRigFor(t, offer, func(o *deflate.Options) { o.Window = keep })
		for i := 0; len(all) > 0; i++ {
			n := min(len(all), int(cuts[i%len(cuts)])*40+1)
			if k, err := r.Write(all[:n]); k != n || err != nil {
				t.Fatal(k, err)
			}
			all = all[n:]
		}
		wantSentTo(t, r.sent(t), min(keep, 1<<[]int{8, 9, 12, 15}[bits%4]/2), want...)
	})
}

// FuzzOffers: an invalid offer gets no answer, and an answer contains only what was
// offered or may be sent unasked.
func FuzzOffers(f *testing.F) {
	f.Add("permessage-deflate; client_max_window_bits, permessage-deflate", true)
	f.Add(`foo; bar="b\a\r";baz, permessage-deflate; server_max_window_bits=10`, false)
	f.Fuzz(func(t *testing.T, value string, takeover bool) {
		keep := 0
		if takeover {
			keep = window
		}
		p, ok := deflate.Negotiate(http.Header{"Sec-Websocket-Extensions": {value}}, keep)
		if !ok {
			return
		}
		for _, name := range []string{"permessage-deflate", "server_max_window_bits", "client_max_window_bits"} {
			if strings.Contains(p.String(), name) && !strings.Contains(value, name) {
				t.Fatalf("%q is answered %q", value, p)
			}
		}
	})
}
