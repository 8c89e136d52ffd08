package client_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/client"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/wire"
)

// A play runs one golden transcript. The runner plays the gateway and the application,
// following the client column of the table in testdata/transcripts/README.md. A browser
// event ("online") is a Drop here.
type play struct {
	*stage
	steps []wstest.Step
	conns []*actor
	said  []string // the client's data messages, as on the wire, from number 1
	given int      // how many of them A has written
	taken uint64   // data messages delivered to the application
	ended chan error
	flags map[string]any // members for the hello
}

// An actor is one connection, the runner's end of it.
type actor struct {
	*wstest.Peer
	come   []wstest.Message // received but not checked yet, without acks and heartbeats
	acked  string
	last   uint64 // number of the newest message sent on it
	number int    // number of the client's newest message on it
	dead   bool
}

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("../../testdata/transcripts/*.txt")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := played(t, string(text)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The runner checks what the client sends: each row damages a copy of a file.
func TestTranscriptThatDeviatesFails(t *testing.T) {
	for _, c := range []struct{ file, from, to string }{
		{"drop-and-resume", "v1, received=1", "v1, received=2"},
		{"drop-and-resume", "chat.v2, reseat.v1\n", "chat.v3, reseat.v1\n"},
		{"drop-and-resume", "C> ^ack 3", "C> ^ack 2"},
		{"resend", `G> ^hello {"resumed":true,"received":1`, `G> ^hello {"resumed":true,"received":2`},
		{"dle-escape", `C> "\u0010\u0010ack 9"`, `C> "\u0010ack 9"`},
		{"bye-while-detached", `C> ^bye {"code":4001`, `C> ^bye {"code":4002`},
		{"grace-over", `A< close {"code":4404`, `A< close {"code":4408`},
		{"upstream-end-while-away", `A< close {"code":4000`, `A< close {"code":4001`},
	} {
		text, err := os.ReadFile("../../testdata/transcripts/" + c.file + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		spoilt := strings.Replace(string(text), c.from, c.to, 1)
		if spoilt == string(text) {
			t.Fatalf("%q is not in %s", c.from, c.file)
		}
		if err := played(t, spoilt); err == nil {
			t.Errorf("%s: %q instead of %q, and the check passed", c.file, c.to, c.from)
		}
	}
}

func played(t *testing.T, text string) (err error) {
	t.Helper()
	steps, err := wstest.ParseTranscript("transcript", text)
	if err != nil {
		return err
	}
	onStage(t, func(t *testing.T, s *stage) {
		p := &play{stage: s, steps: steps, ended: make(chan error, 1), flags: map[string]any{}}
		for _, step := range steps {
			if err = p.runStep(step); err != nil {
				err = fmt.Errorf("%s: %s: %w", step.At, step.Text, err)
				break
			}
		}
		if err == nil {
			err = p.unexpected()
		}
		if p.c != nil {
			p.c.CloseNow()
		}
	})
	return err
}

func (p *play) newest() *actor { return p.conns[len(p.conns)-1] }

// runStep executes or checks one step.
func (p *play) runStep(step wstest.Step) error {
	a := (*actor)(nil)
	if len(p.conns) > 0 {
		if a = p.newest(); step.Conn > 0 {
			a = p.conns[step.Conn-1]
		}
	}
	switch body := step.Body.(type) {
	case wstest.Setting:
		return p.flag(body)
	case wstest.Clock:
		time.Sleep(time.Duration(body))
		return nil
	case wstest.Network:
		return p.cut(a, body)
	case wstest.Handshake:
		return p.handshake(body)
	case wstest.Application:
		return p.application(step)
	case wstest.Data:
		return p.data(step.Actor, a, body)
	case wstest.Control:
		return p.control(step.Actor, a, body)
	case wstest.Closing:
		if step.Actor == 'G' {
			a.Close(body.Code, body.Reason)
		}
	}
	return nil
}

func (p *play) flag(f wstest.Setting) error {
	if f.Name == "grace" || f.Name == "heartbeat" {
		d, err := time.ParseDuration(f.Value)
		p.flags[f.Name+"_ms"] = d.Milliseconds()
		return err
	}
	return nil
}

func (p *play) cut(a *actor, n wstest.Network) error {
	if n == wstest.Drop {
		p.down.Store(true)
		a.Drop()
		a.dead = true
	}
	return nil // half-open: what the client sends is lost, without an error
}

// handshake waits for the client's next connection.
func (p *play) handshake(h wstest.Handshake) error {
	p.down.Store(false)
	if len(p.conns) == 0 {
		go p.dial(h)
	}
	for range 50 { // a little more than 5 s
		if synctest.Wait(); p.door.Joined() > 0 {
			break
		}
		time.Sleep(101 * time.Millisecond)
	}
	if p.door.Joined() == 0 {
		return errors.New("no handshake came")
	}
	a := &actor{Peer: p.door.Next()}
	o := wire.ParseOffer(a.Req.Header)
	if strings.Join(o.Protocols, ", ") != strings.Join(h.Own(), ", ") || o.Resume != h.Resume || o.Received != h.Received {
		return fmt.Errorf("offered %+v", o)
	}
	if h.Resume && o.Token != fmt.Sprintf("t%d", tokensMade) {
		return fmt.Errorf("offered the token %s, want t%d", o.Token, tokensMade)
	}
	a.last = o.Received
	p.conns = append(p.conns, a)
	return nil
}

func (p *play) dial(h wstest.Handshake) {
	c, err := client.Dial(context.Background(), "ws://game.example"+h.Path, &client.Options{HTTPClient: p.client(), Subprotocols: h.Own()})
	if err != nil {
		p.ended <- err
		return
	}
	p.c = c
}

// application does what the application does, and checks the session's end. The other
// events are a browser's.
func (p *play) application(step wstest.Step) error {
	text := step.Text[3:]
	switch {
	case step.Told && strings.HasPrefix(text, "close "):
		return p.checkEnd(text[len("close "):])
	case step.Told:
		return nil
	case text == "online":
		p.c.Drop()
	case strings.HasPrefix(text, "close "):
		code, reason, _ := strings.Cut(text[len("close "):], " ")
		n, _ := strconv.Atoi(code)
		reason, err := strconv.Unquote(reason)
		go func() { p.ended <- p.c.Close(n, reason) }()
		return err
	default:
		typ, data, err := literal(text)
		if err != nil {
			return err
		}
		p.given++
		return p.c.Write(p.Context(), typ, data)
	}
	return nil
}

// checkEnd checks the error of Close or Read at the session's end.
func (p *play) checkEnd(members string) error {
	var want struct {
		Code   int
		Reason *string
	}
	if err := json.Unmarshal([]byte(members), &want); err != nil {
		return err
	}
	synctest.Wait()
	time.Sleep(3 * time.Second)
	select {
	case err := <-p.ended:
		return err
	default:
	}
	_, _, err := p.c.Read(p.Context())
	if e := (*client.CloseError)(nil); !errors.As(err, &e) || e.Code != want.Code || want.Reason != nil && e.Reason != *want.Reason {
		return fmt.Errorf("the application gets %v", err)
	}
	return nil
}

func literal(text string) (client.MessageType, []byte, error) {
	if digits, ok := strings.CutPrefix(text, "x"); ok {
		data, err := hex.DecodeString(strings.Trim(digits, `"`))
		return client.MessageBinary, data, err
	}
	var s string
	err := json.Unmarshal([]byte(text), &s)
	return client.MessageText, []byte(s), err
}

// data sends the client a message, or checks one of the client's.
func (p *play) data(actor byte, a *actor, d wstest.Data) error {
	switch actor {
	case 'G':
		a.Frame(d.Op, true, d.Payload)
		return p.checkDelivered(a, d)
	case 'C':
		return p.checkSent(a, d)
	}
	return nil
}

// checkDelivered checks that the application gets the message, unless it is a repeat or arrives
// on a superseded connection.
func (p *play) checkDelivered(a *actor, d wstest.Data) error {
	a.last++
	if a.last <= p.taken || a != p.newest() {
		return nil
	}
	p.taken = a.last
	ctx, cancel := context.WithTimeout(p.Context(), time.Second)
	defer cancel()
	_, data, err := p.c.Read(ctx)
	if want := unescaped(d); err != nil || string(data) != want {
		return fmt.Errorf("the application got %q, %v, want %q", data, err, want)
	}
	return nil
}

func unescaped(d wstest.Data) string {
	if d.Op == frame.Text {
		return strings.TrimPrefix(d.Payload, "\x10")
	}
	return d.Payload
}

// checkSent checks the client's next data message. The runner writes it first, unless it is
// a repeat or has been written already.
func (p *play) checkSent(a *actor, d wstest.Data) error {
	a.number++
	if a.number > len(p.said) {
		p.said = append(p.said, d.Payload)
		if p.given > 0 {
			p.given--
		} else if err := p.c.Write(p.Context(), typeOf(d.Op), []byte(unescaped(d))); err != nil {
			return err
		}
	}
	m, err := p.next(a)
	if err == nil && (m.Op != d.Op || m.Data != d.Payload) {
		err = fmt.Errorf("the client said %v", m)
	}
	return err
}

func typeOf(op byte) client.MessageType {
	if op == frame.Binary {
		return client.MessageBinary
	}
	return client.MessageText
}

// collect collects what has arrived: acks and heartbeats need not be in the file.
func (p *play) collect(a *actor) {
	for {
		synctest.Wait()
		m, ok := a.Come()
		if !ok {
			return
		}
		switch {
		case m.Err != nil, m.Op == frame.Close:
		case strings.HasPrefix(m.Data, "\x10ack "):
			a.acked = m.Data[5:]
		case strings.HasPrefix(m.Data, "\x10p"):
		default:
			a.come = append(a.come, m)
		}
	}
}

func (p *play) next(a *actor) (wstest.Message, error) {
	p.collect(a)
	if len(a.come) == 0 {
		return wstest.Message{}, errors.New("nothing came")
	}
	m := a.come[0]
	a.come = a.come[1:]
	return m, nil
}

// control sends what the gateway sends, or checks the client.
func (p *play) control(actor byte, a *actor, c wstest.Control) error {
	switch {
	case actor == 'G' && c.Verb == wire.VerbHello:
		return p.hello(a, c)
	case actor == 'G':
		a.Control(strings.TrimSuffix(c.Verb+" "+c.Arg, " "))
		return nil
	case c.Verb == wire.VerbAck:
		time.Sleep(time.Second)
		if p.collect(a); a.acked != c.Arg {
			return fmt.Errorf("the newest ack is %q", a.acked)
		}
		return nil
	}
	m, err := p.next(a)
	if err != nil {
		return err
	}
	verb, arg, _ := strings.Cut(m.Data, " ")
	var got map[string]any
	if err := json.Unmarshal([]byte(arg), &got); err != nil || verb != "\x10"+c.Verb {
		return fmt.Errorf("the client said %v", m)
	}
	for name, want := range c.Members {
		if got[name] != want {
			return fmt.Errorf("the client said %v", m)
		}
	}
	return nil
}

func (p *play) hello(a *actor, c wstest.Control) error {
	members := map[string]any{"resumed": len(p.conns) > 1}
	for name, value := range p.flags {
		members[name] = value
	}
	for name, value := range c.Members {
		members[name] = value
	}
	received, _ := members["received"].(float64)
	a.number = int(received)
	stated := a.last
	if lost, ok := members["lost"].(float64); ok {
		a.last += uint64(lost)
		p.taken = max(p.taken, a.last)
	}
	hello(a.Peer, members)
	p.collect(a)
	if a.acked != fmt.Sprint(a.last) {
		return fmt.Errorf("acked %q at once after stating %d, want %d", a.acked, stated, a.last)
	}
	return nil
}

// unexpected returns what the client sent and the file does not contain.
func (p *play) unexpected() error {
	for i, a := range p.conns {
		if p.collect(a); len(a.come) > 0 {
			return fmt.Errorf("on connection %d at the end: %v", i+1, a.come)
		}
	}
	select {
	case err := <-p.ended:
		return err
	default:
		return nil
	}
}
