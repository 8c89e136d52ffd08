package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens"
	"reseat/upstream"
)

// A world is a gateway, a game server and players, connected in memory.
type world struct {
	*wstest.Door
	game *wstest.Game
	gw   *gateway.Gateway
	t    *testing.T
}

// testPolicy is the default policy of the tests.
func testPolicy() policy.Policy {
	return policy.Policy{
		Grace: 30 * time.Second, Heartbeat: 15 * time.Second, DialTimeout: 10 * time.Second,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
	}
}

// changed returns p with a change.
func changed(p policy.Policy, change func(*policy.Policy)) policy.Policy {
	change(&p)
	return p
}

func newWorld(t *testing.T, p policy.Policy, change ...func(*gateway.Config)) *world {
	t.Helper()
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	game := wstest.NewGame(t, 64<<10)
	cfg := gateway.Config{
		Routes:  []policy.Route{{Pattern: "/*", Upstream: game.Target(), Policy: p}},
		Default: p, Keys: keys, Log: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	offer := compressAll(&cfg)
	gw, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{gw: gw, game: game, t: t, Door: wstest.Open(t, gw, 64<<10)}
	w.Offer = offer
	t.Cleanup(func() {
		gw.Close()
		time.Sleep(20 * time.Second) // fake: all closing handshakes have finished
	})
	return w
}

// logTo has the gateway write its log to out.
func logTo(out io.Writer) func(*gateway.Config) {
	return func(c *gateway.Config) { c.Log = slog.New(slog.NewTextHandler(out, nil)) }
}

// inWorld runs f in a bubble of synctest, with a world of its own.
func inWorld(t *testing.T, p policy.Policy, f func(*testing.T, *world), change ...func(*gateway.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, p, change...)) })
}

// inSession is inWorld with a session: f gets its client and its game server's connection.
func inSession(t *testing.T, p policy.Policy, f func(*testing.T, *world, *wstest.Player, *wstest.Peer), change ...func(*gateway.Config)) {
	t.Helper()
	inWorld(t, p, func(t *testing.T, w *world) {
		player, game := w.play()
		f(t, w, player, game)
	}, change...)
}

// eachInBubble runs f for each case, as a subtest in a bubble of its own.
func eachInBubble[C any](t *testing.T, cases map[string]C, f func(*testing.T, C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, c) })
		})
	}
}

// play begins a session and returns its client and its upstream.
func (w *world) play() (*wstest.Player, *wstest.Peer) {
	w.t.Helper()
	p := w.Player("/match/7")
	return p, w.game.Next()
}

// detach disconnects p once everything that it said has been processed.
func (w *world) detach(p *wstest.Player) {
	w.t.Helper()
	p.Sync()
	p.Drop()
	w.wantState(p, session.Detached)
}

// wantNoDial fails the test if the gateway has dialled the game server since the last Next.
func (w *world) wantNoDial() {
	w.t.Helper()
	synctest.Wait()
	wstest.Equal(w.t, "connections to the game server that nobody wanted", w.game.Joined(), 0)
}

// A talker is a client, or its game server's connection.
type talker interface {
	Pass(to interface{ Want(...string) }, texts ...string)
	Want(...string)
}

// goesOn checks that messages go both ways between a client and its game server.
func goesOn(a, b talker) {
	a.Pass(b, "one way")
	b.Pass(a, "and back")
}

// state returns a session's state, "" if it is unknown.
func (w *world) state(p *wstest.Player) string {
	synctest.Wait()
	i, _ := w.gw.Control().Session(p.Hello.Session)
	return i.State
}

func (w *world) wantState(p *wstest.Player, want session.State) {
	w.t.Helper()
	if got := w.state(p); got != want.String() {
		w.t.Fatalf("the session is %q, want %q", got, want)
	}
}

// A hello that nobody has confirmed has a grace period of its own: perhaps its token never arrived.
func TestSessionEndsAfterGracePeriod(t *testing.T) {
	of := func(d time.Duration) policy.Policy {
		return changed(testPolicy(), func(p *policy.Policy) { p.Grace = d })
	}
	const over = `game< Close 1001 grace period over; ended; refused 4404`
	playEach(t, map[string]scripted{
		"confirmed":   {of(30 * time.Second), `sync; client drops; 29.999s; detached; 1ms; ` + over},
		"unconfirmed": {of(time.Hour), `client drops; 4.999s; detached; 1ms; ` + over},
		"none":        {of(0), `sync; client drops; ` + over},
	})
}

