package epoll

import (
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"reseat/gateway/link"
	"reseat/gateway/session"
)

// This file has loops serve what a node passes on to others, and what others pass on to it.
//
// A loop that has a link moves its bytes. It reads the link before it serves sessions, so that what has arrived goes
// on in the same turn, and writes it once at the end of the turn: whatever streams have sent until then goes out
// together. A session uses its end of a stream as a leg with a layer, on any loop. A relay, which is the other end,
// is on the loop of the link.

// A linked is a link on a loop.
type linked struct {
	link *link.Link
	g    *leg   // with TLS; it belongs to no session
	out  []byte // for TakeDue
}

// Link has l move the bytes of a link, over a connection that l owns.
func (l *Loop) Link(of *link.Link, h Handle) {
	l.post(func() {
		k := &linked{link: of, g: new(leg)}
		h.open(l, k.g)
		if l.closing || l.adopt(k.g, false) != nil {
			k.close(l, errStopped)
			return
		}
		l.links = append(l.links, k)
		of.Host(l, func() {
			if l.asleep.Load() {
				l.signal()
			}
		})
	})
}

func (l *Loop) readLinks() {
	for _, k := range slices.Clone(l.links) {
		k.read(l)
	}
}

// read reads what has arrived, up to a limit.
func (k *linked) read(l *Loop) {
	for n := 0; k.g.readable && n < maxRecords; n++ {
		size, err := k.g.receiveLayer(l.buf)
		k.g.spent(l, size)
		l.woke = k.link.Arrived(l.buf[:size], l) || l.woke
		if err != nil {
			k.close(l, err)
			return
		}
	}
}

// linksWant reports whether a link has more to read than a turn allows, or something to write. What becomes due
// afterwards wakes the loop.
func (l *Loop) linksWant() bool {
	if len(l.links) == 0 {
		return false
	}
	l.asleep.Store(true)
	return slices.ContainsFunc(l.links, func(k *linked) bool { return k.g.readable || k.link.Due() && (!k.g.full || k.link.Err() != nil) })
}

// flushLinks writes what is due on links.
func (l *Loop) flushLinks() {
	for _, k := range slices.Clone(l.links) {
		k.flush(l)
	}
}

func (k *linked) flush(l *Loop) {
	for socket := k.g.layer.socket; len(socket.Pending) > 0 || k.link.Due(); {
		full, err := socket.Flush()
		if k.g.full = full; err != nil {
			k.close(l, err)
			return
		}
		if err = k.link.Err(); err == nil && full {
			return
		}
		k.out = k.link.TakeDue(k.out[:0], l)
		if err == nil {
			_, err = k.g.layer.conn.Write(k.out)
		}
		if err != nil {
			k.close(l, err)
			return
		}
		k.g.spent(l, len(k.out))
	}
}

// close ends a link, with its streams.
func (k *linked) close(l *Loop, err error) {
	l.links = slices.DeleteFunc(l.links, func(other *linked) bool { return other == k })
	k.link.Fail(err)
	if k.g.fd >= 0 {
		k.g.closeSocket(l, session.Shut)
	}
}

// closeLinks ends what is left when the loop stops.
func (l *Loop) closeLinks() {
	for _, k := range slices.Clone(l.links) {
		k.close(l, errStopped)
	}
	for r := range l.relays {
		r.close()
	}
}

// A relay passes bytes between a client and the stream that leads to its session, until both directions have ended or
// one end is broken. The end of a direction is passed on.
type relay struct {
	loop   *Loop
	client *leg
	stream *link.Stream
	over   func()

	rest  []byte                         // of what the client has sent: the stream had no room for it
	ended struct{ client, session bool } // they send nothing more; rest follows
}

// Relay begins a relay on l, the Host of the stream's link. l owns both. It calls over once it has closed them; over
// must not block.
func (l *Loop) Relay(client Handle, stream *link.Stream, over func()) {
	r := &relay{loop: l, stream: stream, over: over}
	r.client = &leg{relay: r}
	l.post(func() {
		l.relays[r] = struct{}{}
		watched := client.open(l, r.client)
		if r.client.fd < 0 || l.stopped || l.adopt(r.client, watched) != nil {
			r.close()
			return
		}
		stream.Watch(func(on any) {
			if on == l {
				l.enqueue(r.client)
			} else {
				l.post(func() { l.enqueue(r.client) })
			}
		})
		l.enqueue(r.client)
	})
}

// ready moves what can be moved now.
func (r *relay) ready() {
	if r.client.fd < 0 {
		return
	}
	if !r.down() || !r.up() || r.ended.client && r.ended.session && len(r.rest) == 0 {
		r.close()
	}
}

// up passes on what the client sends, and reports false if that has failed.
func (r *relay) up() bool {
	l, g := r.loop, r.client
	for n := 0; len(r.rest) > 0 || g.readable && !r.ended.client; n++ {
		if n == maxRecords {
			l.enqueue(g)
			return true
		}
		p, ended := r.rest, error(nil)
		if len(p) == 0 {
			var size int
			size, ended = g.receive(l.buf[:layerRead])
			g.spent(l, size)
			p = l.buf[:size]
		}
		sent, full, err := r.stream.Send(p)
		r.rest = append(r.rest[:0], p[sent:]...)
		r.ended.client = r.ended.client || ended == io.EOF // TLS returns it with the last bytes
		switch {
		case err != nil || ended != nil && ended != io.EOF:
			return false
		case full:
			return true // the stream is watched
		case r.ended.client:
			r.stream.CloseWrite()
		}
	}
	return true
}

// down passes on what the session sends, and reports false if that has failed, or the stream has ended.
func (r *relay) down() bool {
	l, g := r.loop, r.client
	if g.layer != nil {
		full, err := g.layer.socket.Flush()
		if g.full = full; err != nil {
			return false
		}
	}
	for !r.ended.session {
		p, err := r.stream.Peek()
		switch {
		case err == io.EOF:
			if g.full {
				return true
			}
			r.ended.session = true
			if g.layer != nil {
				g.layer.conn.CloseWrite()
				g.layer.socket.Flush()
			}
			unix.Shutdown(g.fd, unix.SHUT_WR)
			return true
		case err != nil:
			return false
		case len(p) == 0 || g.full:
			return true
		}
		n, full, err := g.send(l, append(l.out[:0], p))
		g.full = full
		g.spent(l, n)
		r.stream.Took(n)
		if err != nil {
			return false
		}
	}
	return true
}

func (r *relay) close() {
	delete(r.loop.relays, r)
	r.stream.Watch(nil)
	r.stream.Close()
	if r.client.fd >= 0 {
		r.client.closeSocket(r.loop, session.Shut)
	}
	r.over()
}
