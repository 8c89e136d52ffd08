package operate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A player speaks reseat.v1, implemented from docs/protocol.md alone, and resumes after
// each disconnect. It is for one goroutine.
type player struct {
	t      *testing.T
	url    string
	from   string // the address that it connects from; empty: 127.0.0.1
	header http.Header
	jar    http.CookieJar
	tls    *tls.Config // nil: the system's CAs

	conn     *websocket.Conn
	session  string
	token    string
	route    string   // of the newest hello
	received uint64   // of the game's messages
	said     uint64   // messages passed to say
	unacked  []string // of them, those that may have to be resent
	resumes  int
	pings    int // received on this connection
}

// A closing is the gateway's message before it closes a connection.
type closing struct {
	Code   int
	Reason string
	Retry  bool
}

func (c *closing) Error() string { return fmt.Sprintf("close %d %s", c.Code, c.Reason) }

// patience bounds each wait, so that a test ends.
const patience = time.Minute

func (p *player) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// connect starts the session, or resumes it, once.
func (p *player) connect() error {
	ctx, cancel := p.context()
	defer cancel()
	offer := []string{"reseat.v1"}
	if p.token != "" {
		offer = append(offer, "reseat.token."+p.token, fmt.Sprint("reseat.received.", p.received))
		if p.route != "" {
			offer = append(offer, "reseat.route."+p.route)
		}
	}
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(cmp.Or(p.from, "127.0.0.1"))}}
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

// greet processes the first message of a connection.
func (p *player) greet(b []byte) error {
	verb, arg, _ := bytes.Cut(b, []byte(" "))
	var hello struct {
		Session, Token, Route string
		Resumed               bool
		Received, Lost        uint64
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
	p.session, p.token, p.route = hello.Session, hello.Token, hello.Route
	p.forget(hello.Received)
	p.tell(fmt.Sprint("ack ", p.received))
	for _, text := range p.unacked {
		p.write(text)
	}
	return nil
}

// forget removes the messages up to n, which have been acked.
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
	p.conn.Write(ctx, websocket.MessageText, []byte(text)) // if it fails, the reader fails too
}

// say sends a player's message.
func (p *player) say(text string) {
	p.said++
	p.unacked = append(p.unacked, text)
	p.write(text)
}

// next reads the game server's next message, over as many connections as necessary.
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

// resume resumes, and retries while the gateway can't be reached.
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

// read reads the game server's next message on this connection.
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

// join starts a session of p, which ends with the test.
func (p *player) join(t *testing.T) *player {
	t.Helper()
	p.t = t
	if err := p.connect(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.conn.CloseNow() })
	return p
}

// counts reads n messages of a game that counts, which must follow the last one.
func (p *player) counts(n int) {
	p.t.Helper()
	for range n {
		want := fmt.Sprint(p.received + 1)
		if got := p.next(); got != want {
			p.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// wantEcho says something, which the game must answer.
func (p *player) wantEcho(text string) {
	p.t.Helper()
	p.say(text)
	if got := p.next(); got != text {
		p.t.Fatalf("got %q, want %q", got, text)
	}
}

// wantRefused checks that p begins no session, with an error that has this text.
func (p *player) wantRefused(what, text string) {
	p.t.Helper()
	if err := p.connect(); err == nil || !strings.Contains(err.Error(), text) {
		p.t.Errorf("%s: %v, want %s", what, err, text)
	}
}
