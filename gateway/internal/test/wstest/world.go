package wstest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
	"reseat/upstream"
)

// A Game is a game server played by a test.
type Game struct {
	t    testing.TB
	ln   *Listener
	join chan *Peer
	// Refuse, if set, answers a handshake instead of 101 when it returns true.
	Refuse func(c net.Conn, r *http.Request) bool
	// Choose is the subprotocol to select; empty means none.
	Choose string
	// Header contains header lines for the response, each ending in CRLF.
	Header string
	// Early is sent right after the response.
	Early []byte
}

// NewGame starts a game server whose connections hold size bytes in each direction.
func NewGame(t testing.TB, size int) *Game {
	g := &Game{t: t, ln: NewListener(size), join: make(chan *Peer, 1024)}
	go g.serve()
	t.Cleanup(func() { g.ln.Close() })
	return g
}

// Target is the game server as a gateway dials it.
func (g *Game) Target() upstream.Target {
	return upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example:9000"}, DialContext: g.Dial}
}

// Dial is a dialer that reaches the game server at any address. Like net.Dialer it does not once ctx is done.
func (g *Game) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := g.ln.Dial()
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (g *Game) serve() {
	for {
		c, err := g.ln.Accept()
		if err != nil {
			return
		}
		go g.accept(c.(*Conn))
	}
}

func (g *Game) accept(c *Conn) {
	br := bufio.NewReader(c)
	r, err := http.ReadRequest(br)
	if err != nil {
		return
	}
	if g.Refuse != nil && g.Refuse(c, r) {
		return
	}
	head := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + frame.AcceptKey(r.Header.Get("Sec-WebSocket-Key")) + "\r\n" + g.Header
	if g.Choose != "" {
		head += "Sec-WebSocket-Protocol: " + g.Choose + "\r\n"
	}
	c.Write(append([]byte(head+"\r\n"), g.Early...))
	p := newPeer(g.t, c, br, false, false, codec{})
	p.Req = r
	g.join <- p
}

// Next returns the next player's connection.
func (g *Game) Next() *Peer {
	g.t.Helper()
	return <-g.join
}

// Joined returns how many connections wait for Next.
func (g *Game) Joined() int { return len(g.join) }

// A Door is a gateway's client address, in memory.
type Door struct {
	t      testing.TB
	ln     *Listener
	server *http.Server
	// Offer is what its clients offer in Sec-WebSocket-Extensions; empty means nothing. A
	// client whose offer of permessage-deflate is accepted compresses all its messages.
	Offer string
}

// Open serves h in memory until the test ends.
func Open(t testing.TB, h http.Handler, size int) *Door {
	d := &Door{t: t, ln: NewListener(size), server: &http.Server{Handler: h}}
	go d.server.Serve(d.ln)
	t.Cleanup(func() { d.server.Close() })
	return d
}

// Knock returns the client's side of a listener.
func Knock(t testing.TB, ln *Listener) *Door { return &Door{t: t, ln: ln} }

