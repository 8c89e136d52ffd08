package operate

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A player speaks reseat.v1, from docs/protocol.md alone, and takes up each
// connection that is lost. It is for one goroutine.
type player struct {
	t      *testing.T
	url    string
	from   string // the address that it comes from
	header http.Header
	jar    http.CookieJar
	tls    *tls.Config // nil: the system's authorities

	conn     *websocket.Conn
	session  string
	token    string
	received uint64   // of the game's messages
	said     uint64   // messages given to say
	unacked  []string // of them, those that may have to be said again
	resumes  int
	pings    int // heard on this connection
}

// A closing is what the gateway says before it closes a connection.
type closing struct {
	Code   int
	Reason string
	Retry  bool
}

func (c *closing) Error() string { return fmt.Sprintf("close %d %s", c.Code, c.Reason) }

// patience bounds what a player waits for, so that a test ends.
const patience = 20 * time.Second

func (p *player) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// connect begins the session, or resumes it, once.
func (p *player) connect() error {
	ctx, cancel := p.context()
	defer cancel()
	offer := []string{"reseat.v1"}
	if p.token != "" {
		offer = append(offer, "reseat.token."+p.token, fmt.Sprint("reseat.received.", p.received))
	}
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(p.from)}}
	transport := &http.Transport{DialContext: from.DialContext, TLSClientConfig: p.tls, DisableKeepAlives: true}
	conn, _, err := websocket.Dial(ctx, p.url, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport, Jar: p.jar}, HTTPHeader: p.header, Subprotocols: offer,
	})
	if err != nil {
		return err
	}
	conn.SetReadLimit(1 << 21)
	p.conn, p.pings = conn, 0
	_, b, err := conn.Read(ctx)
	if err != nil {
		return err
	}
	return p.greet(b)
}

// greet takes the first message of a connection.
func (p *player) greet(b []byte) error {
	verb, arg, _ := bytes.Cut(b, []byte(" "))
	var hello struct {
		Session, Token string
		Resumed        bool
		Received, Lost uint64
	}
	switch {
	case string(verb) == "\x10close":
		c := new(closing)
		if err := json.Unmarshal(arg, c); err != nil {
			return err
		}
		return c
	case string(verb) != "\x10hello":
		return fmt.Errorf("got %q, want hello", b)
	}
	if err := json.Unmarshal(arg, &hello); err != nil {
		return err
	}
	if hello.Resumed != (p.token != "") || hello.Lost > 0 || p.session != "" && p.session != hello.Session {
		return fmt.Errorf("hello %s, for session %s", arg, p.session)
	}
	p.session, p.token = hello.Session, hello.Token
	p.forget(hello.Received)
	p.tell(fmt.Sprint("ack ", p.received))
	for _, text := range p.unacked {
		p.write(text)
	}
	return nil
}

// forget drops what has been said and taken up to message n.
func (p *player) forget(n uint64) {
	first := p.said - uint64(len(p.unacked)) + 1
	if n >= first {
		p.unacked = p.unacked[n-first+1:]
	}
}

func (p *player) tell(control string) { p.write("\x10" + control) }

func (p *player) write(text string) {
	ctx, cancel := p.context()
	defer cancel()
	p.conn.Write(ctx, websocket.MessageText, []byte(text)) // where it fails the reader knows, too
}

// say sends a message of the player's.
func (p *player) say(text string) {
	p.said++
	p.unacked = append(p.unacked, text)
	p.write(text)
}

// next reads the next message of the game's, over as many connections as it takes.
func (p *player) next() string {
	p.t.Helper()
	for {
		text, err := p.read()
		if err == nil {
			return text
		}
		p.resume()
	}
}

// resume comes back, and tries again while the way is not there.
func (p *player) resume() {
	p.t.Helper()
	p.conn.CloseNow()
	p.resumes++
	began := time.Now()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := p.connect()
		if err == nil {
			return
		}
		if c, final := err.(*closing); final && !c.Retry || time.Since(began) > patience {
			p.t.Fatalf("resume %d of %s: %v", p.resumes, p.session, err)
		}
		<-time.After(wait)
	}
}

// read reads the next message of the game's on this connection.
func (p *player) read() (string, error) {
	ctx, cancel := p.context()
	defer cancel()
	for {
		_, b, err := p.conn.Read(ctx)
		if err != nil {
			return "", err
		}
		if len(b) > 0 && b[0] == 0x10 {
			p.control(string(b[1:]))
			continue
		}
		p.received++
		p.tell(fmt.Sprint("ack ", p.received))
		return string(b), nil
	}
}

func (p *player) control(s string) {
	var arg string
	verb := s
	if i := bytes.IndexByte([]byte(s), ' '); i >= 0 {
		verb, arg = s[:i], s[i+1:]
	}
	switch verb {
	case "ping":
		p.pings++
		p.tell("pong " + arg)
	case "ack":
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil {
			p.t.Errorf("ack %q", arg)
		}
		p.forget(n)
	case "token":
		var renewed struct{ Token string }
		if err := json.Unmarshal([]byte(arg), &renewed); err != nil {
			p.t.Errorf("token %q", arg)
		}
		p.token = renewed.Token
	case "pong", "grace":
	default:
		p.t.Errorf("control message %q", s)
	}
}

// join begins a session; from is the address that the player comes from.
func joinAs(t *testing.T, url, from string, header http.Header, jar http.CookieJar) *player {
	t.Helper()
	p := &player{t: t, url: url, from: from, header: header, jar: jar}
	if err := p.connect(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.conn.CloseNow() })
	return p
}
