package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"reseat/gateway/events"
)

const (
	// maxStreams is the max number of open event streams.
	maxStreams = 64
	// maxStreamsPerReader is the max of them for one token, or, without tokens, for one
	// address. A dashboard that opens one after another leaves room for others.
	maxStreamsPerReader = maxStreams / 2
	// keepAlive is how often a stream sends something, so that no proxy closes it as idle.
	keepAlive = 15 * time.Second
	// streamWriteTimeout is how long a reader has to take a write.
	streamWriteTimeout = 10 * time.Second
	// maxBatch is the max number of events in one write.
	maxBatch = 128
)

// events streams what happens to sessions, as server-sent events.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	reader, err := a.read(r)
	if err != nil {
		refuse(w, err)
		return
	}
	defer reader.Close()
	of := readerKey(r)
	if status := a.streams.acquire(of); status != 0 {
		w.Header().Set("Retry-After", "10")
		problem(w, status, fmt.Sprintf("too many event streams: the max is %d, or %d for one token or address", maxStreams, maxStreamsPerReader))
		return
	}
	defer a.streams.release(of)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would otherwise buffer events
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	s := stream{w: w, control: http.NewResponseController(w), reader: reader, wanted: eventFilter(r)}
	switch {
	case a.alone(r):
		s.node = a.nodeName()
	case a.feed.log != nil:
		s.older = a.feed.older
	}
	s.run(r)
}

// streams counts the open event streams, in total and by reader.
type streams struct {
	mu    sync.Mutex
	total int
	of    map[string]int
}

// acquire counts one more stream, or returns the status of a refusal.
func (s *streams) acquire(of string) (status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[of] >= maxStreamsPerReader:
		return http.StatusTooManyRequests
	case s.total >= maxStreams:
		return http.StatusServiceUnavailable
	}
	s.total++
	s.of[of]++
	return 0
}

func (s *streams) release(of string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.of[of]--; s.of[of] == 0 {
		delete(s.of, of)
	}
}

// readerKey returns whose limit a stream counts against: its token's, or without tokens
// its address's.
func readerKey(r *http.Request) string {
	name := callerOf(r).name
	if name == (loopbackGuard{}).name() {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return name + " " + host
	}
	return name
}

// read starts after Last-Event-ID if that is given, so that a reader that reconnects
// misses nothing. Otherwise it starts with as many of the newest events as the query's
// last asks for, none by default.
func (a *api) read(r *http.Request) (*events.Reader, error) {
	hub := a.all
	if a.alone(r) {
		hub = a.g.Watch().Events.Hub
	}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		n := uint64(0)
		if s := r.URL.Query().Get("last"); s != "" {
			var ok bool
			if n, ok = number(s); !ok || n > events.Kept {
				return nil, badRequest("last: want 0 to %d", events.Kept)
			}
		}
		a.settle(r, 0)
		return hub.Newest(int(n)), nil
	}
	id, ok := number(last)
	if !ok {
		return nil, badRequest("Last-Event-ID: want the id of an event, got %.100q", last)
	}
	a.settle(r, id)
	return hub.After(id), nil
}

// settle waits until it is known where a reader of the whole cluster's events begins.
func (a *api) settle(r *http.Request, id uint64) {
	if !a.alone(r) {
		a.feed.settle(r.Context(), id)
	}
}

// eventFilter returns the filter in a query: events of one session, player or group.
// Gaps always pass, since they may hide such an event.
func eventFilter(r *http.Request) func(*events.Event) bool {
	q := r.URL.Query()
	session, player, group := q.Get("session"), q.Get("player"), q.Get("group")
	is := func(wanted, got string) bool { return wanted == "" || wanted == got }
	return func(e *events.Event) bool {
		return e.Type == events.Gap || is(session, e.Session) && is(player, e.Player) && is(group, e.Group)
	}
}

// A stream is one reader's connection. A reader that does not take what is sent is closed;
// only its own goroutine waits for it.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	reader  *events.Reader
	wanted  func(*events.Event) bool
	node    string // of all events; "": they say it themselves
	// older reads events that the reader's Hub does not have any more. Nil: they are nowhere.
	older func(ctx context.Context, after, until uint64) (list []events.Event, upTo uint64, ok bool)

	list []events.Event
	out  bytes.Buffer
}

func (s *stream) run(r *http.Request) {
	beat := time.NewTicker(keepAlive)
	defer beat.Stop()
	s.list = make([]events.Event, 0, maxBatch)
	s.comment()
	for open := true; s.flush() == nil && open; {
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
			s.comment()
		case <-s.reader.Wake():
			if s.older == nil || !s.gatherOlder(r.Context()) {
				open = s.gather()
			}
		}
	}
	s.control.SetWriteDeadline(time.Time{})
}

// comment writes a comment line, which readers ignore: it keeps the connection alive.
func (s *stream) comment() { s.out.WriteString(":\n\n") }

// gather formats the events that wait, and reports whether more may follow.
func (s *stream) gather() (open bool) {
	s.list, open = s.reader.Next(s.list[:0])
	s.format(s.list)
	return open
}

// gatherOlder formats events that are in the log alone, if these come next. If they are not there it
// formats none.
func (s *stream) gatherOlder(ctx context.Context) bool {
	after, until, behind := s.reader.Behind()
	if !behind {
		return false
	}
	list, upTo, ok := s.older(ctx, after, until)
	if ok {
		s.format(list)
		s.reader.Skip(upTo)
	}
	return ok
}

func (s *stream) format(list []events.Event) {
	for i := range list {
		e := &list[i]
		if !s.wanted(e) {
			continue
		}
		if s.node != "" {
			e.Node = s.node
		}
		data, _ := json.Marshal(e)
		fmt.Fprintf(&s.out, "id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.Type, data)
	}
}

// flush sends what was gathered.
func (s *stream) flush() error {
	if s.out.Len() == 0 {
		return nil
	}
	s.control.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
	_, err := s.w.Write(s.out.Bytes())
	s.out.Reset()
	if err != nil {
		return err
	}
	return s.control.Flush()
}
