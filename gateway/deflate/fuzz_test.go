package deflate_test

import (
	"bytes"
	"compress/flate"
	"io"
	"net/http"
	"strings"
	"testing"

	"reseat/gateway/deflate"
	"reseat/gateway/frame"
)

// understood is what RFC 7692 makes of a client's bytes, read in the simplest way: the
// messages, and how the stream ends. open means that the last message or frame is
// incomplete. A message may refer to the last keep bytes of those before it.
func understood(b []byte, maxLen, keep int) (list []message, end string, open bool) {
	var cur *message
	var kept string
	var squeezed bool
	frames := 0
	for len(b) > 0 {
		b = bytes.Clone(b)
		bit := b[0]&rsv1 != 0
		b[0] &^= rsv1
		h, err := frame.Parse(b)
		switch {
		case err != nil:
			return list, "1002", false
		case h.Size == 0:
			return list, "none", true
		case !h.Masked, bit && (h.Control() || h.Op == frame.Continuation), !h.Control() && (h.Op == frame.Continuation) != (cur != nil):
			return list, "1002", false
		}
		if !h.Control() && cur != nil {
			frames++
		} else if !h.Control() {
			cur, squeezed, frames = &message{op: h.Op}, bit, 1
		}
		switch {
		case frames > 1024:
			return list, "too many frames", false
		case !h.Control() && h.Length > int64(maxLen): // the test's inputs are shorter
			return list, "1009", false
		case int64(len(b)-h.Size) < h.Length:
			return list, "none", true
		}
		p := b[h.Size : h.Size+int(h.Length)]
		frame.XOR(p, h.Key)
		b = b[h.Size+int(h.Length):]
		if h.Control() {
			if h.Op != frame.Pong || len(p) > 0 {
				list = append(list, message{h.Op, string(p)})
			}
			continue
		}
		cur.data += string(p)
		if !h.Fin {
			continue
		}
		if squeezed {
			plain, err := inflate(cur.data, maxLen, kept, keep)
			if err != "none" {
				return list, err, false
			}
			cur.data = plain
			kept = lastBytes(kept+plain, keep)
		}
		list, cur = append(list, *cur), nil
	}
	return list, "none", cur != nil
}

// inflate reads one stream after another until nothing is left.
func inflate(z string, maxLen int, kept string, keep int) (plain, end string) {
	r := strings.NewReader(z + "\x00\x00\xff\xff\x01\x00\x00\xff\xff")
	for r.Len() > 0 {
		p, err := io.ReadAll(io.LimitReader(flate.NewReaderDict(r, []byte(lastBytes(kept+plain, keep))), int64(maxLen)+2))
		plain += string(p)
		if len(plain) > maxLen {
			return "", "1009"
		}
		if err != nil {
			return "", "1002"
		}
	}
	return plain, "none"
}

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
		want, end, open := understood(b, maxLen, keep)
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
		if v := verdict(got, maxLen); v != end {
			t.Fatalf("the reader says %s, want %s", v, end)
		}
		list, _, err := messages(got, true)
		if whole := end == "none" && !open; whole && err != nil {
			t.Fatal(err)
		}
		if end != "none" { // something of the message that is refused may have been read
			list = list[:min(len(list), len(want))]
		}
		wantSame(t, list, want)
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
