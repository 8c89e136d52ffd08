package session_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// A table is a session with a driver that a test plays call by call: see play. The simulation
// runs everything at once; these tests tell one story each.
type table struct {
	t      *testing.T
	s      *session.Session
	store  *replay.Store
	now    session.Time
	att    *session.Attachment
	up     *session.Upstream
	older  *session.Upstream            // the upstream before up
	lent   map[*session.Upstream][]byte // what a write in flight is given
	part   map[*session.Upstream][]byte // what it has taken, and is not a whole frame
	asked  string                       // the argument of the ping behind the newest `upstream`
	states session.Resume               // what the client states when it joins
	left   *table                       // the node before
	events []session.Event
	script string // what is being played
	skips  bool   // the client takes the verb skip,
	parts  bool   // and large messages in parts,
	held   int    // of the first of which it has so many bytes
	looks  bool   // the next resumes look for states
}

// An option changes a Config.
type option func(*session.Config)

// conf is the config of a session, resumable unless an option says otherwise.
func conf(options ...option) session.Config {
	c := session.Config{
		ID: "s1", Resumable: true, GraceUnconfirmed: 5 * time.Second, Heartbeat: 15 * time.Second,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
	}
	grace(30 * time.Second)(&c)
	for _, o := range options {
		o(&c)
	}
	return c
}

func hard(c *session.Config)    { c.Hard = true }
func durable(c *session.Config) { c.Durable = true }
func redial(c *session.Config)  { c.Redial = 30 * time.Second }

// plain is a client without reseat.v1; cookie is one that may return with a cookie: protocol section 9.
func plain(c *session.Config)  { c.Resumable = false }
func cookie(c *session.Config) { c.Resumable, c.PlainResume = false, true }

func grace(d time.Duration) option {
	return func(c *session.Config) { c.Grace, c.GraceBeforeStart = d, d }
}

// buffer limits the replay buffer to n messages.
func buffer(n int, policy session.Overflow) option {
	return func(c *session.Config) { c.BufferMessages, c.Overflow = n, policy }
}

func heartbeat(d time.Duration) option { return func(c *session.Config) { c.Heartbeat = d } }
func answer(d time.Duration) option    { return func(c *session.Config) { c.Answer = d } }
func idle(d time.Duration) option      { return func(c *session.Config) { c.Idle = d } }
func rate(perSecond float64) option    { return func(c *session.Config) { c.Rate.Messages = perSecond } }
func pinged(d time.Duration) option    { return func(c *session.Config) { c.UpstreamHeartbeat = d } }

func notices(n session.Notices) option { return func(c *session.Config) { c.Notices = n } }

// replies answers heartbeats of the game server's: in, out, in, out.
func replies(inOut ...string) option {
	return func(c *session.Config) {
		for p := range slices.Chunk(inOut, 2) {
			c.KeepaliveReplies = append(c.KeepaliveReplies, session.KeepaliveReply{In: p[0], Out: p[1]})
		}
	}
}

func repeats(every time.Duration, text string) option {
	return func(c *session.Config) {
		c.Keepalives = append(c.Keepalives, session.Keepalive{Every: every, Text: text})
	}
}

// connecting returns a session that no client has been attached to yet. Its upstream has sent early.
func connecting(t *testing.T, c session.Config, early string) *table {
	b := emptyTable(t)
	c.Store, c.Key = b.store, keys()
	b.s = session.New(c, b.now, []byte(early))
	b.up = b.s.Upstream()
	return b
}

// emptyTable has a store and a clock, and no session yet.
func emptyTable(t *testing.T) *table {
	return &table{
		t: t, now: session.Time(time.Second), store: replay.NewStore(1<<30, nil),
		lent: map[*session.Upstream][]byte{}, part: map[*session.Upstream][]byte{},
	}
}

// keys makes masking keys of which no two are the same.
func keys() func() [4]byte {
	key := byte(0)
	return func() [4]byte { key++; return [4]byte{key, 1, 2, 3} }
}

// attached returns a session whose client is there. A resumable one has been sent hello, and confirmed it.
func attached(t *testing.T, options ...option) *table {
	t.Helper()
	c := conf(options...)
	b := connecting(t, c, "")
	b.first()
	if c.Resumable {
		b.play(`client> ^ack 0; client reads`)
	}
	return b
}