// Handshake sends a WebSocket handshake with these subprotocols and header lines (each
// ending in CRLF) and reads the response.
func (d *Door) Handshake(path string, protocols []string, header string) (*Conn, *bufio.Reader, *http.Response, error) {
	c, err := d.ln.Dial()
	if err != nil {
		return nil, nil, nil, err
	}
	if d.Offer != "" {
		header += "Sec-WebSocket-Extensions: " + d.Offer + "\r\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: game.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n", path)
	b.WriteString("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + header)
	if len(protocols) > 0 {
		b.WriteString("Sec-WebSocket-Protocol: " + strings.Join(protocols, ", ") + "\r\n")
	}
	c.Write([]byte(b.String() + "\r\n"))
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	return c, br, resp, err
}

// Request sends a request unchanged, on a connection of its own.
func (d *Door) Request(raw string) (*Conn, *bufio.Reader) {
	d.t.Helper()
	c, err := d.ln.Dial()
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	c.Write([]byte(raw))
	return c, bufio.NewReader(c)
}

// PlayerRefused connects a client that offers reseat.refusals, with its own header
// lines. It expects a 101 without a session.
func (d *Door) PlayerRefused(path, header string) *Peer {
	d.t.Helper()
	return d.must(path, []string{wire.Subprotocol, wire.Refusals}, header, true)
}

// Plain connects a client that does not speak reseat.v1.
func (d *Door) Plain(path string, protocols ...string) *Peer {
	d.t.Helper()
	return d.must(path, protocols, "", false)
}

// PlainWith is Plain with additional header lines, each ending in CRLF.
func (d *Door) PlainWith(path, header string) *Peer {
	d.t.Helper()
	return d.must(path, nil, header, false)
}

// must is dial for what must succeed.
func (d *Door) must(path string, protocols []string, header string, speaks bool) *Peer {
	d.t.Helper()
	p, err := d.dial(path, protocols, header, speaks)
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

// Dial connects a client that speaks reseat.v1 with exactly these subprotocols. It
// returns an error unless the response is a 101.
func (d *Door) Dial(path string, protocols []string) (*Peer, error) {
	return d.dial(path, protocols, "", true)
}

func (d *Door) dial(path string, protocols []string, header string, speaks bool) (*Peer, error) {
	c, br, resp, err := d.Handshake(path, protocols, header)
	switch {
	case err != nil:
		return nil, fmt.Errorf("handshake: %w", err)
	case resp.StatusCode != http.StatusSwitchingProtocols:
		c.Close()
		return nil, fmt.Errorf("handshake: %s", resp.Status)
	}
	p := newPeer(d.t, c, br, true, speaks, newCodec(resp.Header.Get("Sec-WebSocket-Extensions")))
	p.Answer = resp
	return p, nil
}

// A Player is a client that speaks reseat.v1, over all its connections. It acks only
// when the test says so.
type Player struct {
	*Peer
	door     *Door
	protocol []string
	Hello    wire.Hello
}

// Player begins a session and reads its hello.
func (d *Door) Player(path string, protocols ...string) *Player {
	d.t.Helper()
	return d.player(path, "", protocols)
}

// PlayerWith is Player with additional header lines, each ending in CRLF.
func (d *Door) PlayerWith(path, header string) *Player {
	d.t.Helper()
	return d.player(path, header, nil)
}

func (d *Door) player(path, header string, protocols []string) *Player {
	d.t.Helper()
	p := &Player{door: d, protocol: protocols}
	p.Peer = d.must(path, append(protocols, wire.Subprotocol), header, true)
	p.readHello()
	return p
}

// Claim resumes a pre-created session, and reads its hello.
func (d *Door) Claim(token string) *Player {
	d.t.Helper()
	p := &Player{door: d}
	p.Peer = p.TryResume(token, "0")
	p.readHello()
	return p
}

func (p *Player) readHello() {
	m := p.next()
	if m.Verb != wire.VerbHello {
		p.t.Fatalf("got %v, want hello", m)
	}
	p.Hello = wire.Hello{}
	if err := json.Unmarshal([]byte(m.Data), &p.Hello); err != nil {
		p.t.Fatalf("hello %s: %v", m.Data, err)
	}
}

// TryResume resumes with a token and a received count. The caller checks the outcome.
func (p *Player) TryResume(token, received string) *Peer {
	p.door.t.Helper()
	list := append(append([]string{}, p.protocol...), wire.Subprotocol, "reseat.token."+token, "reseat.received."+received)
	return p.door.must("/resume", list, "", true)
}

// Resume resumes on a new connection, with the messages up to received, and reads the
// hello.
func (p *Player) Resume(received uint64) *Player {
	p.t.Helper()
	return p.ResumeAs(p.Hello.Token, fmt.Sprint(received))
}

// ResumeAs is Resume with a token and a count, as in TryResume.
func (p *Player) ResumeAs(token, received string) *Player {
	p.t.Helper()
	q := &Player{door: p.door, protocol: p.protocol}
	q.Peer = p.TryResume(token, received)
	q.readHello()
	if !q.Hello.Resumed || q.Hello.Session != p.Hello.Session {
		p.t.Fatalf("hello %+v, want a resume of %s", q.Hello, p.Hello.Session)
	}
	return q
}

// At is p as a client that resumes at another address.
func (p *Player) At(d *Door) *Player {
	q := *p
	q.door = d
	return &q
}

// Ack acks the messages up to n.
func (p *Player) Ack(n uint64) { p.Control(fmt.Sprint("ack ", n)) }

// Sync waits until the gateway has processed everything sent so far.
func (p *Player) Sync() {
	p.t.Helper()
	p.Control("ping sync")
	p.WantControl(wire.VerbPong)
}
