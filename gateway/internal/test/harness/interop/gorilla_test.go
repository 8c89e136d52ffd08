package interop

import (
	"errors"
	"net"
	"sync"
	"time"

	gorilla "github.com/gorilla/websocket"
)

// A gorillaEndpoint is a connection of gorilla/websocket, which has no contexts and
// whose pings don't wait for their pongs.
type gorillaEndpoint struct {
	conn   *gorilla.Conn
	writes *sync.Mutex
	pongs  chan struct{}
}

// dialGorilla returns a client with or without an offer of compression.
func dialGorilla(compress bool, agreed string) dialFunc {
	return func(a *arena) (endpoint, error) {
		d := gorilla.Dialer{Subprotocols: a.offer, EnableCompression: compress, WriteBufferSize: 2000, NetDialContext: a.connect}
		c, answer, err := d.DialContext(a.ctx, a.url+"/match/7", nil)
		if err != nil {
			return nil, err
		}
		p := gorillaEndpoint{c, new(sync.Mutex), make(chan struct{}, 100)}
		c.SetPongHandler(func(string) error {
			p.pongs <- struct{}{}
			return nil
		})
		deadline, _ := a.ctx.Deadline()
		c.NetConn().SetDeadline(deadline)
		c.SetPingHandler(func(data string) error { // its own gives up the connection after a second
			err := c.WriteControl(gorilla.PongMessage, []byte(data), deadline)
			if errors.Is(err, gorilla.ErrCloseSent) {
				return nil
			}
			return err
		})
		return p, wantAgreed(answer, agreed)
	}
}

func (p gorillaEndpoint) Read() (byte, []byte, error) {
	op, b, err := p.conn.ReadMessage()
	if gorilla.IsCloseError(err, gorilla.CloseAbnormalClosure) { // its code for a disconnect
		err = net.ErrClosed
	}
	return byte(op), b, err
}

func (p gorillaEndpoint) Write(op byte, b []byte) error { return p.WriteParts(op, b) }

// WriteParts writes a frame each time its buffer is full.
func (p gorillaEndpoint) WriteParts(op byte, parts ...[]byte) error {
	p.writes.Lock()
	defer p.writes.Unlock()
	w, err := p.conn.NextWriter(int(op))
	if err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return w.Close()
}

func (p gorillaEndpoint) Ping() error {
	if err := p.conn.WriteControl(gorilla.PingMessage, []byte("?"), time.Now().Add(time.Minute)); err != nil {
		return err
	}
	select {
	case <-p.pongs:
		return nil
	case <-time.After(time.Minute):
		return errors.New("no pong")
	}
}

// Close sends a Close frame and reads up to the answer.
func (p gorillaEndpoint) Close(code int, reason string) error {
	err := p.conn.WriteControl(gorilla.CloseMessage, gorilla.FormatCloseMessage(code, reason), time.Now().Add(time.Minute))
	for err == nil {
		_, _, err = p.conn.ReadMessage()
	}
	p.conn.Close()
	if gorilla.IsCloseError(err, code) {
		return nil
	}
	return err
}

func (p gorillaEndpoint) CloseNow() error     { return p.conn.Close() }
func (p gorillaEndpoint) Subprotocol() string { return p.conn.Subprotocol() }