func TestNewRefusesInvalidConfig(t *testing.T) {
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	game := upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example"}}
	for name, c := range map[string]struct {
		cfg  gateway.Config
		want string
	}{
		"no keys":           {gateway.Config{}, "Config.Keys is missing"},
		"no upstream":       {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "/*"}}}, `route "/*": no upstream`},
		"pattern":           {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "ranked", Upstream: game}}}, `route "ranked": `},
		"unfinished":        {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "/{id", Upstream: game}}}, `route "/{id": `},
		"one pattern twice": {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "/a", Upstream: game}, {Pattern: "/a", Upstream: game}}}, `route "/a": given twice`},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Log = slog.New(slog.DiscardHandler)
			g, err := gateway.New(c.cfg)
			if err == nil {
				g.Close()
				t.Fatal("it was made")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, want %q in it", err, c.want)
			}
		})
	}
}

// within bounds what a test waits for. Nothing is asserted about it.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for ctx := within(t); !holds(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("it has not come to that: %s", what)
		}
	}
}

// A scene is a session in a world of its own. A test plays what its two ends do, and what each gets: see play.
type scene struct {
	*world
	client, older *wstest.Player // the client's newest connection, and the one before
	up, before    *wstest.Peer   // the same of the game server
	plain, beside *wstest.Peer   // a client without reseat.v1, and its game server's connection
	answer        atomic.Pointer[func(net.Conn) bool]
	mark          time.Time
	counted       map[string]float64 // what counts compares with
	nodes         *nodes             // of a cluster, of which world is one
	durable       *durableNodes
}

// inScene runs f in a bubble of synctest, with a scene of its own.
func inScene(t *testing.T, p policy.Policy, f func(*scene), change ...func(*gateway.Config)) {
	t.Helper()
	inWorld(t, p, func(t *testing.T, w *world) {
		s := &scene{world: w}
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
			answer := s.answer.Load()
			return answer != nil && (*answer)(c)
		}
		path := "/match/7"
		if p.Login != nil {
			path += "?player=ann"
		}
		s.counted = w.metrics()
		s.begin(path)
		f(s)
	}, change...)
}

// A scripted is a test that is a script and no more.
type scripted struct {
	policy policy.Policy
	script string
}

// plays plays a script in a scene of its own, playEach one after the other.
func plays(t *testing.T, p policy.Policy, script string) {
	t.Helper()
	inScene(t, p, func(s *scene) { s.play(script) })
}

func playEach(t *testing.T, scripts map[string]scripted) {
	for name, c := range scripts {
		t.Run(name, func(t *testing.T) { plays(t, c.policy, c.script) })
	}
}

// play takes steps, which ; ends:
//
//	client> a, ^ack 2, Close 1001       the client sends these: ^ is a DLE, a*100 a hundred a, "\xff" a byte
//	client< a, ^pong, ^close 4404       it gets these next; see gets
//	older, game, before, plain, beside  the same of other connections
//	game drops; closes; half-closes; is silent; is mute
//	sync; detach                        all that the client has said was processed; then it is disconnected
//	begin; begin /other                 the client begins another session
//	visit                               a client without reseat.v1 comes
//	resume 2; refused 4400 final 9      a client resumes that has received so many; another is refused
//	resume 2 1 3                        the same; its own messages are settled up to 1, and sent up to 3
//	next; no dial                       the game server gets its next connection; it was not dialled
//	server accepts; hangs up; hangs up after 8s; refuses 503; waits 8s    what it does with dials from here on
//	attached; detached; ended; connecting
//	hello received=1 replay=2           fields of the newest hello
//	info acked=4                        fields of the session in the control API
//	10s; mark; took 10s; took 0s to 1s  time passes; the time since the mark
//	end; fails                          an operator ends the session; its code panics
//	drain; call off                     what an operator does
//	new refused; new accepted           whether new sessions are accepted
//	counts FAMILY ok=2 =7; forget       how a family of metrics has changed, by label, since forget, or since the session began
func (s *scene) play(script string) {
	s.t.Helper()
	for step := range strings.SplitSeq(script, ";") {
		if step = strings.TrimSpace(step); step != "" {
			s.do(script, step)
		}
	}
}

func (s *scene) do(script, step string) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("at %.100q, playing %.2000s", step, script)
		}
	}()
	s.step(step)
}

