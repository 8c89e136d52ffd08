// Command counting-go is a game server that is exactly once, end to end, even when a gateway
// dies. docs/games/README.md explains each step.
//
// The game: a player sends numbers, the server adds them up. Each number is answered by
// {"n": 3, "add": 7}: the server's message number 3, 7 was added. {"n": 3, "sum": 40} is the
// whole state, in place of messages that are no longer kept.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// The settings, from the environment.
var (
	tick         = milliseconds("TICK_MS", 1000)       // interval at which the game adds 1; 0: never
	keptMessages = setting("KEPT_MESSAGES", 4096)      // for each player, as many as the gateway's --buffer-messages
	keptSeat     = milliseconds("KEPT_SEAT_MS", 600e3) // without a connection; longer than the gateway's --grace
	wait         = milliseconds("WAIT_MS", 2000)       // for messages that are still unread on older connections
	linger       = milliseconds("LINGER_MS", 10e3)     // until the game closes an older connection
)

func setting(name string, otherwise int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return otherwise
	}
	return n
}

func milliseconds(name string, otherwise int) time.Duration {
	return time.Duration(setting(name, otherwise)) * time.Millisecond
}

// A game has all seats. Its lock covers them too; no connection is read or written while
// it is held.
type game struct {
	mu    sync.Mutex
	seats map[string]*seat
}

// A seat is a player's part of the game, and the two counts of their session.
type seat struct {
	report
	newest *conn    // the connection that is written to; it may have ended
	conns  []*conn  // those that have not ended, oldest first
	log    [][]byte // the newest messages to the player, the last one with the number Sent
	expiry *time.Timer
}

// A report describes a seat for /report.
type report struct {
	Session     string  `json:"session"`
	Epoch       uint64  `json:"epoch"`    // of the newest connection
	Received    uint64  `json:"received"` // number of the player's newest message that was applied
	Sent        uint64  `json:"sent"`     // number of the newest message to the player
	Sum         int64   `json:"sum"`
	Applied     []int64 `json:"applied"`
	Connections int     `json:"connections"`
	Refused     int     `json:"refused"`
	Repeats     int     `json:"repeats"`
	Lost        uint64  `json:"lost"`
	Resyncs     int     `json:"resyncs"`
}

// A message of the server has its number, and either the number added or the whole state.
type message struct {
	N    uint64 `json:"n"`
	Add  *int64 `json:"add,omitempty"`
	Sum  *int64 `json:"sum,omitempty"`
	Lost uint64 `json:"lost,omitempty"`
}

// A conn is one connection of a seat.
type conn struct {
	from  uint64        // the number of the first message that it brings
	next  uint64        // the number of the next message to write to it
	wake  chan struct{} // has an element if there may be something to write
	ready chan struct{} // closed once it may be read
	open  bool          // ready is closed
	end   context.CancelFunc
}

