package epoll

import (
	"errors"
	"slices"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// A layer, such as TLS, transforms a leg's bytes between the session and the socket. It reads and
// writes the socket without blocking: see rawconn.Lent.
type layer struct {
	conn   Layered
	socket *rawconn.Lent
}

// layerPiece is the max size of one write to a layer: a TLS record, RFC 8446 section 5.1.
const layerPiece = 16 << 10

// layerRead is the max size of one read from a layer: what compression makes of a few bytes is large.
const layerRead = 64 << 10

// maxOwn is the max size of pending output of a layer while the loop reads more. A peer can request key updates
// (RFC 8446 section 4.6.3) without reading the replies.
const maxOwn = 64 << 10

// putLayer puts a layer above g's descriptor. If that is an eventfd, a rawconn.Virtual is below the layer, and
// events come without a system call if g's loop has them.
func (g *leg) putLayer(conn Layered) {
	fd := g.fd
	g.layer = &layer{conn: conn}
	g.layer.socket = rawconn.Below(conn).Lend(fd, func(on any) {
		if l, _ := on.(*Loop); l != nil && l.legOf(int32(fd)) == g {
			g.noteEvents(mayRead | mayWrite)
			l.enqueue(g)
		} else {
			rawconn.Wake(fd)
		}
	})
	g.readable = true // it may have buffered input
}

// receiveLayer is receive for a leg with a layer. The layer may buffer more than it returns, so g stays readable
// until a read returns nothing.
func (g *leg) receiveLayer(b []byte) (int, error) {
	n, err := g.layer.conn.Read(b)
	if errors.Is(err, rawconn.ErrAgain) {
		err = nil
	}
	if n == 0 && err == nil {
		g.readable, g.ending = false, false
	}
	return n, err
}

// flushLayer writes the layer's pending output, and reports whether the socket has accepted all of it.
func (s *Session) flushLayer(g *leg) bool {
	full, err := g.layer.socket.Flush()
	if err != nil {
		s.core.WriteFailed(s.loop.now, g.leg, err.Error())
	}
	g.full = full
	return !full && err == nil
}

// sendLayer is send for a leg with a layer. Bytes that the layer has accepted count as written, even while its
// output is pending.
func (g *leg) sendLayer(l *Loop, bufs [][]byte) (n int, full bool, err error) {
	socket := g.layer.socket
	piece := bufs[0][:min(len(bufs[0]), layerPiece)]
	if len(bufs) > 1 && len(piece) < layerPiece {
		piece = l.plain[:0]
		for _, b := range bufs {
			piece = append(piece, b[:min(len(b), layerPiece-len(piece))]...)
		}
		l.plain = piece
	}
	socket.Pending = l.sealed[:0]
	if _, err = g.layer.conn.Write(piece); err != nil {
		socket.Pending = nil
		return 0, false, err
	}
	l.sealed = socket.Pending[:0]
	full, err = socket.Flush()
	socket.Pending = slices.Clone(socket.Pending) // or it would be overwritten
	return len(piece), full, err
}

// endLayer sends the layer's close_notify, and reports whether the socket has accepted it.
func (s *Session) endLayer(g *leg) bool {
	g.layer.conn.CloseWrite()
	full, err := g.layer.socket.Flush()
	g.full = full && err == nil
	return !g.full
}

// closeLayer prepares g's layer for the end of its socket.
func (g *leg) closeLayer(f session.CloseMode) {
	g.layer.conn.Close() // which may write, but only into socket.Pending
	if f != session.Reset {
		g.layer.socket.Flush()
	}
	g.layer.socket.Closed()
}