// first attaches the first client.
func (b *table) first() { b.att = b.s.AttachFirst(b.now, b.pass()) }

func (b *table) pass() session.Pass {
	return session.Pass{Skips: b.skips, Parts: b.parts, Partial: b.parts, Held: uint64(b.held), Look: b.looks, Gen: b.s.NextGen(), Token: "t", Expires: b.now.Add(time.Hour), Renew: time.Hour}
}

// play takes steps, which ; or a new line ends:
//
//	client> a, ^ack 2, Ping x, Close 1001 bye   the client sends these: see bytes
//	game> a, b, Close 4000 won                  the game server does, in one read
//	client< ^hello, a, Close 1001 bye           the client takes all output, which must be this: see hears
//	game< a, Pong x                             the upstream takes all output: whole frames since the last look
//	older< Close 1001 moved                     the same of the upstream before
//	skips; skips no                             the client offers to take `skip` from here on, or does not
//	client reads; game reads; game takes 5      take all output, or some bytes of it
//	game lends; game wrote 3; older wrote 3     begin a write to the upstream, end one
//	game read; game unread                      whether the upstream is read
//	drop; breaks                                the connection of the client, or of the upstream, breaks
//	resume 2                                    a client attaches that has received 2 messages
//	begin; connect a; cancel; dial a            the upstream is dialled for a client: step by step, or at once. It has sent a
//	next a; fail                                it is dialled in an outage, or cannot be
//	states 3 1; own                             what the client states from here on: received, settled; its newest token
//	attach; join 1; told 2 4                    it attaches; dials for it as often as needed; what a dial is told
//	leave; move 1h                              a hand-off begins; the session goes on at a node whose clock is ahead
//	silent                                      the session has ended without a word, and without a verdict
//	attached; detached; ended; connecting       the session's state
//	outage 30s; outage none                     how long the outage may take yet
//	counts 4 4 2 0                              received, written, sent, acked
//	mode linger                                 how up's connection is to be closed
//	refused 4404                                why a resume by the client's token would be refused; 0: it is not
//	happens left=1 stays=0                      events of these kinds since the last look; forget looks
//	terminate; drain; fence; owned ...          calls of the session: see calls
//	30s; 30s-1ns                                time passes, and Tick is called
//	hello received=4 moved=failover             the client takes all output, which begins with hello: fields of that
//	free                                        all memory has been returned
//	9 times: client> a; 1s                      the rest of the line, again and again
func (b *table) play(script string, args ...any) {
	b.t.Helper()
	if len(args) > 0 {
		script = fmt.Sprintf(script, args...)
	}
	defer func(outer string) { b.script = outer }(b.script)
	b.script = script
	for line := range strings.Lines(script) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "//")
		turns := 1
		if n, rest, ok := strings.Cut(line, " times: "); ok {
			turns, line = b.number(n), rest
		}
		for range turns {
			for step := range strings.SplitSeq(line, ";") {
				if step = strings.TrimSpace(step); step != "" {
					b.step(step)
				}
			}
		}
	}
}

// fail ends the test, and says what was played.
func (b *table) fail(format string, args ...any) {
	b.t.Helper()
	b.t.Fatalf(format+"\nplaying %.3000s", append(args, b.script)...)
}