func (s *scene) peer(name string) *wstest.Peer {
	switch strings.Trim(name, "<>") {
	case "client":
		return s.client.Peer
	case "older":
		return s.older.Peer
	case "game":
		return s.up
	case "before":
		return s.before
	case "plain":
		return s.plain
	case "beside":
		return s.beside
	}
	return nil
}

func (s *scene) step(step string) {
	s.t.Helper()
	verb, rest, _ := strings.Cut(step, " ")
	if p := s.peer(verb); p != nil {
		s.of(p, verb[len(verb)-1:], rest)
		return
	}
	switch verb {
	case "sync":
		s.client.Sync()
	case "detach":
		s.detach(s.client)
	case "begin":
		if rest == "" {
			rest = "/match/7"
		}
		s.begin(rest)
	case "end":
		s.gw.Control().End("", s.client.Hello.Session, wire.CodeNormal, rest)
	case "fails":
		gateway.Fail(s.gw, s.client.Hello.Session)
	case "drain":
		s.gw.BeginDrain()
	case "call":
		s.gw.CallOffDrain()
	case "forget":
		s.counted = s.metrics()
	case "counts":
		family, list, _ := strings.Cut(rest, " ")
		want := map[string]float64{}
		for f := range strings.FieldsSeq(list) {
			label, n, _ := strings.Cut(f, "=")
			want[label], _ = strconv.ParseFloat(n, 64)
		}
		s.wantSince(s.counted, family, want)
	case "visit":
		s.plain, s.beside = s.world.plain()
	case "resume":
		synctest.Wait()
		s.older, s.client = s.client, s.client.ResumeAs(s.states(strings.Fields(rest)))
	case "refused":
		how := strings.Fields(rest)
		code, want := s.number(how[0]), (*wstest.Peer).WantClosing
		if how = how[1:]; len(how) > 0 && wants[how[0]] != nil {
			want, how = wants[how[0]], how[1:]
		}
		want(s.client.TryResume(s.states(how)), code)
	case "next":
		s.before, s.up = s.up, s.game.Next()
	case "no":
		s.wantNoDial()
	case "server":
		s.serves(rest)
	case "connecting", "attached", "detached", "ended":
		wstest.Equal(s.t, "the session", s.state(s.client), verb)
	case "hello":
		wantFields(s.t, s.client.Hello, rest)
	case "info":
		synctest.Wait()
		i, _ := s.gw.Control().Session(s.client.Hello.Session)
		wantFields(s.t, i, rest)
	case "mark":
		s.mark = time.Now()
	case "took":
		least, most, ok := strings.Cut(rest, " to ")
		if !ok {
			most = least
		}
		if took := time.Since(s.mark); took < s.duration(least) || took > s.duration(most) {
			s.t.Errorf("it took %v", took)
		}
	case "new":
		s.wantNew(rest == "accepted")
	default:
		if s.nodes != nil && s.ofCluster(verb, rest) {
			return
		}
		time.Sleep(s.duration(step))
		synctest.Wait()
	}
}

// begin begins a session.
func (s *scene) begin(path string) {
	s.t.Helper()
	header := ""
	if s.durable != nil {
		header = "Reseat-Settled: 0 0\r\n"
	}
	s.older, s.client = s.client, s.PlayerWith(path, header)
	s.before, s.up = s.up, s.game.Next()
}

// states returns the token and the count of a resume that has received so many messages, and perhaps says what is settled.
func (s *scene) states(numbers []string) (token, received string) {
	token, received = s.client.Hello.Token, "0"
	if len(numbers) > 0 {
		received = numbers[0]
	}
	if len(numbers) == 3 {
		token += ", reseat.settled." + numbers[1] + "." + numbers[2]
	}
	return token, received
}

// of is a step of a connection.
func (s *scene) of(p *wstest.Peer, way, rest string) {
	s.t.Helper()
	switch {
	case way == ">":
		for item := range strings.SplitSeq(rest, ", ") {
			says(p, item)
		}
	case way == "<":
		for item := range strings.SplitSeq(rest, ", ") {
			s.gets(p, item)
		}
	case rest == "drops":
		synctest.Wait() // what it has said has arrived
		p.Drop()
	case rest == "half-closes":
		p.Conn.CloseWrite()
	case rest == "closes":
		p.Conn.Close()
	case rest == "is silent":
		p.Conn.Silence()
	case rest == "is mute":
		p.Mute.Store(true)
	default:
		s.t.Fatalf("nobody %s", rest)
	}
}

