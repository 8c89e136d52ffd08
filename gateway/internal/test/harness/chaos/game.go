//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"reseat/gateway/internal/test/harness/chaos/message"
)

// A game is the game servers behind the gateway: one connection per session, which
// sends the stream of its path and checks what it receives.
type game struct {
	cfg  Config
	http *http.Server

	mu      sync.Mutex
	seats   map[seatKey][]*gameSeat
	extra   []string                  // unexpected connections
	names   map[string]bool           // of all sessions
	second  map[seatKey]bool          // sessions with a connection too many
	redials int                       // of hard resumes, and for durable sessions
	refused int                       // of them
	epochs  map[string]uint64         // of durable sessions: the highest Reseat-Epoch
	late    int                       // dials for them with a lower one
	lost    func(session string) bool // reports whether its gateway was lost
}

type seatKey struct{ id, try int }

type connKey struct{}

func serveGame(cfg Config, ln net.Listener) *game {
	g := &game{cfg: cfg, seats: map[seatKey][]*gameSeat{}, second: map[seatKey]bool{}, names: map[string]bool{}, epochs: map[string]uint64{}}
	g.http = &http.Server{Handler: g, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}}
	go g.http.Serve(ln)
	return g
}

// A gameSeat is one session as the game server sees it or, with hard disconnects, one
// connection of a session.
type gameSeat struct {
	id, try int
	kind    byte
	session string
	dial    int // of the session, from 0
	resumed string
	upFrom  uint64 // the number of the client's first message on this connection; 0: not said
	ws      *websocket.Conn
	tcp     *net.TCPConn
	ctx     context.Context

	quiet atomic.Bool   // stop sending
	sent  atomic.Uint64 // messages
	still chan struct{} // closed when sending has stopped

	mu    sync.Mutex
	check message.Check

	over   chan struct{} // closed when the connection has ended
	code   int           // of the Close that ended it; -1: none
	reason string
	at     int64 // by the history's clock
}

// parsePath parses /s/7/0: session 7, first try. In /r/7/0 nothing is sent.
func parsePath(path string) (kind byte, id, try int, err error) {
	_, err = fmt.Sscanf(path, "/%c/%d/%d", &kind, &id, &try)
	return kind, id, try, err
}

func (g *game) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, id, try, err := parsePath(r.URL.Path)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	if isDurable(kind) && !g.newer(r.Header) {
		http.Error(w, "there is a newer connection", http.StatusConflict)
		return
	}
	if r.Header.Get("Reseat-Resumed") != "" && g.refuses(id) {
		http.Error(w, "come back later", http.StatusServiceUnavailable)
		return
	}
	tcp := r.Context().Value(connKey{}).(*net.TCPConn)
	tcp.SetReadBuffer(32 << 10)
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	ws.SetReadLimit(-1)
	upFrom, _ := strconv.ParseUint(r.Header.Get("Reseat-Up-From"), 10, 64)
	s := &gameSeat{resumed: r.Header.Get("Reseat-Resumed"), upFrom: upFrom, id: id, try: try, kind: kind, session: r.Header.Get("Reseat-Session"), ws: ws, tcp: tcp, ctx: context.Background(), still: make(chan struct{}), over: make(chan struct{})}
	s.check.Stream = message.Stream{Seed: g.cfg.Seed, Up: true, Session: id, Try: stage(try, 0), Large: ofKind(kind).takesParts()}
	switch kind {
	case 'r':
		s.quiet.Store(true)
	case 'c':
		s.check.Staged = true // messages accepted by a plain client's older connection are not resent
	}
	if g.sit(s) {
		go s.write(g.cfg)
		s.read(g.cfg)
	}
}

// newer reports whether a dial of a durable session is newer than all before. One may be late, of a gateway that
// was asleep; none has the number of another.
func (g *game) newer(h http.Header) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	session := h.Get("Reseat-Session")
	epoch, err := strconv.ParseUint(h.Get("Reseat-Epoch"), 10, 64)
	last := g.epochs[session]
	switch {
	case err != nil || epoch == last:
		g.extra = append(g.extra, fmt.Sprintf("session %s: Reseat-Epoch %q after %d", session, h.Get("Reseat-Epoch"), last))
	case epoch < last:
		g.late++
		return false
	}
	g.epochs[session] = epoch
	return true
}

// durably is how a durable session may be dialled again: hard also after a hand-off that has failed.
var durably = []string{"hard", "failover", "handoff"}

// isDurable is that of the ending whose sessions have paths of this kind.
func isDurable(kind byte) bool { return kind == 'd' || kind == 'k' || kind == 'm' }

// stage returns the try number in a stream's messages: it combines the session's try
// and, for streams over several connections, the connection's number.
func stage(try, n int) int { return try*1000 + n }

// refuses reports whether the game server is unreachable for a resume, as for every sixth.
func (g *game) refuses(id int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := rand.New(rand.NewPCG(g.cfg.Seed, uint64(id)<<20|uint64(g.redials)|1<<49))
	g.redials++
	if r.IntN(6) > 0 {
		return false
	}
	g.refused++
	return true
}

