package demo

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coder/websocket"
)

const (
	// queueMessages is the size of a client's queue: about 36 seconds.
	queueMessages = 1024
	// partWait limits how long a client that is being closed may take to read its queue.
	partWait = 2 * time.Second
	// lettersAfter is the delay of letters after the request: enough for a client to
	// disconnect before they are sent.
	lettersAfter      = time.Second
	lettersAfterTicks = uint64(lettersAfter / tickEvery)
	// Restart refuses players for restartTime, and keeps their seats for keptFor.
	restartTime       = 1500 * time.Millisecond
	restartEvery      = 5 * time.Second
	keptFor           = time.Minute
	restartTicks      = int(restartTime / tickEvery)
	restartEveryTicks = uint64((restartEvery - restartTime) / tickEvery)
	keptForTicks      = uint64(keptFor / tickEvery)
)

// A Config configures a Server.
type Config struct {
	// Seats is the maximum number of players, including the server's own three wanderers.
	// Zero means 32.
	Seats int
	// Seed determines where things appear. Zero means a random seed.
	Seed uint64
}

// A Server is the demo game server. It serves connections while Run runs: a request waits
// for Run to begin, and gets 503 after it has ended. Its methods are safe for concurrent
// use.
type Server struct {
	// Static after NewServer. The channels are not buffered: a send completes when the loop
	// has received.
	joins    chan join
	parts    chan part
	inputs   chan input
	restarts chan chan<- bool
	stopping chan struct{} // closed by the loop: no more joins

	// Owned by the loop in Run.
	world   *world
	clients map[*client]struct{} // clients with a seat
	readers int                  // connections that have joined and not left
	down    int                  // ticks until a restart is over
	// restartAt is the tick from which the next restart is allowed.
	restartAt uint64
	away      map[string]*client // by session: players who had a seat before a restart, and have not returned
}

// A client is the player at the other end of one connection.
type client struct {
	// Static after newClient.
	name    string
	session string
	// queue holds messages for the connection. The loop fills and closes it, the
	// connection's writer empties it.
	queue chan []byte
	// ctx bounds the writes to the connection.
	ctx    context.Context
	cancel context.CancelFunc

	// Owned by the loop.
	keptTo uint64 // in Server.away: the tick at which the seat is given up
	seat   int
	sent   uint64
	in     tally
	slow   bool // its queue was full

	letters   int    // requested and not yet sent
	lettersAt uint64 // the tick at which they are due
	as        string // of its states: asNewest or ""

	// Set by the loop before it closes queue, read by the writer after.
	end ending
}

// An ending says how to close a connection. With code 0 there is no Close frame.
type ending struct {
	code   websocket.StatusCode
	reason string
}

// Messages from connections to the loop.
type (
	join struct {
		client *client
		result chan<- error
	}
	part struct {
		client *client
		end    ending
	}
	input struct {
		client *client
		inputMessage
	}
)

