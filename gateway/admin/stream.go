package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"reseat/gateway/events"
)

const (
	// maxStreams is how many event streams may be open.
	maxStreams = 64
	// maxStreamsOfOne is how many of them one token, or without tokens one address, may have:
	// there is room for others beside a dashboard that opens one after the other.
	maxStreamsOfOne = maxStreams / 2
	// keepAlive is how often something is sent, so that nobody in between takes
	// the connection for dead.
	keepAlive = 15 * time.Second
	// streamWrite is how long a reader has to take what is sent.
	streamWrite = 10 * time.Second
	// atOnce is how many events are sent with one write.
	atOnce = 128
)

// events streams what happens to sessions, as server-sent events.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	reader, err := a.read(r)
	if err != nil {
		refuse(w, err)
		return
	}
	defer reader.Close()
	of := readerOf(r)
	if status := a.streams.enter(of); status != 0 {
		w.Header().Set("Retry-After", "10")
		problem(w, status, fmt.Sprintf("too many event streams: the max is %d, or %d for one token or address", maxStreams, maxStreamsOfOne))
		return
	}
	defer a.streams.leave(of)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx in front would hold events back
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	s := stream{w: w, control: http.NewResponseController(w), reader: reader, wanted: wantedBy(r)}
	s.run(r)
}

// streams are the event streams that are open, by whose they are.
type streams struct {
	mu    sync.Mutex
	total int
	of    map[string]int
}

// enter counts one more, or gives the status of a refusal.
func (s *streams) enter(of string) (status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[of] >= maxStreamsOfOne:
		return http.StatusTooManyRequests
	case s.total >= maxStreams:
		return http.StatusServiceUnavailable
	}
	s.total++
	s.of[of]++
	return 0
}

func (s *streams) leave(of string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.of[of]--; s.of[of] == 0 {
		delete(s.of, of)
	}
}

// readerOf is whose stream a request asks for: its token's, or without one its address's.
func readerOf(r *http.Request) string {
	name := callerOf(r).name
	if name == (ownPages{}).name() {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return name + " " + host
	}
	return name
}

// read begins where the caller left off: Last-Event-ID, or with as many of the newest
// events as the query's last says, none unless it says so.
func (a *api) read(r *http.Request) (*events.Reader, error) {
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		n := uint64(0)
		if s := r.URL.Query().Get("last"); s != "" {
			var ok bool
			if n, ok = number(s); !ok || n > events.Kept {
				return nil, badRequest("last: want 0 to %d", events.Kept)
			}
		}
		return a.g.Events().Newest(int(n)), nil
	}
	id, ok := number(last)
	if !ok {
		return nil, badRequest("Last-Event-ID: want the id of an event, got %.100q", last)
	}
	return a.g.Events().After(id), nil
}

// wantedBy says which events a caller wants, by its query: those of one session,
// player or group, and every gap.
func wantedBy(r *http.Request) func(*events.Event) bool {
	q := r.URL.Query()
	session, player, group := q.Get("session"), q.Get("player"), q.Get("group")
	is := func(wanted, got string) bool { return wanted == "" || wanted == got }
	return func(e *events.Event) bool {
		return e.Type == events.Gap || is(session, e.Session) && is(player, e.Player) && is(group, e.Group)
	}
}

// A stream is one reader's connection. A reader that does not take what is sent
// is cut; only its own goroutine ever waits for it.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	reader  *events.Reader
	wanted  func(*events.Event) bool

	list []events.Event
	out  bytes.Buffer
}

func (s *stream) run(r *http.Request) {
	beat := time.NewTicker(keepAlive)
	defer beat.Stop()
	s.list = make([]events.Event, 0, atOnce)
	s.comment()
	for open := true; s.flush() == nil && open; {
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
			s.comment()
		case <-s.reader.Wake():
			open = s.gather()
		}
	}
	s.control.SetWriteDeadline(time.Time{})
}

// comment is nothing to a reader: it shows that both ends are there.
func (s *stream) comment() { s.out.WriteString(":\n\n") }

// gather takes what there is to send, and reports whether more may come.
func (s *stream) gather() (open bool) {
	s.list, open = s.reader.Next(s.list[:0])
	for i := range s.list {
		e := &s.list[i]
		if !s.wanted(e) {
			continue
		}
		data, _ := json.Marshal(e)
		fmt.Fprintf(&s.out, "id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.Type, data)
	}
	return open
}

// flush sends what was gathered.
func (s *stream) flush() error {
	if s.out.Len() == 0 {
		return nil
	}
	s.control.SetWriteDeadline(time.Now().Add(streamWrite))
	_, err := s.w.Write(s.out.Bytes())
	s.out.Reset()
	if err != nil {
		return err
	}
	return s.control.Flush()
}
