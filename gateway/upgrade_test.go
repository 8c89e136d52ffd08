//go:build linux

package gateway_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"reseat/gateway"
	"reseat/gateway/control"
	"reseat/gateway/events"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/listen"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
	"reseat/gateway/upgrade"
	"reseat/gateway/wire"
	"reseat/tokens"
	"reseat/upstream"
)

// A side is a gateway that serves TCP, as one of two processes does in an upgrade.
type side struct {
	*gateway.Gateway
	t     *testing.T
	keys  *tokens.Keys
	addr  string
	queue *listen.Queue
}

// An heir is the side that has taken over, as the older one sees it.
type heir struct{ *side }

// Conn implements upgrade.Successor.
func (h heir) Conn(c upgrade.LateConn) {
	fd, err := rawconn.Descriptor(c.Conn.(syscall.Conn))
	if err == nil {
		fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	c.Conn.Close()
	if err != nil {
		h.t.Error(err)
		return
	}
	conn, err := rawconn.ConnOf(fd)
	if err != nil {
		h.t.Error(err)
		return
	}
	if c.Answered {
		h.ResumeAnswered(upgrade.LateConn{Conn: conn, Request: c.Request, Early: c.Early})
		return
	}
	h.queue.Put(listen.Handed(conn, append(c.Request, c.Early...), "", false))
}

// Event implements upgrade.Successor.
func (h heir) Event(e events.Event) { h.Watch().Events.Publish(e) }

// A tcpGame is a game server that answers each message with the same.
type tcpGame struct {
	*httptest.Server
	let  chan struct{} // lets a handshake for /slow be answered
	away atomic.Bool   // handshakes get 503

	mu     sync.Mutex
	conns  []*websocket.Conn
	epochs map[string][]string // by session, of all requests
}

// kick closes all connections.
func (g *tcpGame) kick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		c.CloseNow()
	}
	g.conns = nil
}

func newTCPGame(t *testing.T) *tcpGame {
	g := &tcpGame{let: make(chan struct{}), epochs: make(map[string][]string)}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-g.let
		}
		g.mu.Lock()
		id := r.Header.Get("Reseat-Session")
		g.epochs[id] = append(g.epochs[id], r.Header.Get("Reseat-Epoch"))
		g.mu.Unlock()
		if g.away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer c.CloseNow()
		g.mu.Lock()
		g.conns = append(g.conns, c)
		g.mu.Unlock()
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, b) != nil {
				return
			}
		}
	}))
	t.Cleanup(g.Close)
	return g
}