// sit records the seat: the game server must see one connection per session, or one per
// hard resume.
func (g *game) sit(s *gameSeat) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := seatKey{s.id, s.try}
	g.names[s.session] = true
	s.dial = len(g.seats[key])
	if s.dial > 0 && s.kind == 'c' && g.lost(g.seats[key][s.dial-1].session) {
		s.ws.CloseNow()
		return false // its client could not know that this is another session
	}
	if s.dial > 0 && s.kind != 'h' && !isDurable(s.kind) {
		if !g.second[key] {
			g.extra = append(g.extra, fmt.Sprintf("session %d: the game server got a second connection at %.3f, of %s, after %s", s.id, float64(now())/1e9, s.session, g.seats[key][s.dial-1].told()))
		}
		g.second[key] = true
		s.ws.CloseNow()
		return false
	}
	how := map[byte][]string{'h': {"hard"}, 'd': durably, 'k': durably, 'm': durably}[s.kind]
	if s.dial == 0 && s.resumed != "" || s.dial > 0 && !slices.Contains(how, s.resumed) || isDurable(s.kind) && s.dial > 0 && s.upFrom == 0 {
		g.extra = append(g.extra, fmt.Sprintf("session %d: connection %d says Reseat-Resumed %q, Reseat-Up-From %d", s.id, s.dial, s.resumed, s.upFrom))
	}
	if s.dial > 0 {
		s.check.Midway()
		// A client that has received everything may say bye at any time, so nothing more is sent.
		s.quiet.Store(g.seats[key][s.dial-1].quiet.Load())
	}
	g.seats[key] = append(g.seats[key], s)
	return true
}

// name notes that a session has a game server.
func (g *game) name(session string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.names[session] = true
}

// isSecond reports whether the session got a connection too many.
func (g *game) isSecond(id, try int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.second[seatKey{id, try}]
}

// find returns the session's newest seat.
func (g *game) find(id, try int) *gameSeat {
	list := g.of(id, try)
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}

// forget removes the seats of a session.
func (g *game) forget(id, try int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.seats, seatKey{id, try})
}

// of returns all seats of a session, in the order of their dials.
func (g *game) of(id, try int) []*gameSeat {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seats[seatKey{id, try}])
}

// all returns all seats.
func (g *game) all() (list []*gameSeat) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.seats {
		list = append(list, s...)
	}
	return list
}

// read checks what arrives until the connection ends. Now and then the game server
// pauses reading.
func (s *gameSeat) read(cfg Config) {
	r := rand.New(rand.NewPCG(cfg.Seed, uint64(s.id)|uint64(s.dial)<<32|1<<40))
	for {
		kind, p, err := s.ws.Read(s.ctx)
		if err != nil {
			s.end(err)
			return
		}
		s.mu.Lock()
		s.check.Take(kind == websocket.MessageText, p)
		s.mu.Unlock()
		if r.IntN(cfg.StallEvery) == 0 {
			time.Sleep(time.Duration(r.IntN(int(cfg.Stall))))
		}
	}
}

// told describes the connection, and how it ended.
func (s *gameSeat) told() string {
	if !isOver(s) {
		return "one of " + s.session + ", which is open"
	}
	return fmt.Sprintf("one of %s, which ended at %.3f with %d %q", s.session, float64(s.at)/1e9, s.code, s.reason)
}

func (s *gameSeat) end(err error) {
	s.code, s.at = int(websocket.CloseStatus(err)), now()
	var ce websocket.CloseError
	if errors.As(err, &ce) {
		s.reason = ce.Reason
	}
	close(s.over)
}

// taken returns how many of the client's messages have arrived in order.
func (s *gameSeat) taken() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.check.Taken
}

// write sends messages until quiet is set: bursts, and in every fifth session a flood.
func (s *gameSeat) write(cfg Config) {
	defer close(s.still)
	r := rand.New(rand.NewPCG(cfg.Seed, uint64(s.id)|uint64(s.dial)<<32|1<<41))
	stream := message.Stream{Seed: cfg.Seed, Session: s.id, Try: stage(s.try, s.dial), States: ofKind(s.kind).hasStates(), Large: ofKind(s.kind).takesParts()}
	p := pace{quota: cfg.Messages, spread: cfg.Spread, r: r}
	switch {
	case s.kind == 'o' || s.kind == 'e':
		p.quota *= 3 // faster than a small buffer can bear
	case s.id%5 == 0:
		p.flood()
	}
	for !s.quiet.Load() {
		for range p.burst(s.sent.Load()) {
			if s.quiet.Load() {
				return
			}
			text, b := stream.Message(s.sent.Load() + 1)
			if s.ws.Write(s.ctx, kindOf(text), b) != nil {
				return
			}
			s.sent.Add(1)
		}
		time.Sleep(p.rest(s.sent.Load()))
	}
}

func kindOf(text bool) websocket.MessageType {
	if text {
		return websocket.MessageText
	}
	return websocket.MessageBinary
}

// stopSending makes the game server stop sending, and waits until it has.
func (s *gameSeat) stopSending() {
	s.quiet.Store(true)
	<-s.still
}

// close ends the session with a Close frame after its last message.
func (s *gameSeat) close(code int, reason string) {
	s.stopSending()
	s.ws.Close(websocket.StatusCode(code), reason)
}

// kill ends the connection as a crashing game server does.
func (s *gameSeat) kill() {
	s.tcp.SetLinger(0)
	s.tcp.Close()
}

// A pace says how many messages are sent when: the quota over the spread, in bursts,
// and few afterwards.
type pace struct {
	quota  int
	spread time.Duration
	r      *rand.Rand
	most   int // messages per burst
}

// flood sends as fast as possible, a few thousand at a time.
func (p *pace) flood() { p.most = 800 }

func (p *pace) burst(sent uint64) int {
	if sent >= uint64(p.quota) {
		return 1
	}
	if p.most > 0 {
		return p.most/2 + p.r.IntN(p.most)
	}
	return 1 + p.r.IntN(24)
}

func (p *pace) rest(sent uint64) time.Duration {
	if sent >= uint64(p.quota) {
		return 40*time.Millisecond + time.Duration(p.r.IntN(60))*time.Millisecond
	}
	mean := 12
	if p.most > 0 {
		mean = p.most
	}
	return time.Duration(p.r.Int64N(2*int64(p.spread)*int64(mean)/int64(p.quota) + 1))
}