// NewServer makes a Server, which is started by Run.
func NewServer(c Config) *Server {
	if c.Seats == 0 {
		c.Seats = 32
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	return &Server{
		joins:    make(chan join),
		parts:    make(chan part),
		inputs:   make(chan input),
		restarts: make(chan chan<- bool),
		stopping: make(chan struct{}),
		world:    newWorld(c.Seats, rand.New(rand.NewPCG(c.Seed, c.Seed))),
		clients:  make(map[*client]struct{}),
		away:     make(map[string]*client),
	}
}

// Run runs the game until ctx is done. It then closes every connection with 1001, waits for
// their readers and returns nil. That takes at most partWait plus the library's 10 seconds
// for a Close. It must be called once.
func (s *Server) Run(ctx context.Context) error {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	done := ctx.Done()
	for running := true; running || s.readers > 0; {
		select {
		case <-done:
			running, done = false, nil
			ticker.Stop()
			s.stop()
		case <-ticker.C:
			s.tick()
		case done := <-s.restarts:
			done <- s.restart()
		case j := <-s.joins:
			j.result <- s.seat(j.client)
		case p := <-s.parts:
			s.readers--
			s.unseat(p.client, p.end)
		case in := <-s.inputs:
			s.take(in)
		}
	}
	return nil
}

// stop refuses new players and closes all connections.
func (s *Server) stop() {
	close(s.stopping)
	for _, c := range s.bySeat() {
		s.unseat(c, ending{websocket.StatusGoingAway, "the server is shutting down"})
	}
}

// Restart acts like a game server that saves its players and is started again: it closes all
// connections with 1012, refuses new ones with 503 for a second and a half, and then continues. A
// player who comes back within a minute with the same Reseat-Session gets seat, score and numbers
// back. It reports false, and does nothing, within five seconds of the restart before, and
// after Run has ended.
func (s *Server) Restart() bool {
	done := make(chan bool, 1)
	select {
	case s.restarts <- done:
		return <-done
	case <-s.stopping:
		return false
	}
}

func (s *Server) restart() bool {
	if s.down > 0 || s.world.tick < s.restartAt {
		return false
	}
	s.down, s.restartAt = restartTicks, s.world.tick+restartEveryTicks
	for _, c := range s.bySeat() {
		delete(s.clients, c)
		if c.session == "" || s.away[c.session] != nil {
			s.world.stand(c.seat)
		} else {
			s.away[c.session], c.keptTo = c, s.world.tick+keptForTicks
		}
		c.dismiss(ending{websocket.StatusServiceRestart, "the server is restarted"})
	}
	return true
}

// tick plays on, unless the server is being restarted, and frees the seats of players who did not come back.
func (s *Server) tick() {
	if s.down > 0 {
		s.down--
		return
	}
	s.play()
	for session, c := range s.away {
		if s.world.tick >= c.keptTo {
			delete(s.away, session)
			s.leave(c)
		}
	}
}

// seat gives a client a seat and its welcome, and announces it to the others.
func (s *Server) seat(c *client) error {
	if s.down > 0 {
		return errRestarting
	}
	if before := s.away[c.session]; before != nil {
		delete(s.away, c.session)
		s.readers++
		c.seat, c.sent, c.in = before.seat, before.sent, before.in
		s.clients[c] = struct{}{}
		s.welcome(c)
		return nil
	}
	p, err := s.world.sit(c.name)
	if err != nil {
		return err
	}
	s.readers++
	for other := range s.clients {
		s.send(other, &sitMessage{head{T: "sit"}, guestOf(p)})
	}
	c.seat = p.seat
	s.clients[c] = struct{}{}
	s.welcome(c)
	return nil
}

// welcome sends a client the complete state.
func (s *Server) welcome(c *client) {
	s.send(c, &welcomeMessage{
		head: head{T: "welcome"}, Seat: c.seat, Session: c.session,
		Tick: s.world.tick, Rate: tickRate, Seats: len(s.world.seats),
		Width: arenaWidth, Height: arenaHeight,
		Players: s.world.guests(), Gems: s.world.places(),
	})
}

// unseat removes a client's seat and score, closes its connection after its queue has been
// sent, and announces it to the others. It does nothing for a client without a seat.
func (s *Server) unseat(c *client, end ending) {
	if _, ok := s.clients[c]; !ok {
		return
	}
	delete(s.clients, c)
	c.dismiss(end)
	s.leave(c)
}

// dismiss closes a client's connection after its queue has been sent.
func (c *client) dismiss(end ending) {
	c.end = end
	close(c.queue)
	time.AfterFunc(partWait, c.cancel)
}

// leave frees a seat, and announces it.
func (s *Server) leave(c *client) {
	score := s.world.seats[c.seat-1].score
	s.world.stand(c.seat)
	for other := range s.clients {
		s.send(other, &leaveMessage{head{T: "leave"}, c.seat, score})
	}
}

// take counts an input and carries it out.
func (s *Server) take(in input) {
	c := in.client
	switch _, ok := s.clients[c]; {
	case s.away[c.session] == c: // it was on its way when the connection was closed
		c.in.note(in.S)
		return
	case !ok:
		return
	}
	c.in.note(in.S)
	if c.letters == 0 {
		c.as = ""
	}
	switch in.T {
	case inLetters:
		c.letters, c.lettersAt = in.Count, s.world.tick+lettersAfterTicks
		if in.Newest {
			c.as = asNewest
		}
	case inFull:
		s.welcome(c)
	default:
		s.world.steer(c.seat, vec{in.X, in.Y})
	}
}

// post sends a client the letters that are due.
func (s *Server) post(c *client) {
	if c.letters == 0 || s.world.tick < c.lettersAt {
		return
	}
	for k := range c.letters {
		s.send(c, &letterMessage{head{T: "letter"}, k + 1, c.letters})
	}
	c.letters = 0
}

// play advances the world by one tick and sends the state to all.
func (s *Server) play() {
	takings := s.world.step()
	standings := s.world.standings()
	for _, c := range s.bySeat() {
		for _, t := range takings {
			s.send(c, &gemMessage{head{T: "gem"}, placeOf(t.gem, s.world.gems[t.gem]), t.by})
		}
		s.send(c, &stateMessage{head{T: "state"}, s.world.tick, c.as, standings, c.in})
		s.post(c)
	}
	s.dropSlow()
}

// send numbers a message and queues it. If the queue is full, the client gets nothing more
// and loses its seat at the end of the tick.
func (s *Server) send(c *client, m numbered) {
	if c.slow {
		return
	}
	m.number(c.sent + 1)
	select {
	case c.queue <- encode(m):
		c.sent++
	default:
		c.slow = true
	}
}

// dropSlow removes the clients whose queue was full, and drops their connections.
func (s *Server) dropSlow() {
	for _, c := range s.bySeat() {
		if c.slow {
			s.unseat(c, ending{})
		}
	}
}

// bySeat returns the clients in the order of their seats.
func (s *Server) bySeat() []*client {
	return slices.SortedFunc(maps.Keys(s.clients), func(a, b *client) int { return a.seat - b.seat })
}