func (b *table) step(step string) {
	b.t.Helper()
	verb, rest, _ := strings.Cut(step, " ")
	call, arg, _ := strings.Cut(rest, " ")
	switch verb {
	case "client>":
		for item := range items(rest) {
			b.read(b.bytes(item, true))
		}
	case "game>":
		b.game(b.list(rest))
	case "client<":
		b.same(step, b.hears(), slices.Collect(items(rest)))
	case "game<":
		b.same(step, b.gameGets(b.up), slices.Collect(items(rest)))
	case "older<":
		b.same(step, b.gameGets(b.older), slices.Collect(items(rest)))
	case "client":
		b.hears()
	case "game", "older":
		u := b.up
		if verb == "older" {
			u = b.older
		}
		switch call {
		case "reads":
			b.gameGets(u)
		case "takes":
			b.lend(u)
			b.wrote(u, b.number(arg))
		case "lends":
			b.lend(u)
		case "wrote":
			b.wrote(u, b.number(arg))
		case "read", "unread":
			b.same(step, []string{fmt.Sprint(b.s.WantsRead(u))}, []string{fmt.Sprint(call == "read")})
		default:
			b.fail("no step is called %q", step)
		}
	case "outage":
		want := session.Time(0)
		if rest != "none" {
			want = b.now.Add(b.duration(rest))
		}
		if _, got := b.s.Outage(); got != want {
			b.fail("%q: the outage ends at %d, want %d; it is %d", step, got, want, b.now)
		}
	case "counts":
		i := b.s.Info()
		b.same(step, strings.Fields(fmt.Sprint(i.Received, i.Written, i.Sent, i.Acked)), strings.Fields(rest))
	case "mode":
		b.same(step, []string{modes[b.up.CloseMode()]}, []string{rest})
	case "refused":
		code, ref := 0, b.s.Check(b.now, session.Resume{Gen: b.s.Generation(), Skips: b.skips})
		if ref != nil {
			code = ref.Code
		}
		if code != b.number(rest) || code == wire.CodeNodeUnreachable && ref.Retry <= 0 {
			b.fail("%q: a resume gets %+v", step, ref)
		}
	case "silent":
		b.play(`ended; mode shut; game<; free; refused 4504`)
	case "states":
		if b.states.Gen == 0 {
			b.states.Gen = b.s.Generation()
		}
		if _, err := fmt.Sscan(rest, &b.states.Received, &b.states.Settled); err != nil {
			b.fail("%q: %v", step, err)
		}
	case "join":
		dials := fmt.Sprint(b.join(b.states))
		if rest != "" {
			b.same(step, []string{dials}, []string{rest})
		}
	case "move":
		b.move(b.duration(rest))
	case "happens":
		b.happens(step, strings.Fields(rest))
	case "hello":
		h, fields := b.hello(), map[string]any{}
		fields["received"], fields["lost"], fields["replay"], fields["moved"], fields["resumed"] = h.Received, h.Lost, h.Replay, h.Moved, h.Resumed
		fields["skipped"] = h.Skipped
		var got []string
		for _, f := range strings.Fields(rest) {
			name, _, _ := strings.Cut(f, "=")
			got = append(got, fmt.Sprint(name, "=", fields[name]))
		}
		b.same(step, got, strings.Fields(rest))
	case "connecting", "attached", "detached", "ended":
		b.same(step, []string{b.s.State().String()}, []string{verb})
	case "free":
		if n := b.store.Used(); n != 0 {
			b.fail("%d bytes of memory are not returned", n)
		}
	default:
		if do := calls[verb]; do != nil {
			do(b, rest)
			return
		}
		b.sleep(b.duration(step))
	}
}

var modes = map[session.CloseMode]string{session.Open: "open", session.Linger: "linger", session.Shut: "shut", session.Reset: "reset"}

// calls are the steps that are calls of the session, and no more.
var calls = map[string]func(b *table, arg string){
	"drop":   func(b *table, _ string) { b.s.Disconnected(b.now, b.att, "dropped") },
	"breaks": func(b *table, _ string) { b.s.Disconnected(b.now, b.up, "reset") },
	"resume": func(b *table, n string) {
		b.attach(session.Resume{Gen: b.s.Generation(), Received: uint64(b.number(n))})
	},
	"skips":     func(b *table, no string) { b.skips = no == "" },
	"attach":    func(b *table, _ string) { b.attach(b.states) },
	"own":       func(b *table, _ string) { b.states.Gen = b.s.Generation() },
	"begin":     func(b *table, _ string) { b.s.BeginRedial(b.now) },
	"cancel":    func(b *table, _ string) { b.s.CancelRedial(b.now) },
	"fail":      func(b *table, _ string) { b.s.FailRedial(b.now, "refused") },
	"terminate": func(b *table, _ string) { b.s.Terminate(b.now, 1000, "over") },
	"drain":     func(b *table, _ string) { b.s.Drain(b.now, time.Second) },
	"reserve":   func(b *table, _ string) { b.s.Reserve(b.now, b.pass()) },
	"confirms":  func(b *table, _ string) { b.says("\x10pong " + b.asked) }, // the ping behind the newest `upstream`
	"told":      func(b *table, want string) { b.same("told "+want, []string{b.told(b.states)}, []string{want}) },
	"ask":       func(b *table, _ string) { b.told(b.states) },
	"forget":    func(b *table, _ string) { b.s.Events() },
	"owned":     func(b *table, _ string) { b.s.Owned(b.now) },
	"fence":     func(b *table, _ string) { b.s.Fence(b.now) },
	"stay":      func(b *table, _ string) { b.s.Stay(b.now) },
	"upgrade":   func(b *table, _ string) { b.upgrade() },
	"dial": func(b *table, early string) {
		b.s.BeginRedial(b.now)
		b.told(b.states)
		b.reconnect(early)
	},
	"connect": func(b *table, early string) { b.reconnect(early) },
	"next": func(b *table, early string) {
		if !b.takesFromOutage() {
			b.fail("the session takes no upstream")
		}
		b.reconnect(early)
	},
	"leave": func(b *table, _ string) { // begins a hand-off
		if !b.s.Leave(b.now) {
			b.fail("the session cannot be handed off")
		}
	},
	"passes": func(b *table, d string) { b.now = b.now.Add(b.duration(d)) }, // without a Tick
	"tick":   func(b *table, _ string) { b.s.Tick(b.now) },
}

