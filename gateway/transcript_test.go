package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/config"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/wire"
)

const (
	transcripts  = "../testdata/transcripts/"
	protocolPage = "../docs/protocol.md"
)

// readTranscripts reads all golden transcripts, by file name.
func readTranscripts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(transcripts + "*.txt")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	texts := make(map[string]string)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(f)] = string(b)
	}
	return texts
}

func parseTranscript(t *testing.T, name, text string) []wstest.Step {
	t.Helper()
	steps, err := wstest.ParseTranscript(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// played returns the error of play for a transcript.
func played(t *testing.T, steps []wstest.Step) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { err = play(t, steps) })
	return err
}

func TestTranscripts(t *testing.T) {
	for name, text := range readTranscripts(t) {
		t.Run(strings.TrimSuffix(name, ".txt"), func(t *testing.T) {
			if err := played(t, parseTranscript(t, name, text)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What a transcript expects is checked: a step that is left out, or says something else, is noticed.
func TestTranscriptWithOneCorruptedCheckFails(t *testing.T) {
	for name, text := range readTranscripts(t) {
		steps := parseTranscript(t, name, text)
		for i, step := range steps {
			if step.Actor != 'G' && !(step.Actor == 'U' && step.Told) {
				continue
			}
			other := slices.Clone(steps)
			switch b := step.Body.(type) {
			case wstest.Data:
				other[i].Body = wstest.Data{Op: b.Op, Payload: b.Payload + "x"}
			case wstest.Closing:
				other[i].Body = wstest.Closing{Code: b.Code + 1, Any: true}
			case wstest.Control:
				other[i].Body = wstest.Control{Verb: b.Verb + "x", Arg: b.Arg, Members: b.Members}
			}
			if played(t, other) == nil {
				t.Errorf("%s: %s: something else is not noticed", step.At, step.Text)
			}
			if _, ok := step.Body.(wstest.Data); ok && played(t, slices.Delete(slices.Clone(steps), i, i+1)) == nil {
				t.Errorf("%s: %s: it may be left out", step.At, step.Text)
			}
		}
	}
}

// section returns the text of the protocol page under a heading, given without its number.
func section(t *testing.T, heading string) string {
	t.Helper()
	b, err := os.ReadFile(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`(?m)^#{2,3} [0-9.]+ ` + heading + `$`).FindIndex(b)
	if at == nil {
		t.Fatalf("%s has no heading %q", protocolPage, heading)
	}
	text, _, _ := strings.Cut(string(b[at[1]:]), "\n## ")
	return text
}

// The page must print a transcript and explain each of its steps, in order.
func TestProtocolPagePrintsAndExplainsTheTranscript(t *testing.T) {
	const name = "drop-and-resume.txt"
	text := section(t, "Worked example")
	_, text, _ = strings.Cut(text, "\n```text\n")
	block, list, ok := strings.Cut(text, "```\n")
	if file := readTranscripts(t)[name]; !ok || block != file {
		t.Fatalf("%s prints\n%s\nand %s is\n%s", protocolPage, block, name, file)
	}
	list = strings.Join(strings.Fields(list), " ") // a step may be wrapped
	for _, step := range parseTranscript(t, name, block) {
		var found bool
		if _, list, found = strings.Cut(list, "`"+step.Text+"`"); !found {
			t.Fatalf("%s: no explanation of `%s` after those of the previous steps", step.At, step.Text)
		}
	}
}

func TestProtocolPageHasTheGatewaysVerbs(t *testing.T) {
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| (?:gateway|client|both) \\|").FindAllStringSubmatch(section(t, "Verbs"), -1) {
		got = append(got, row[1])
	}
	want := []string{
		wire.VerbHello, wire.VerbAck, wire.VerbToken, wire.VerbGrace, wire.VerbPing, wire.VerbPong,
		wire.VerbBye, wire.VerbLeaving, wire.VerbSkip, wire.VerbParts, wire.VerbPart, wire.VerbMove, wire.VerbUpstream, wire.VerbEnd, wire.VerbClose,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has the verbs %v, the gateway %v", protocolPage, got, want)
	}
}

// A story plays one transcript: the runner is the client and the upstream of a real gateway,
// by the table in testdata/transcripts/README.md.
//
// The order of one connection is strict: data, control messages and Close frames must come
// in the order of the file.
type story struct {
	*world
	client     []*link  // the client's connections, #1 first
	upstream   []*link  // the game server's, the newest last
	token      string   // the latest
	said       []string // the client's data messages from number 1, as on the wire
	atUpstream uint64   // data messages that the upstream has received
}

// A link is the runner's end of one connection.
type link struct {
	*wstest.Peer
	come     []wstest.Message // received and not yet checked, without acks, heartbeats and tokens
	checked  int
	heard    bool   // anything was received
	halfOpen bool   // the gateway can no longer write to it
	dropped  bool   // it is closed
	stated   uint64 // received=N of its handshake
	number   uint64 // of the client's last message on it
	acked    uint64 // the last ack on it, or none
}

const none = math.MaxUint64

// play plays a transcript to its end or to the first step that fails. It must
// be called in a synctest bubble.
func play(t *testing.T, steps []wstest.Step) error {
	configure, err := flags(steps)
	if err != nil {
		return err
	}
	s := &story{world: newWorld(t, testPolicy(), configure)}
	for _, step := range steps {
		if err = s.perform(step); err == nil {
			err = s.collect()
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", step.At, step.Text, err)
		}
	}
	if err := s.unexpected(); err != nil {
		return fmt.Errorf("%s: at the end: %w", steps[len(steps)-1].At, err)
	}
	return nil
}

// flags turns a transcript's settings into the gateway's, using its real flags.
func flags(steps []wstest.Step) (func(*gateway.Config), error) {
	args := []string{"--upstream", "ws://game.example:9000"}
	for _, step := range steps {
		if flag, ok := step.Body.(wstest.Setting); ok {
			args = append(args, "--"+flag.Name, flag.Value)
		}
	}
	set, err := config.Parse(args, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", steps[0].At, err)
	}
	return func(c *gateway.Config) {
		keys, log, dial := c.Keys, c.Log, c.Routes[0].Upstream.DialContext
		*c = set.Gateway
		c.Keys, c.Log = keys, log
		for i := range c.Routes {
			c.Routes[i].Upstream.DialContext = dial
		}
	}, nil
}

// perform carries out or checks one step.
func (s *story) perform(step wstest.Step) error {
	switch body := step.Body.(type) {
	case wstest.Clock:
		time.Sleep(time.Duration(body))
	case wstest.Network:
		return s.cut(body)
	case wstest.Handshake:
		return s.handshake(body)
	}
	switch {
	case step.Actor == 'C':
		return s.clientSays(step)
	case step.Actor == 'G':
		return s.gatewaySays(step)
	case step.Actor == 'U' && step.Told:
		return s.upstream[len(s.upstream)-1].want(step.Body)
	case step.Actor == 'U':
		s.upstream[len(s.upstream)-1].say(step.Body)
	}
	return nil
}

// collect waits until all goroutines are idle, and collects what was received.
func (s *story) collect() error {
	synctest.Wait()
	for _, l := range s.upstream {
		for m, ok := l.Come(); ok; m, ok = l.Come() {
			s.upstreamReceived(l, m)
		}
	}
	for _, l := range s.client {
		for m, ok := l.Come(); ok; m, ok = l.Come() {
			if err := s.clientReceived(l, m); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *story) upstreamReceived(l *link, m wstest.Message) {
	switch {
	case m.Err != nil || m.Op == frame.Ping || m.Op == frame.Pong:
		return
	case m.Op != frame.Close:
		s.atUpstream++
	}
	l.come = append(l.come, m)
}

// clientReceived records a message on a client's connection. Acks and tokens may come at any
// time after the hello.
func (s *story) clientReceived(l *link, m wstest.Message) error {
	if m.Err != nil {
		return nil
	}
	first := !l.heard
	l.heard = true
	switch {
	case m.Op == frame.Ping, m.Op == frame.Pong:
		return nil
	case m.Verb != wire.VerbAck && m.Verb != wire.VerbPing && m.Verb != wire.VerbPong && m.Verb != wire.VerbToken:
		l.come = append(l.come, m)
		return nil
	case first:
		return fmt.Errorf("%v came before hello", m)
	case m.Verb == wire.VerbAck:
		return l.ack(m.Data, s.atUpstream)
	case m.Verb == wire.VerbToken && l == s.newest():
		return s.renew(m.Data)
	}
	return nil
}

// ack checks an ack of the gateway; atUpstream is the number of messages at the upstream.
func (l *link) ack(arg string, atUpstream uint64) error {
	n, ok := wire.ParseNumber(arg)
	if !ok || n > atUpstream {
		return fmt.Errorf("the gateway acks %q, but the upstream has received %d messages", arg, atUpstream)
	}
	l.acked = n
	return nil
}

// renew records the token in a hello or token message.
func (s *story) renew(arg string) error {
	var body struct{ Token string }
	if err := json.Unmarshal([]byte(arg), &body); err != nil || body.Token == "" {
		return fmt.Errorf("no token in %s", arg)
	}
	s.token = body.Token
	return nil
}

func (s *story) newest() *link { return s.client[len(s.client)-1] }

// at returns the connection that a step names.
func (s *story) at(step wstest.Step) *link {
	if step.Conn > 0 {
		return s.client[step.Conn-1]
	}
	return s.newest()
}

// cut drops the client's newest connection.
func (s *story) cut(how wstest.Network) error {
	l := s.newest()
	switch {
	case l.dropped:
		return errors.New("the connection is already dropped")
	case how == wstest.Drop:
		l.dropped = true
		l.Drop()
	default:
		l.halfOpen = true
		l.Mute.Store(true)
		l.Hold(true)
	}
	return nil
}

// handshake dials. The game server chooses the first offered subprotocol.
func (s *story) handshake(h wstest.Handshake) error {
	s.game.Choose = ""
	if own := h.Own(); len(own) > 0 {
		s.game.Choose = own[0]
	}
	peer, err := s.Dial(h.Path, h.Protocols(s.token))
	if err != nil {
		return err
	}
	if got := peer.Answer.Header.Values("Sec-WebSocket-Protocol"); !slices.Equal(got, []string{wire.Subprotocol}) {
		return fmt.Errorf("answered with the subprotocol %q, want %s", got, wire.Subprotocol)
	}
	s.client = append(s.client, &link{Peer: peer, stated: h.Received, acked: none})
	return s.acceptUpstream(h)
}

// acceptUpstream accepts the upstream connection of a new session; a resume must not open one.
func (s *story) acceptUpstream(h wstest.Handshake) error {
	synctest.Wait()
	if h.Resume {
		if s.game.Joined() > 0 {
			return errors.New("the gateway dialled the upstream for a resume")
		}
		return nil
	}
	if n := s.game.Joined(); n != 1 {
		return fmt.Errorf("the gateway dialled the upstream %d times, want once", n)
	}
	game := s.game.Next()
	if got := wire.Protocols(game.Req.Header); !slices.Equal(got, h.Own()) || game.Req.RequestURI != h.Path {
		return fmt.Errorf("the upstream was asked for %s and offered %q, want %s and %q", game.Req.RequestURI, got, h.Path, h.Own())
	}
	s.upstream = append(s.upstream, &link{Peer: game})
	s.said = nil
	return nil
}

// clientSays sends what the client says. On a half-open connection it is lost.
func (s *story) clientSays(step wstest.Step) error {
	l := s.at(step)
	if data, ok := step.Body.(wstest.Data); ok {
		if err := s.count(l, data); err != nil {
			return err
		}
	}
	switch {
	case l.dropped:
		return errors.New("cannot send on a dropped connection")
	case !l.halfOpen:
		l.say(step.Body)
	}
	return nil
}

// count numbers the client's data messages: the first one after a hello with received R is
// number R + 1, whether it is new or sent again.
func (s *story) count(l *link, d wstest.Data) error {
	l.number++
	m := fmt.Sprintf("opcode %d %q", d.Op, d.Payload)
	switch said := uint64(len(s.said)); {
	case l.number > said+1:
		return fmt.Errorf("this is message %d, but the client has sent %d", l.number, said)
	case l.number == said+1:
		s.said = append(s.said, m)
	case s.said[l.number-1] != m:
		return fmt.Errorf("message %d was %s at first", l.number, s.said[l.number-1])
	}
	return nil
}

// say sends a message as written in the file.
func (l *link) say(body any) {
	switch body := body.(type) {
	case wstest.Data:
		l.Frame(body.Op, true, body.Payload)
	case wstest.Control:
		l.Control(strings.TrimSuffix(body.Verb+" "+body.Arg, " "))
	case wstest.Closing:
		l.Close(body.Code, body.Reason)
	}
}

// gatewaySays checks what the gateway sends, and sends the answers that the file omits.
func (s *story) gatewaySays(step wstest.Step) error {
	l := s.at(step)
	if l.halfOpen {
		if step.Conn == 0 {
			return errors.New("a half-open connection is read only if #K names it")
		}
		if err := s.readHalfOpen(l); err != nil {
			return err
		}
	}
	body, _ := step.Body.(wstest.Control)
	if body.Verb == wire.VerbAck {
		return s.wantAck(l, body.Arg)
	}
	if body.Verb == wire.VerbHello {
		return s.wantHello(l, body)
	}
	err := l.want(step.Body)
	if c, ok := step.Body.(wstest.Closing); ok && err == nil && !l.halfOpen {
		l.Close(c.Code, "")
	}
	return err
}

func (s *story) readHalfOpen(l *link) error {
	l.Hold(false)
	defer l.Hold(true)
	return s.collect()
}

// wantAck waits up to a second until the last ack is n.
func (s *story) wantAck(l *link, n string) error {
	want, _ := wire.ParseNumber(n)
	const pause = 50 * time.Millisecond
	for waited := time.Duration(0); l.acked != want && waited < time.Second; waited += pause {
		time.Sleep(pause)
		if err := s.collect(); err != nil {
			return err
		}
	}
	switch l.acked {
	case want:
		return nil
	case none:
		return errors.New("no ack came")
	}
	return fmt.Errorf("the last ack is %d", l.acked)
}

// wantHello checks the hello, records its values, and sends the first ack.
func (s *story) wantHello(l *link, want wstest.Control) error {
	if l.checked > 0 {
		return errors.New("hello is the first message of a connection")
	}
	m, _ := l.first()
	if err := l.want(want); err != nil {
		return err
	}
	var hello wire.Hello
	if err := json.Unmarshal([]byte(m.Data), &hello); err != nil {
		return fmt.Errorf("hello %s: %w", m.Data, err)
	}
	if n := uint64(len(s.said)); hello.Received > n {
		return fmt.Errorf("received %d, but the client has sent %d messages", hello.Received, n)
	}
	l.number = hello.Received
	if !l.halfOpen && !l.dropped {
		l.Control("ack " + strconv.FormatUint(l.stated+hello.Lost, 10))
	}
	return s.renew(m.Data)
}

func (l *link) first() (wstest.Message, error) {
	if len(l.come) == 0 {
		return wstest.Message{}, errors.New("nothing came")
	}
	return l.come[0], nil
}

// want checks the next received message.
func (l *link) want(body any) error {
	m, err := l.first()
	if err != nil {
		return err
	}
	l.come = l.come[1:]
	l.checked++
	if !matches(m, body) {
		return fmt.Errorf("got %v", m)
	}
	return nil
}

func matches(m wstest.Message, body any) bool {
	switch want := body.(type) {
	case wstest.Data:
		return m.Verb == "" && m.Op == want.Op && m.Raw == want.Payload
	case wstest.Closing:
		return m.Op == frame.Close && m.Code == want.Code && (want.Any || m.Reason == want.Reason)
	case wstest.Control:
		if want.Members == nil {
			return m.Verb == want.Verb && m.Data == want.Arg
		}
		return m.Verb == want.Verb && hasMembers(m.Data, want.Members)
	}
	return false
}

// hasMembers reports whether a JSON object contains these members.
func hasMembers(object string, want map[string]any) bool {
	var got map[string]any
	if json.Unmarshal([]byte(object), &got) != nil {
		return false
	}
	for name, value := range want {
		if g, ok := got[name]; !ok || !reflect.DeepEqual(g, value) {
			return false
		}
	}
	return true
}

// unexpected checks for messages that are not in the file: data on any connection, and any
// message on the newest one while it is open.
func (s *story) unexpected() error {
	for _, l := range s.client {
		l.Hold(false)
	}
	if err := s.collect(); err != nil {
		return err
	}
	for _, l := range slices.Concat(s.client, s.upstream) {
		strict := l == s.newest() && !l.halfOpen && !l.dropped
		for _, m := range l.come {
			if strict || m.Op != frame.Close && m.Verb == "" {
				return fmt.Errorf("got %v, which is not in the file", m)
			}
		}
	}
	return nil
}
