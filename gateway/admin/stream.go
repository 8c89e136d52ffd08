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
	// A stream sends something every keepAlive, so that no proxy closes it as idle.
	keepAlive = 15 * time.Second
	// streamWriteTimeout limits the time in which a reader takes a write.
	streamWriteTimeout = 10 * time.Second
	// maxBatch is the max number of events in one write.
	maxBatch = 128
)

// events streams what happens to sessions, as server-sent events.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	s := stream{w: w, control: http.NewResponseController(w), wanted: eventFilter(r)}
	if err := a.begin(&s, r); err != nil {
		refuse(w, err)
		return
	}
	defer s.reader.Close()
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
	name := callOf(r).name
	if name == loopback.name {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return name + " " + host
	}
	return name
}

// begin starts a stream after Last-Event-ID if that is given, so that a reader that reconnects
// misses nothing. Otherwise it starts with as many of the newest events as the query's
// last asks for, none by default.
func (a *api) begin(s *stream, r *http.Request) error {
	var id, newest uint64
	last, ok := r.Header.Get("Last-Event-ID"), true
	if last != "" {
		if id, ok = number(last); !ok {
			return badRequest("Last-Event-ID: want the id of an event, got %.100q", last)
		}
	} else if n := r.URL.Query().Get("last"); n != "" {
		if newest, ok = number(n); !ok || newest > events.Kept {
			return badRequest("last: want 0 to %d", events.Kept)
		}
	}
	hub := a.g.Watch().Events.Hub
	s.node = a.nodeName()
	if !a.alone(r) {
		if all, begun := a.feed.settle(r.Context(), id); all != nil {
			hub, s.node, s.older = all, "", a.feed.older
		} else {
			s.end = begun
		}
	}
	if last == "" {
		s.reader = hub.Newest(int(newest))
	} else {
		s.reader = hub.After(id)
	}
	return nil
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
	node    string          // of all events; "": they say it themselves
	end     <-chan struct{} // ends it: its reader gets more by the next one. Nil: never
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
		case <-s.end:
			open = false
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