// kinds are the events that happens may name.
var kinds = map[string]session.Kind{
	"left": session.Left, "stays": session.Stays, "asks": session.AskOwner, "lost": session.UpstreamLost, "back": session.UpstreamBack,
	"confirmed": session.Confirmed, "overflowed": session.Overflowed, "ended": session.SessionEnded, "disconnected": session.Disconnected,
	"sent": session.KeepaliveSent, "closed": session.UpstreamClosed, "noticed": session.KeepaliveNoticed,
}

func (b *table) happens(step string, want []string) {
	b.t.Helper()
	b.events = b.s.Events()
	var got []string
	for _, w := range want {
		name, _, _ := strings.Cut(w, "=")
		kind, known := kinds[name]
		if !known {
			b.fail("no event is called %s", name)
		}
		n := 0
		for _, e := range b.events {
			if e.Kind == kind {
				n++
			}
		}
		got = append(got, fmt.Sprint(name, "=", n))
	}
	b.same(step, got, want)
}

func (b *table) same(step string, got, want []string) {
	b.t.Helper()
	if !slices.Equal(got, want) {
		b.fail("%.200q: got %.300q, want %.300q", step, got, want)
	}
}

func (b *table) number(s string) int {
	if s == "all" {
		return 1 << 30
	}
	n, err := strconv.Atoi(s)
	if err != nil && s != "" {
		b.t.Fatal(err)
	}
	return n
}

// duration parses one such as 30s or 30s-1ns.
func (b *table) duration(s string) (d time.Duration) {
	for s != "" {
		at := len(s)
		if i := strings.IndexAny(s[1:], "+-"); i >= 0 {
			at = i + 1
		}
		part, err := time.ParseDuration(s[:at])
		if err != nil {
			b.fail("no step is called %q", s)
		}
		d += part
		s = s[at:]
	}
	return d
}

