//go:build linux

package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/message"
	"reseat/gateway/internal/test/harness/bench/stat"
)

// A Library is like a Client, with plain clients that send periodically, but runs on a
// WebSocket library and goroutines. It supports TLS and compression, which a Client
// doesn't. It uses far more CPU time for that, so its own rates say nothing about the
// proxy.
type Library struct {
	Setup
	TLS     *tls.Config // nil: none
	Deflate bool        // permessage-deflate is offered, and must be negotiated

	conns   []*websocket.Conn
	readers sync.WaitGroup
	ctx     context.Context // for all reads and writes
	end     context.CancelFunc
	sending sender

	bytes atomic.Int64 // received, as on the wire

	mu       sync.Mutex
	faults   message.Faults
	received uint64
	latency  stat.Hist
}

// A sender is the goroutine that sends, while it runs.
type sender struct {
	stop    context.CancelFunc
	ended   chan struct{}
	written atomic.Uint64
}

// Connect connects all sessions, one after the other.
func (l *Library) Connect(limit time.Duration) error {
	l.ctx, l.end = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: l.dial, TLSClientConfig: l.TLS}}
	for id := range l.Sessions {
		conn, err := l.handshake(ctx, client, id)
		if err != nil {
			return fmt.Errorf("session %d: not connected: %w", id, err)
		}
		l.conns = append(l.conns, conn)
		l.readers.Go(func() { l.read(id, conn) })
	}
	return nil
}

func (l *Library) handshake(ctx context.Context, client *http.Client, id int) (*websocket.Conn, error) {
	scheme, mode := "ws", websocket.CompressionDisabled
	if l.TLS != nil {
		scheme = "wss"
	}
	if l.Deflate {
		mode = websocket.CompressionNoContextTakeover
	}
	conn, answer, err := websocket.Dial(ctx, fmt.Sprintf("%s://%s/s/%d", scheme, l.Target, id), &websocket.DialOptions{
		HTTPClient: client, CompressionMode: mode,
		CompressionThreshold: 1, // everything, as browsers do
	})
	if err != nil {
		return nil, err
	}
	if agreed := answer.Header.Get("Sec-WebSocket-Extensions"); (agreed != "") != l.Deflate {
		conn.CloseNow()
		return nil, fmt.Errorf("extensions %q agreed on", agreed)
	}
	conn.SetReadLimit(message.MaxSize + 1)
	return conn, nil
}

// dial dials a connection whose bytes are counted.
func (l *Library) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return counted{conn, &l.bytes}, err
}

type counted struct {
	net.Conn
	bytes *atomic.Int64
}

// Read implements net.Conn.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// read reads all messages of a session.
func (l *Library) read(id int, conn *websocket.Conn) {
	check := message.Check{Kind: l.Down, Session: uint32(id), Faults: &l.faults}
	buf := make([]byte, 4<<10)
	for {
		if err := l.message(conn, &check, buf); err != nil {
			l.lost(id, err)
			return
		}
	}
}

// message reads one message. Faults are counted only at its end.
func (l *Library) message(conn *websocket.Conn, check *message.Check, buf []byte) error {
	kind, r, err := conn.Reader(l.ctx)
	if err != nil {
		return err
	}
	check.Begin(kind == websocket.MessageText)
	for err == nil {
		var n int
		n, err = r.Read(buf)
		check.Payload(buf[:n])
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	check.End()
	l.received++
	l.latency.Record(epoll.Now() - check.Clock)
	return nil
}

// lost records a connection that ended too early.
func (l *Library) lost(id int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() == nil {
		l.faults.Dropped++
		l.faults.Say("session %d: dropped: %v", id, err)
	}
}

// Start starts sending, here and at the game server.
func (l *Library) Start() error {
	ctx, stop := context.WithCancel(l.ctx)
	l.sending.stop, l.sending.ended = stop, make(chan struct{})
	go func() {
		defer close(l.sending.ended)
		l.send(ctx, epoll.NewPace(epoll.Now(), l.Every, l.Grain, l.Sessions, 0))
	}()
	_, err := l.Game.Begin()
	return err
}

// send sends each session's messages when they are due.
func (l *Library) send(ctx context.Context, pace *epoll.Pace) {
	kind, numbers := websocket.MessageBinary, make([]uint64, len(l.conns))
	if l.Up.Text {
		kind = websocket.MessageText
	}
	for ctx.Err() == nil {
		pace.Run(epoll.Now(), func(i int, _ int64) {
			numbers[i]++
			b := l.Up.Append(nil, epoll.Now(), uint32(i), numbers[i])
			if l.conns[i].Write(l.ctx, kind, b) == nil { // otherwise its reader reports it
				l.sending.written.Add(1)
			}
		})
		next, _ := pace.Next()
		time.Sleep(time.Duration(next - epoll.Now()))
	}
}

// Counts returns the data messages received and written, and the bytes received on the
// wire, so far.
func (l *Library) Counts() (received, written uint64, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.received, l.sending.written.Load(), l.bytes.Load()
}

// Reset discards the latencies so far.
func (l *Library) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latency.Reset()
}

// Latency returns how long downward messages took since the last Reset.
func (l *Library) Latency() stat.Quantiles {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latency.Quantiles()
}

// Faults returns what has gone wrong here so far.
func (l *Library) Faults() message.Faults {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults
}

// Stop stops sending at both ends, and waits until every message has arrived. Messages
// that have not arrived by then count as missing.
func (l *Library) Stop(limit time.Duration) (game.Report, error) {
	l.sending.stop()
	<-l.sending.ended
	r, err := l.Game.End()
	for end := epoll.Now() + int64(limit); err == nil && !l.settled(r) && epoll.Now() < end; r, err = l.Game.Report() {
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		return r, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if written := l.sending.written.Load(); l.received != r.Sent || written != r.Taken {
		l.faults.Gap++
		l.faults.Say("down %d messages of %d arrived, up %d of %d", l.received, r.Sent, r.Taken, written)
	}
	l.faults.Add(r.Faults)
	if l.faults.Any() {
		return r, ErrFaults
	}
	return r, nil
}

func (l *Library) settled(r game.Report) bool {
	received, written, _ := l.Counts()
	return r.Taken == written && r.Sent == received || r.Faults.Any() || l.Faults().Any()
}

// Close closes all connections, and ends everything that uses them.
func (l *Library) Close() {
	if l.end == nil {
		return
	}
	l.end()
	if l.sending.ended != nil {
		<-l.sending.ended
	}
	for _, conn := range l.conns {
		conn.CloseNow()
	}
	l.readers.Wait()
}