// header returns the value of a header that is a number.
func header(r *http.Request, name string, otherwise uint64) uint64 {
	n, err := strconv.ParseUint(r.Header.Get(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// play serves one connection of a gateway.
func (g *game) play(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Reseat-Session") == "":
		http.Error(w, "this request has not come through the gateway", http.StatusBadRequest)
		return
	case r.Header.Get("Reseat-Resumed") != "" && r.Header.Get("Reseat-Up-From") == "":
		http.Error(w, "this is not a durable session: its messages cannot be counted", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s, c := g.attach(r, cancel)
	if c == nil {
		http.Error(w, "there is a newer connection", http.StatusConflict)
		return
	}
	defer g.detach(s, c)
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // the gateway checks the Origin
	if err != nil {
		return
	}
	defer ws.CloseNow()
	var writer sync.WaitGroup
	writer.Go(func() { g.write(ctx, ws, s, c) })
	g.read(ctx, ws, s, c)
	cancel()
	writer.Wait()
}

// attach makes a request's connection the newest of its seat. It returns no conn if there was
// a request of a higher epoch.
func (g *game) attach(r *http.Request, end context.CancelFunc) (*seat, *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id, epoch := r.Header.Get("Reseat-Session"), header(r, "Reseat-Epoch", 0)
	s := g.seats[id]
	if s == nil {
		s = &seat{report: report{Session: id, Applied: []int64{}}}
		g.seats[id] = s
	}
	if epoch < s.Epoch {
		s.Refused++
		return s, nil
	}
	if s.expiry != nil {
		s.expiry.Stop()
	}
	c := &conn{
		from:  header(r, "Reseat-Up-From", 1),
		next:  header(r, "Reseat-Down-From", 1),
		wake:  make(chan struct{}, 1),
		ready: make(chan struct{}),
		end:   end,
	}
	if s.newest != nil {
		// Not at once: its gateway would report the end of the session to a player who is still
		// on the way here.
		time.AfterFunc(linger, s.newest.end)
	}
	s.Epoch, s.newest, s.conns = epoch, c, append(s.conns, c)
	s.Connections++
	s.resync(c)
	s.settle()
	return s, c
}

func (g *game) detach(s *seat, c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.conns = slices.DeleteFunc(s.conns, func(o *conn) bool { return o == c })
	s.settle()
	if len(s.conns) == 0 {
		s.expiry = time.AfterFunc(keptSeat, func() { g.forget(s) })
	}
}

func (g *game) forget(s *seat) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(s.conns) == 0 {
		delete(g.seats, s.Session)
	}
}

// read applies what a connection brings, once it may be read.
func (g *game) read(ctx context.Context, ws *websocket.Conn, s *seat, c *conn) {
	select {
	case <-c.ready:
	case <-ctx.Done():
	case <-time.After(wait):
		g.mu.Lock()
		s.admit(c)
		g.mu.Unlock()
	}
	for n := c.from; ; n++ {
		_, data, err := ws.Read(ctx)
		if err != nil {
			return
		}
		g.take(s, n, data)
	}
}

// settle admits each connection that begins with the next message or a repeat. Messages that
// are missing before it were acked to the player, who does not send them again: they are on
// an older connection, unread, or died with the gateway.
func (s *seat) settle() {
	for i, c := range s.conns {
		if i == 0 || c.from <= s.Received+1 {
			s.admit(c)
		}
	}
}

// admit lets a connection be read, and gives up what is missing before it.
func (s *seat) admit(c *conn) {
	if c.open {
		return
	}
	c.open = true
	close(c.ready)
	if c.from > s.Received+1 {
		s.Lost += c.from - 1 - s.Received
		s.Received = c.from - 1
		s.sendState()
	}
}

// take applies a message of the player's. Number 7 is the same message on every connection.
func (g *game) take(s *seat, number uint64, data []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if number <= s.Received {
		s.Repeats++
		return
	}
	s.Received = number // counted whatever it says: the gateway has counted it too
	if x, err := strconv.ParseInt(string(data), 10, 64); err == nil {
		s.Applied = append(s.Applied, x)
		s.add(x)
	}
	s.settle()
}

func (s *seat) add(x int64) {
	s.Sum += x
	s.send(message{Add: &x})
}

// sendState sends the whole state, with the number of the player's messages that were lost.
func (s *seat) sendState() {
	s.send(message{Sum: new(s.Sum), Lost: s.Lost})
}

// send numbers a message to the player and keeps it. The connection's writer takes it from
// the log; without a connection, the next one's does.
func (s *seat) send(m message) {
	s.Sent++
	m.N = s.Sent
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // numbers alone: it cannot fail
	}
	s.log = append(s.log, text)
	s.log = s.log[max(0, len(s.log)-keptMessages):]
	if s.newest != nil {
		select {
		case s.newest.wake <- struct{}{}:
		default:
		}
	}
}

// write sends the player what they do not have, and then what is new.
func (g *game) write(ctx context.Context, ws *websocket.Conn, s *seat, c *conn) {
	for {
		text := g.next(s, c)
		if text == nil {
			select {
			case <-c.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if ws.Write(ctx, websocket.MessageText, text) != nil {
			return
		}
	}
}

// next returns the next message for a connection, nil if there is none.
func (g *game) next(s *seat, c *conn) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c != s.newest || c.next == s.Sent+1 {
		return nil
	}
	s.resync(c)
	text := s.log[c.next-s.oldest()]
	c.next++
	return text
}

// oldest is the number of the oldest message that is kept.
func (s *seat) oldest() uint64 {
	return s.Sent + 1 - uint64(len(s.log))
}

// resync sends the whole state if the next message for a connection is no longer kept, or the
// game was restarted. The numbers from there on have reached no player: they are free.
func (s *seat) resync(c *conn) {
	if s.oldest() <= c.next && c.next <= s.Sent+1 {
		return
	}
	s.Sent, s.log = c.next-1, nil
	s.Resyncs++
	s.sendState()
}

// run lets the game add 1 at each tick.
func (g *game) run() {
	for range time.Tick(tick) {
		g.mu.Lock()
		for _, s := range g.seats {
			s.add(1)
		}
		g.mu.Unlock()
	}
}

func (g *game) serveReport(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	list := make([]report, 0, len(g.seats))
	for _, s := range g.seats {
		list = append(list, s.report)
	}
	g.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string][]report{"sessions": list})
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(setting("PORT", 9000)))
	if err != nil {
		log.Fatal(err)
	}
	g := &game{seats: map[string]*seat{}}
	if tick > 0 {
		go g.run()
	}
	http.HandleFunc("/", g.play)
	http.HandleFunc("/report", g.serveReport)
	address := listener.Addr().(*net.TCPAddr)
	fmt.Printf("{\"listening\":{\"address\":%q,\"port\":%d}}\n", address.IP, address.Port)
	log.Fatal(http.Serve(listener, nil))
}