// items are what a comma separates.
func items(list string) func(func(string) bool) {
	if list == "" {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(list, ", ")
}

// list is several items in one read.
func (b *table) list(list string) (all string) {
	for item := range items(list) {
		all += string(b.bytes(item, false))
	}
	return all
}

// bytes is one item: text; Close 1001 reason, Ping x or Pong x; bytes in Go's quotes. In text ^ is a DLE, which
// begins control messages, and x*100 is a hundred times x.
func (b *table) bytes(item string, masks bool) []byte {
	if strings.HasPrefix(item, `"`) {
		raw, err := strconv.Unquote(item)
		if err != nil {
			b.fail("%s: %v", item, err)
		}
		return []byte(raw)
	}
	op, payload := byte(frame.Text), strings.ReplaceAll(item, "^", "\x10")
	verb, arg, _ := strings.Cut(item, " ")
	what, times, repeated := strings.Cut(item, "*")
	switch {
	case verb == "Close":
		op, payload = frame.Close, ""
		if code, reason, _ := strings.Cut(arg, " "); code != "" {
			payload = string(frame.ClosePayload(b.number(code), reason))
		}
	case verb == "Ping":
		op, payload = frame.Ping, arg
	case verb == "Pong":
		op, payload = frame.Pong, arg
	case repeated:
		payload = strings.Repeat(what, b.number(times))
	}
	if masks {
		return masked(op, payload)
	}
	return frame.Append(nil, op, []byte(payload))
}

func masked(op byte, text string) []byte {
	return frame.AppendMasked(nil, op, [4]byte{9, 9, 9, 9}, []byte(text))
}

// text is a text message as an upstream sends it, closing a Close frame.
func text(s string) string { return string(frame.Append(nil, frame.Text, []byte(s))) }

func closing(code int, reason string) string {
	return string(frame.Append(nil, frame.Close, frame.ClosePayload(code, reason)))
}

// sleep advances the clock, calling Tick whenever the session asks for it.
func (b *table) sleep(d time.Duration) {
	end := b.now.Add(d)
	for next := b.s.Next(); next > 0 && next <= end; next = b.s.Next() {
		b.now = max(b.now, next)
		b.s.Tick(b.now)
	}
	b.now = end
}

// read delivers bytes of the client.
func (b *table) read(p []byte) {
	b.s.Read(b.now, b.att, p)
	b.s.Retain()
}

// says is a text message of the client.
func (b *table) says(text string) { b.read(masked(frame.Text, text)) }

// game delivers bytes of the upstream, as fast as there is room.
func (b *table) game(bytes string) {
	b.t.Helper()
	for len(bytes) > 0 {
		room := b.s.Room(b.up)
		if room == nil {
			b.fail("the upstream is not read, %d bytes are left", len(bytes))
		}
		n := copy(room, bytes)
		b.s.Read(b.now, b.up, room[:n])
		bytes = bytes[n:]
	}
}

// attach attaches a client that states r.
func (b *table) attach(r session.Resume) {
	b.t.Helper()
	r.Skips = b.skips
	a, ref := b.s.Attach(b.now, r, b.pass())
	if ref != nil {
		b.fail("resume refused: %v", ref)
	}
	b.att = a
}

// join attaches a client that states r, and returns how often it had to dial for it.
func (b *table) join(r session.Resume) (dials int) {
	b.t.Helper()
	for dials < 3 {
		if b.s.NeedsUpstream() {
			b.s.BeginRedial(b.now)
			b.told(r)
			b.reconnect("")
			dials++
		}
		r.Skips = b.skips
		a, ref := b.s.Attach(b.now, r, b.pass())
		switch {
		case ref == nil:
			b.att = a
			return dials
		case ref.Code != 0:
			b.fail("resume refused: %v", ref)
		}
	}
	b.t.Fatal("the session wants one upstream after the other")
	return 0
}

// told returns Reseat-Up-From and Reseat-Down-From of a dial for r.
func (b *table) told(r session.Resume) string {
	up, down := b.s.Counts(r)
	return fmt.Sprint(up, " ", down)
}

// takesFromOutage reports whether the session takes an upstream that was dialled in its outage.
func (b *table) takesFromOutage() bool {
	since, _ := b.s.Outage()
	return b.s.TakesUpstream(max(since, 1))
}

func (b *table) reconnect(early string) {
	b.older = b.up
	b.up = b.s.Reconnect(b.now, []byte(b.list(early)))
}

// lend begins a write to u's connection, unless one is in flight.
func (b *table) lend(u *session.Upstream) {
	for _, p := range b.s.Out(b.now, u, nil) {
		b.lent[u] = append(b.lent[u], p...)
	}
}

// wrote ends a write to u's connection, which has taken up to n bytes.
func (b *table) wrote(u *session.Upstream, n int) {
	n = min(n, len(b.lent[u]))
	b.part[u] = append(b.part[u], b.lent[u][:n]...)
	b.lent[u] = nil
	b.s.Wrote(b.now, u, n, false)
}

// gameGets takes all output for u's connection, and returns the frames that are whole by now.
func (b *table) gameGets(u *session.Upstream) []string {
	b.t.Helper()
	if b.lent[u] == nil {
		b.lend(u)
		b.wrote(u, 1<<30)
	}
	list, rest := frames(b.t, b.part[u])
	b.part[u] = slices.Clone(rest)
	return list
}

// frames describes the whole frames in b, and returns the rest of it.
func frames(t *testing.T, b []byte) (list []string, rest []byte) {
	t.Helper()
	b = slices.Clone(b) // they are unmasked in place
	for {
		h, p, ok := nextFrame(t, &b)
		if !ok {
			return list, b
		}
		if h.Masked {
			frame.XOR(p, h.Key)
		}
		switch h.Op {
		case frame.Close:
			code, reason, _ := frame.ParseClose(p)
			list = append(list, strings.TrimSpace(fmt.Sprint("Close ", code, " ", reason)))
		case frame.Ping:
			list = append(list, strings.TrimSpace("Ping "+string(p)))
		case frame.Pong:
			list = append(list, strings.TrimSpace("Pong "+string(p)))
		default:
			list = append(list, strings.ReplaceAll(string(p), "\x10", "^"))
		}
	}
}

// nextFrame takes the first frame from b. It reports false while that is incomplete.
func nextFrame(t *testing.T, b *[]byte) (h frame.Header, p []byte, ok bool) {
	t.Helper()
	h, err := frame.Parse(*b)
	if err != nil {
		t.Fatalf("no frame: % .20x, %v", *b, err)
	}
	end := h.Size + int(h.Length)
	if h.Size == 0 || end > len(*b) {
		return h, nil, false
	}
	p, *b = (*b)[h.Size:end], (*b)[end:]
	return h, p, true
}

// output takes all output for the client's connection.
func (b *table) output() (all []byte) {
	for {
		n := len(all)
		for _, p := range b.s.Out(b.now, b.att, nil) {
			all = append(all, p...)
		}
		if len(all) == n {
			return all
		}
		b.s.Wrote(b.now, b.att, len(all)-n, false)
	}
}

// hears takes all output for the client's connection, and returns it as a script writes it. Of control
// messages that is the verb; `ack` and `skip` are whole, `upstream` is ^lost or ^back, without the ping that asks whether
// it was heard.
func (b *table) hears() (list []string) {
	b.t.Helper()
	all, _ := frames(b.t, b.output())
	for _, m := range all {
		verb, arg, _ := strings.Cut(m, " ")
		last := ""
		if len(list) > 0 {
			last = list[len(list)-1]
		}
		switch {
		case !strings.HasPrefix(m, "^"), verb == "^ack", verb == "^skip":
		case verb == "^ping" && (last == "^lost" || last == "^back"):
			b.asked = arg
			continue
		case arg == `{"state":"lost"}`, arg == `{"state":"back"}`:
			m = "^" + arg[10:14]
		default:
			m = verb
		}
		list = append(list, m)
	}
	return list
}

// hello takes the client's output, which begins with hello.
func (b *table) hello() (h wire.Hello) {
	b.t.Helper()
	list, _ := frames(b.t, b.output())
	if len(list) == 0 || !strings.HasPrefix(list[0], "^hello ") {
		b.fail("the client gets %q, want a hello", list)
	}
	if err := json.Unmarshal([]byte(list[0][len("^hello "):]), &h); err != nil {
		b.t.Fatal(err)
	}
	return h
}

// upgrade freezes the session, and goes on with its copy in a process with the same clock.
func (b *table) upgrade() {
	b.t.Helper()
	state, content := b.freeze()
	b.s.Discard()
	b.store = replay.NewStore(1<<30, nil)
	b.s = b.restore(b.store, state, content)
	part := b.part[b.up]
	b.att, b.up = b.s.Attachment(), b.s.Upstream()
	b.part[b.up] = part
}

func (b *table) freeze() (state, content []byte) {
	b.t.Helper()
	b.s.Events()
	f, err := b.s.Freeze(session.Formats[0])
	if err != nil {
		b.t.Fatal(err)
	}
	return f.State, slices.Concat(f.Content...)
}

func (b *table) restore(store *replay.Store, state, content []byte) *session.Session {
	b.t.Helper()
	s, err := session.Restore(session.Formats[0], state, content, store, keys())
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// confirmed returns the newest generation that a client has confirmed.
func (b *table) confirmed() uint64 {
	tokens := b.s.Info().Tokens
	return tokens.Confirmed()
}

// move makes the session go on at another node, whose clock is ahead of this one's: b is that node's, and b.left this
// one's. The client has the token that it had.
func (b *table) move(ahead time.Duration) {
	b.t.Helper()
	state, content := b.freeze()
	left := *b
	*b = *emptyTable(b.t)
	b.skips = left.skips
	b.now, b.left, b.states.Gen = left.now.Add(ahead), &left, left.s.Generation()
	b.s = b.restore(b.store, state, content)
	if err := b.s.Arrive(b.now, left.now, 5); err != nil {
		b.t.Fatal(err)
	}
	b.up = b.s.Upstream()
}