// newSide begins a gateway. older is the one to take over from, nil if there is none.
func newSide(t *testing.T, game *tcpGame, older *side, p policy.Policy, patterns ...string) *side {
	t.Helper()
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if older != nil {
		keys.Inherit(older.keys.Secret())
	}
	target, err := upstream.ParseTarget("ws" + strings.TrimPrefix(game.URL, "http"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := gateway.Config{Default: p, Keys: keys, Log: slog.New(slog.DiscardHandler)}
	for _, pattern := range patterns {
		cfg.Routes = append(cfg.Routes, policy.Route{Pattern: pattern, Upstream: upstream.Target{URL: target}, Policy: p})
	}
	if older != nil {
		cfg.Clock = older.Clock()
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if older != nil { // before it serves
		if err := g.Upgrade().InheritRoutes(older.Upgrade().RouteUpstreams()); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &side{Gateway: g, t: t, keys: keys, addr: ln.Addr().String(), queue: listen.NewQueue(ln.Addr())}
	server := &http.Server{Handler: g.Conns().Handler(g), ConnState: g.Conns().ConnState, ConnContext: listen.ConnContext}
	var both sync.WaitGroup
	for _, l := range []net.Listener{ln, s.queue} {
		both.Go(func() { server.Serve(g.Conns().Listen(l, true)) })
	}
	t.Cleanup(func() {
		server.Close()
		both.Wait()
		g.Close()
	})
	return s
}

// A tcpPlayer is a client of either kind.
type tcpPlayer struct {
	*websocket.Conn
	t      *testing.T
	hello  wire.Hello
	cookie string
	err    error // of a dial in a goroutine
}

func (s *side) dial(path string, header http.Header, protocols ...string) (*tcpPlayer, error) {
	c, resp, err := websocket.Dial(within(s.t), "ws://"+s.addr+path, &websocket.DialOptions{Subprotocols: protocols, HTTPHeader: header})
	p := &tcpPlayer{Conn: c, t: s.t}
	if err != nil {
		return p, err
	}
	s.t.Cleanup(func() { c.CloseNow() })
	for _, cookie := range resp.Cookies() {
		p.cookie = cookie.Name + "=" + cookie.Value
	}
	if c.Subprotocol() == wire.Subprotocol {
		_, b, err := c.Read(within(s.t))
		if err != nil {
			return p, err
		}
		text, ok := strings.CutPrefix(string(b), "\x10hello ")
		if !ok {
			return p, fmt.Errorf("%q in place of hello", b)
		}
		if err := json.Unmarshal([]byte(text), &p.hello); err != nil {
			s.t.Fatal(err)
		}
	}
	return p, nil
}

func (s *side) player(path string) *tcpPlayer {
	s.t.Helper()
	return must(s.dial(path, nil, wire.Subprotocol))
}

func (s *side) resume(old *tcpPlayer) (*tcpPlayer, error) {
	s.t.Helper()
	return s.dial("/match/7", nil, wire.Subprotocol, "reseat.token."+old.hello.Token, "reseat.received.0")
}

func (p *tcpPlayer) says(text string) {
	p.t.Helper()
	if err := p.Write(within(p.t), websocket.MessageText, []byte(text)); err != nil {
		p.t.Fatal(err)
	}
}

// echoes asserts that messages go both ways.
func (p *tcpPlayer) echoes(text string) {
	p.t.Helper()
	p.says(text)
	p.reads(text)
}

// reads asserts that the next message is text.
func (p *tcpPlayer) reads(text string) {
	p.t.Helper()
	for {
		_, b, err := p.Read(within(p.t))
		if err != nil {
			p.t.Fatal(err)
		}
		if len(b) > 0 && b[0] == 0x10 {
			continue
		}
		if string(b) != text {
			p.t.Fatalf("%q, want %q", b, text)
		}
		return
	}
}

func (s *side) becomes(id string, want session.State) {
	s.t.Helper()
	eventually(s.t, "session "+id+" is "+want.String(), func() bool {
		i, _ := s.Control().Session(id)
		return i.State == want.String()
	})
}

// send passes frozen sessions on, with duplicates of their descriptors.
func send(t *testing.T, f *frozen, to *upgrade.Incoming) {
	t.Helper()
	for _, s := range f.Sessions {
		var content []byte
		for _, c := range s.Content {
			content = append(content, c...)
		}
		d, err := to.Decode(session.Formats[0], upgrade.Received{Record: s.Record, State: s.State, Content: content, Up: wstest.Duplicate(t, s.Up.FD), Down: wstest.Duplicate(t, s.Down.FD)})
		if err == nil {
			err = to.Restore(d)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A frozen is a upgrade.Frozen with its sessions.
type frozen struct {
	*upgrade.Frozen
	Sessions []upgrade.FrozenSession
}

func (s *side) freeze() *frozen {
	s.t.Helper()
	f := new(frozen)
	var err error
	f.Frozen, err = s.Upgrade().Freeze(within(s.t), session.Formats[0], 5*time.Second, func(s upgrade.FrozenSession) error {
		f.Sessions = append(f.Sessions, s)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// handOver is an upgrade from s to next.
func (s *side) handOver(next *side) *upgrade.Incoming {
	s.t.Helper()
	f, to := s.freeze(), next.Upgrade().Incoming(1)
	list, _ := s.Upgrade().Registry.Tombstones(0, 1000)
	for _, b := range list {
		if err := next.Upgrade().RestoreTombstone(b); err != nil {
			s.t.Fatal(err)
		}
	}
	send(s.t, f, to)
	rest := s.Upgrade().Rest(0)
	b, err := json.Marshal(rest)
	if err == nil {
		rest = upgrade.Rest{}
		err = json.Unmarshal(b, &rest)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	next.Upgrade().RestoreRest(rest)
	to.Adopt(f.Busy)
	f.Commit(heir{next})
	if rest.Renewing {
		to.RenewTokens()
	}
	return to
}

func TestUpgradeKeepsEverySession(t *testing.T) {
	game := newTCPGame(t)
	p := keptPlain()
	old := newSide(t, game, nil, p, "/*", "/gone/*")
	attached, gone, plain := old.player("/match/7"), old.player("/gone/1"), must(old.dial("/match/7", nil))
	ended, detached, cookie := old.player("/match/7"), old.player("/match/7"), old.withCookie()
	for _, p := range []*tcpPlayer{attached, gone, plain, detached, cookie} {
		p.echoes("before")
	}
	detached.CloseNow()
	old.becomes(detached.hello.Session, session.Detached)
	if _, o := old.Control().Patch(attached.hello.Session, control.Change{Grace: new(77 * time.Second), Group: new("red")}); o != control.Done {
		t.Fatal(o)
	}
	id, token, err := old.Create(within(t), nil, gateway.CreateRequest{Path: "/match/7", Player: "ada", Data: []byte("score 1")})
	if err != nil {
		t.Fatal(err)
	}
	old.Control().End("", ended.hello.Session, 4400, "cheated")
	old.becomes(ended.hello.Session, session.Ended)
	_, refusedBefore := old.resume(ended)
	_, tag, _ := old.Control().Data(id)
	before, _ := old.Control().Sessions(registry.Filter{Limit: 100})
	var moments any
	left := 0
	eventually(t, "a history of two", func() bool { // an event may be noted after what its peer sees of it
		list, n, _ := old.Control().History(attached.hello.Session)
		moments, left = list, n
		return len(list) >= 2
	})
	eventsBefore, _ := old.Watch().Events.Recent(0)

	next := newSide(t, game, old, p, "/*")
	old.handOver(next)

	for _, p := range []*tcpPlayer{attached, gone, plain, cookie} {
		p.echoes("after")
	}
	back := must(next.resume(detached))
	wstest.Equal(t, "session of the detached client", back.hello.Session, detached.hello.Session)
	wstest.Equal(t, "replay of what was not acked", back.hello.Replay, 1)
	back.reads("before")
	ahead := must(next.dial("/match/7", nil, wire.Subprotocol, "reseat.token."+token, "reseat.received.0"))
	wstest.Equal(t, "the session created beforehand", ahead.hello.Session, id)
	for _, was := range before {
		is, ok := next.Control().Session(was.ID)
		if !ok || is.Player != was.Player || is.Group != was.Group || is.Grace != was.Grace || is.Route != was.Route || is.Client != was.Client || !is.Since.Equal(was.Since) {
			t.Errorf("%+v, want %+v", is, was)
		}
	}
	data, got, _ := next.Control().Data(id)
	wstest.Equal(t, "data", string(data), "score 1")
	wstest.Equal(t, "tag", got, tag)
	if got, _ := next.Control().SetData(id, []byte("score 2"), func(n uint64) bool { return n == tag }); got <= tag {
		t.Errorf("tag %d after %d", got, tag)
	}
	if got, n, _ := next.Control().History(attached.hello.Session); n != left || !reflect.DeepEqual(any(got), moments) {
		t.Errorf("history %+v, want %+v", got, moments)
	}
	if _, err := next.resume(ended); err == nil || refusedBefore == nil || err.Error() != refusedBefore.Error() {
		t.Errorf("an ended session: %v, want %v", err, refusedBefore)
	}
	eventually(t, "more events than before", func() bool { // an event may come after what its peer sees of it
		list, _ := next.Watch().Events.Recent(0)
		return len(list) > len(eventsBefore)
	})
	eventsAfter, _ := next.Watch().Events.Recent(0)
	for i, e := range eventsAfter {
		if i < len(eventsBefore) && (e.ID != eventsBefore[i].ID || e.Type != eventsBefore[i].Type || e.Session != eventsBefore[i].Session) {
			t.Errorf("event %d is %+v, want %+v", i, e, eventsBefore[i])
		}
		if i > 0 && e.ID <= eventsAfter[i-1].ID {
			t.Errorf("event %d follows %d", e.ID, eventsAfter[i-1].ID)
		}
	}
	ended.CloseNow()
	eventually(t, "nothing is left behind", func() bool {
		sessions, visits := old.Upgrade().Left()
		return sessions+visits == 0
	})
	must(next.dial("/gone/1", nil))
	list, _ := next.Control().Sessions(registry.Filter{Limit: 100})
	wstest.Equal(t, "route of a new session at a removed one", list[len(list)-1].Route, "/*")
}

func must(p *tcpPlayer, err error) *tcpPlayer {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	return p
}

// withCookie begins the session of a plain client that is kept by its cookie.
func (s *side) withCookie() *tcpPlayer {
	s.t.Helper()
	p := must(s.dial("/match/7", http.Header{"Origin": {"http://" + s.addr}}))
	if p.cookie == "" {
		s.t.Fatal("no cookie")
	}
	return p
}

// resumed resumes old in a goroutine.
func (s *side) resumed(old *tcpPlayer) <-chan *tcpPlayer {
	c := make(chan *tcpPlayer, 1)
	go func() {
		p, err := s.resume(old)
		p.err = err
		c <- p
	}()
	return c
}

// A handshake that the older process has read, though the sessions have moved, is passed on.
func TestHandshakeThatCameTooLateIsForwarded(t *testing.T) {
	game, p := newTCPGame(t), keptPlain()
	old := newSide(t, game, nil, p, "/*")
	player, cookie := old.player("/match/7"), old.withCookie()
	next := newSide(t, game, old, p, "/*")
	old.handOver(next)
	player.CloseNow()
	cookie.CloseNow()
	next.becomes(player.hello.Session, session.Detached)
	back := must(old.resume(player)) // at the older one
	wstest.Equal(t, "session", back.hello.Session, player.hello.Session)
	back.echoes("at the next one")
	must(old.dial("/match/7", http.Header{"Origin": {"http://" + old.addr}, "Cookie": {cookie.cookie}})).echoes("by cookie")
	must(old.dial("/match/7", nil)).echoes("a new one")
	list, _ := next.Control().Sessions(registry.Filter{Limit: 10})
	wstest.Equal(t, "sessions", len(list), 3)
	wstest.Equal(t, "sessions at the older one", old.Living(), 0)
}

// A session that waits for its game server follows once that has answered, and a resume
// by token waits for it.
func TestSessionThatWasConnectingFollowsLate(t *testing.T) {
	game := newTCPGame(t)
	old := newSide(t, game, nil, testPolicy(), "/*")
	came := make(chan *tcpPlayer, 1)
	go func() {
		p, err := old.dial("/slow", nil, wire.Subprotocol)
		p.err = err
		came <- p
	}()
	eventually(t, "a session", func() bool { return old.Living() > 0 })
	next := newSide(t, game, old, testPolicy(), "/*")
	to := old.handOver(next)
	if sessions, visits := old.Upgrade().Left(); sessions != 1 || visits != 1 {
		t.Fatalf("%d sessions and %d visits are left, want 1 and 1", sessions, visits)
	}
	close(game.let)
	player := <-came // answered by the older process, or already served by the next
	must(player, player.err).echoes("at the older one")
	resumed := next.resumed(player)
	f := old.freeze()
	if len(f.Sessions) != 1 {
		t.Fatalf("%d sessions, busy %v; want one", len(f.Sessions), f.Busy)
	}
	send(t, f, to)
	f.Commit(heir{next})
	to.AdoptLate()
	to.NoneLate()
	back := <-resumed
	wstest.Equal(t, "session", must(back, back.err).hello.Session, player.hello.Session)
	back.reads("at the older one")
	back.echoes("at the next one")
}

// A session that the older process has kept may end there. Its client gets the reason from the next one.
func TestSessionThatEndsLateIsRefusedWithItsReason(t *testing.T) {
	game := newTCPGame(t)
	old := newSide(t, game, nil, testPolicy(), "/*")
	player := old.player("/match/7")
	next := newSide(t, game, old, testPolicy(), "/*")
	next.Upgrade().Incoming(1).Adopt([]string{player.hello.Session})
	answer := next.resumed(player)
	eventually(t, "the resume waits", func() bool {
		sessions, visits := next.Upgrade().Left()
		return sessions == 0 && visits == 1
	})
	old.Control().End("", player.hello.Session, 4000, "banned")
	eventually(t, "a tombstone", func() bool {
		list, last := old.Upgrade().Registry.Tombstones(0, 10)
		for _, b := range list {
			if err := next.Upgrade().RestoreTombstone(b); err != nil {
				t.Fatal(err)
			}
		}
		return last > 0
	})
	if err := (<-answer).err; err == nil || !strings.Contains(err.Error(), "4410") || !strings.Contains(err.Error(), "banned") {
		t.Errorf("the resume ends with %v, want 4410, banned", err)
	}
}

// Tokens that the older process was about to renew, since its key has changed, are renewed by
// the next one: the operator may remove the older key.
func TestRenewalGoesOnInNextProcess(t *testing.T) {
	game := newTCPGame(t)
	old := newSide(t, game, nil, testPolicy(), "/*")
	p := old.player("/match/7")
	release := gateway.HoldSigning(old.Gateway)
	old.RenewTokens()
	old.handOver(newSide(t, game, old, testPolicy(), "/*"))
	release()
	for {
		_, b, err := p.Read(within(t))
		if err != nil {
			t.Fatalf("%v, want a token", err)
		}
		if strings.HasPrefix(string(b), "\x10"+wire.VerbToken+" ") {
			return
		}
	}
}

// An upgrade that fails leaves nothing: the restored sessions are not the new gateway's.
func TestAbandonedSessionsAreForgotten(t *testing.T) {
	game := newTCPGame(t)
	old := newSide(t, game, nil, testPolicy(), "/*")
	p := old.player("/match/7")
	next := newSide(t, game, old, testPolicy(), "/*")
	f, to := old.freeze(), next.Upgrade().Incoming(1)
	send(t, f, to)
	to.Abandon()
	f.Thaw()
	wstest.Equal(t, "sessions that live there", next.Living(), 0)
	p.echoes("here")
}

// A session whose game server is away has no connection that a process could hand over: the
// next process goes on dialling for it. A failed upgrade changes nothing.
func TestOutageGoesOnInNextProcess(t *testing.T) {
	for _, thawed := range []bool{false, true} {
		t.Run(fmt.Sprintf("thawed=%v", thawed), func(t *testing.T) {
			game := newTCPGame(t)
			p := changed(redials(), func(p *policy.Policy) { p.RedialFor = time.Hour })
			old := newSide(t, game, nil, p, "/*")
			attached, away := old.player("/match/7"), old.player("/match/7")
			attached.echoes("before")
			away.echoes("before")
			away.CloseNow()
			old.becomes(away.hello.Session, session.Detached)
			game.away.Store(true)
			game.kick()
			for _, id := range []string{attached.hello.Session, away.hello.Session} {
				eventually(t, "the loss is in the history of "+id, func() bool {
					list, _, _ := old.Control().History(id)
					return slices.ContainsFunc(list, func(m registry.Moment) bool { return m.Type == events.UpstreamLost })
				})
			}
			attached.says("meanwhile")
			next := old
			if thawed {
				old.freeze().Thaw()
			} else {
				next = newSide(t, game, old, p, "/*")
				old.handOver(next)
			}
			game.away.Store(false)
			attached.reads("meanwhile")
			attached.echoes("after")
			back := must(next.resume(away))
			back.reads("before")
			back.echoes("after")
			game.wantGrowingEpochs(t, 2)
		})
	}
}

// wantGrowingEpochs asserts that each of n sessions was dialled with growing epochs.
func (g *tcpGame) wantGrowingEpochs(t *testing.T, n int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.epochs) != n {
		t.Errorf("%d sessions, want %d", len(g.epochs), n)
	}
	for id, list := range g.epochs {
		if len(list) < 2 || list[0] != "1" {
			t.Errorf("session %s was dialled with epochs %v", id, list)
		}
		for i, e := range list[1:] {
			if !(len(list[i]) < len(e) || len(list[i]) == len(e) && list[i] < e) {
				t.Errorf("session %s was dialled with epochs %v", id, list)
			}
		}
	}
}