// says sends an item.
func says(p *wstest.Peer, item string) {
	control, isControl := strings.CutPrefix(item, "^")
	code, isClose := strings.CutPrefix(item, "Close ")
	raw, err := strconv.Unquote(item)
	switch {
	case err == nil: // bytes, in Go's quotes
		p.Raw([]byte(raw))
	case isControl:
		p.Control(control)
	case isClose:
		number, reason, _ := strings.Cut(code, " ")
		n, _ := strconv.Atoi(number)
		p.Close(n, reason)
	default:
		p.Text(repeated(item))
	}
}

// repeated is an item's text: of a*100 a hundred a.
func repeated(item string) string {
	if what, times, ok := strings.Cut(item, "*"); ok {
		n, _ := strconv.Atoi(times)
		return strings.Repeat(what, n)
	}
	return item
}

// gets reads an item: a message; ^verb and perhaps its argument; ^close 4410 final, with its Close frame; ^end 4000 won, with
// its Close frame; ^upstream lost; Close 1001 and perhaps its reason; Pong x; end, of the connection; or nothing, that has come so far.
func (s *scene) gets(p *wstest.Peer, item string) {
	s.t.Helper()
	verb, arg, has := strings.Cut(item, " ")
	first, second, more := strings.Cut(arg, " ")
	switch {
	case verb == "^close" && more:
		wants[second](p, s.number(first))
	case verb == "^close":
		p.WantClosing(s.number(first))
	case verb == "^end":
		if m := p.WantControl(wire.VerbEnd); more && !strings.Contains(m.Data, `"reason":"`+second+`"`) {
			s.t.Fatalf("end %s", m.Data)
		}
		p.WantClose(s.number(first))
	case verb == "^upstream":
		var u wire.Upstream
		if err := json.Unmarshal([]byte(p.WantControl(wire.VerbUpstream).Data), &u); err != nil || u.State != arg {
			s.t.Fatalf("upstream %+v, %v", u, err)
		}
	case verb == "Pong":
		s.getsPong(p, arg)
	case strings.HasPrefix(verb, "^"):
		if m := p.WantControl(verb[1:]); has && m.Data != arg {
			s.t.Fatalf("got %v", m)
		}
	case verb == "Close" && more:
		p.WantReason(s.number(first), second)
	case verb == "Close":
		p.WantClose(s.number(first))
	case item == "end":
		p.WantEnd()
	case item == "nothing":
		p.WantNothing(0)
	default:
		p.Want(repeated(item))
	}
}

// getsPong reads up to a Pong with this; others may answer earlier Pings.
func (s *scene) getsPong(p *wstest.Peer, want string) {
	s.t.Helper()
	for {
		switch m, ok := p.Next(); {
		case !ok || m.Err != nil || m.Op == frame.Close:
			s.t.Fatalf("got %v, want a Pong %q", m, want)
		case m.Op == frame.Pong && m.Data == want:
			return
		}
	}
}

// wants are the closes after which a client is to come again, or not.
var wants = map[string]func(*wstest.Peer, int) wire.Closing{"retry": (*wstest.Peer).WantRetry, "final": (*wstest.Peer).WantFinal}

// serves is what the game server does with dials from here on.
func (s *scene) serves(how string) {
	verb, arg, _ := strings.Cut(how, " ")
	var answer func(net.Conn) bool
	switch verb {
	case "hangs": // up, or up after 15s
		_, after, _ := strings.Cut(arg, "after ")
		answer = func(c net.Conn) bool {
			if after != "" {
				time.Sleep(s.duration(after))
			}
			c.Close()
			return true
		}
	case "accepts":
		answer = func(net.Conn) bool { return false }
	case "refuses":
		answer = func(c net.Conn) bool {
			fmt.Fprintf(c, "HTTP/1.1 %s No\r\nContent-Length: 0\r\n\r\n", arg)
			c.Close()
			return true
		}
	case "waits":
		answer = func(net.Conn) bool { time.Sleep(s.duration(arg)); return false }
	}
	s.answer.Store(&answer)
}

// wantFields checks members of v, each as name=value, by their names in JSON.
func wantFields(t *testing.T, v any, fields string) {
	t.Helper()
	var all map[string]json.RawMessage
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	for f := range strings.FieldsSeq(fields) {
		name, want, _ := strings.Cut(f, "=")
		wstest.Equal(t, name, strings.Trim(string(all[name]), `"`), want)
	}
}

func (s *scene) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *scene) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatalf("no such step: %v", err)
	}
	return d
}
