package epoll

import (
	"errors"
	"slices"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// A layer is what the bytes of a leg pass on the way between the session and the socket: TLS. It
// reads and writes the socket without blocking: see rawconn.Lent.
type layer struct {
	conn   Layered
	socket *rawconn.Lent
}

// layerPiece is how much is passed to a layer at once: what fits into a record of TLS, RFC 8446
// section 5.1.
const layerPiece = 16 << 10

// maxOwn is how much may be pending while more is read. TLS answers its peer by itself, who may ask for new keys
// again and again and take no answer.
const maxOwn = 64 << 10

// newLayer makes the layer of a leg whose descriptor is fd.
func newLayer(conn Layered, fd int) *layer {
	return &layer{conn, conn.NetConn().(*rawconn.Conn).Lend(fd)}
}

// receiveLayer is receive. The layer may hold back more than it returns: g stays readable until it returns
// nothing.
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

// flushLayer writes what the layer has written before, and reports whether the socket has taken all of it.
func (s *Session) flushLayer(g *leg) bool {
	full, err := g.layer.socket.Flush()
	if err != nil {
		s.core.WriteFailed(s.loop.now, g.leg, err.Error())
	}
	g.full = full
	return !full && err == nil
}

// sendLayer is send. What the layer has made of bufs, and the socket has not accepted, counts as written.
func (g *leg) sendLayer(bufs [][]byte) (n int, full bool, err error) {
	l, socket := g.s.loop, g.layer.socket
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

// endLayer has the layer say that nothing follows, and reports whether the socket has taken that.
func (s *Session) endLayer(g *leg) bool {
	g.layer.conn.CloseWrite()
	full, err := g.layer.socket.Flush()
	g.full = full && err == nil
	return !g.full
}

// closeLayer prepares g's layer for the end of its socket.
func (g *leg) closeLayer(f session.CloseMode) {
	if f != session.Reset {
		g.layer.conn.Close()
		g.layer.socket.Flush()
	}
	g.layer.socket.Closed()
}
