package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/events"
)

// A listener is a reader of the event stream.
type listener struct {
	*reply
	body io.Reader
	last string // the newest id
	idle int    // comments since the last event
}

// listen opens the event stream.
func (s *site) listen(query string, header ...string) *listener {
	s.t.Helper()
	r := s.get("/api/v1/events"+query, header...)
	resp := r.head(http.StatusOK)
	if resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("headers of a stream: %v", resp.Header)
	}
	rec := httptest.NewRecorder() // next checks what follows the head
	rec.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	described.check(s.t, s.w.admin, httptest.NewRequest("GET", "/api/v1/events"+query, nil), "", rec)
	return &listener{reply: r, body: resp.Body}
}

// line reads the next line.
func (l *listener) line() (string, error) {
	var b [1]byte
	var line []byte
	for {
		if _, err := io.ReadFull(l.body, b[:]); err != nil {
			return string(line), err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}

// next reads the next event; a comment is one without a type.
func (l *listener) next() (e events.Event) {
	l.t.Helper()
	var name, data string
	for {
		line, err := l.line()
		if err != nil {
			l.t.Fatalf("the stream: %q, %v", line, err)
		}
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "id":
			l.last = value
		case "event":
			name = value
		case "data":
			data = value
		case ":":
		case "":
			if data == "" {
				if l.idle++; l.idle > 20 {
					l.t.Fatal("the stream has no events any more")
				}
				return e
			}
			l.idle = 0
			if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type != name {
				l.t.Fatalf("event %s with data %s, %v", name, data, err)
			}
			l.schema(data)
			return e
		default:
			l.t.Fatalf("line %q", line)
		}
	}
}

// schema checks the data of an event against its description.
func (l *listener) schema(data string) {
	l.t.Helper()
	var v any
	json.Unmarshal([]byte(data), &v)
	if err := described.Components.Schemas["Event"].Value.VisitJSON(v); err != nil {
		l.t.Errorf("%s: %v", data, err)
	}
}

// want reads the next events, without comments: "type session".
func (l *listener) want(want ...string) {
	l.t.Helper()
	l.wantEach(func(e events.Event) string { return e.Session }, want)
}

// wantFrom is want for "type node".
func (l *listener) wantFrom(want ...string) {
	l.t.Helper()
	l.wantEach(func(e events.Event) string { return e.Node }, want)
}

func (l *listener) wantEach(of func(events.Event) string, want []string) {
	l.t.Helper()
	for _, w := range want {
		e := l.event()
		if got := strings.TrimSpace(e.Type + " " + of(e)); got != w {
			l.t.Fatalf("event %q %s, want %q", got, e.Reason, w)
		}
	}
}

func TestStreamContinuesAfterLastEventID(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.serve()
		l := s.listen("")
		a, _ := w.play("")
		l.want("session.created " + a.Hello.Session)
		l.Close()
		b, _ := w.play("")
		synctest.Wait()
		c, _ := w.play("")
		synctest.Wait()
		s.listen("", "Last-Event-ID: "+l.last).want("session.created "+b.Hello.Session, "session.created "+c.Hello.Session)
		s.listen("", "Last-Event-ID: 7").want("gap", "session.created "+a.Hello.Session, "session.created "+b.Hello.Session, "session.created "+c.Hello.Session)
		s.listen("?last=2").want("session.created "+b.Hello.Session, "session.created "+c.Hello.Session)
		s.listen("?last=4096").want("session.created "+a.Hello.Session, "session.created "+b.Hello.Session, "session.created "+c.Hello.Session)
		s.listen("?last=2", "Last-Event-ID: "+l.last).want("session.created "+b.Hello.Session, "session.created "+c.Hello.Session)
		for _, bad := range []string{"x", "-1", "+1", "4097"} {
			w.wantRefused("GET", "/api/v1/events?last="+url.QueryEscape(bad), "", http.StatusBadRequest, "last")
		}
		now := s.listen("")
		d, _ := w.play("")
		now.want("session.created " + d.Hello.Session)
		for _, bad := range []string{"x", "-1", "+1", "1.5", "0x1", "99999999999999999999", "1 2"} {
			w.wantRefused("GET", "/api/v1/events", "", http.StatusBadRequest, "Last-Event-ID", "Last-Event-ID: "+bad)
		}
	})
}

func TestStreamIsFiltered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.serve()
		all := []events.Event{{Session: "1", Player: "ann", Group: "red"}, {Session: "2", Player: "bob", Group: "red"}, {Session: "3", Player: "ann", Group: "blue"}}
		var streams []*listener
		queries := map[string]string{"?player=ann": "1 3", "?group=red": "1 2", "?session=2": "2", "?group=red&player=ann": "1", "?group=": "1 2 3", "?x=y": "1 2 3", "?player=Ann": ""}
		var order []string
		for q := range queries {
			order = append(order, q)
			streams = append(streams, s.listen(q))
		}
		for _, e := range all {
			e.Type = events.Created
			w.gw.Watch().Events.Publish(e)
		}
		w.gw.Watch().Events.Publish(events.Event{Type: events.Gap})
		for i, l := range streams {
			var got []string
			for e := l.next(); e.Type != events.Gap; e = l.next() {
				if e.Type != "" {
					got = append(got, e.Session)
				}
			}
			if strings.Join(got, " ") != queries[order[i]] {
				t.Errorf("%s: %q", order[i], got)
			}
		}
	})
}

func TestStreamIsKeptAlive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.serve().listen("")
		began := time.Now()
		for i := range 4 {
			if e := l.next(); e.Type != "" || time.Since(began) != time.Duration(i)*keepAlive {
				t.Errorf("%q after %v", e.Type, time.Since(began))
			}
		}
		p, _ := w.play("")
		l.want("session.created " + p.Hello.Session)
	})
}

// A reader stops reading: the sessions continue, and its stream is closed.
func TestStuckReaderIsClosedAndDelaysNoOther(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.serve()
		absent, present := s.listen(""), s.listen("")
		began := time.Now()
		var ids []string
		for range 200 {
			p, _ := w.play("")
			synctest.Wait() // its event follows its hello
			ids = append(ids, "session.created "+p.Hello.Session)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("the sessions waited for %v", d)
		}
		present.want(ids...)
		time.Sleep(streamWriteTimeout + time.Second) // so that it cannot start reading at the last moment
		if _, err := io.ReadAll(absent.body); err == nil {
			t.Error("it came to an end in order, rather than cut")
		}
		p, _ := w.play("")
		present.want("session.created " + p.Hello.Session)
	})
}

func TestStreamLimitFreesClosedStreams(t *testing.T) {
	names := []string{"first-0123456789ab", "second-0123456789ab", "third-0123456789ab"}
	c, err := LoadCredentials(tokenFile(t, names...), "")
	if err != nil {
		t.Fatal(err)
	}
	inWorld(t, func(t *testing.T, w *world) {
		s := w.serve()
		as := func(i int) string { return "Authorization: Bearer " + names[i] }
		refused := func(i, status int, word string) {
			t.Helper()
			wantProblem(t, s.get("/api/v1/events", as(i)).whole("GET", "/api/v1/events", status), status, word)
		}
		var open []*listener
		for i := range maxStreams {
			open = append(open, s.listen("", as(i/maxStreamsPerReader)))
			if i == maxStreamsPerReader-1 {
				refused(0, http.StatusTooManyRequests, "32 for one token")
			}
		}
		refused(2, http.StatusServiceUnavailable, "64")
		open[7].Close()
		synctest.Wait()
		s.listen("", as(2)).next()
	}, func(_ *gateway.Config, o *Options) { o.Credentials = c })
}

func TestStreamsAreLimitedInTotalAndPerAddress(t *testing.T) {
	s := streams{of: make(map[string]int)}
	for i := range maxStreams {
		if status := s.acquire(fmt.Sprint(i)); status != 0 {
			t.Fatalf("stream %d: %d", i, status)
		}
	}
	s.release("3")
	if status := s.acquire("another"); status != 0 || len(s.of) != maxStreams {
		t.Errorf("after one has left: %d, %d readers are counted", status, len(s.of))
	}
	of := func(addr string) string {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/events", nil)
		r.RemoteAddr = addr
		return readerKey(withCall(r, loopback))
	}
	if one := of("127.0.0.1:1"); of("127.0.0.1:2") != one || of("127.0.0.2:1") == one {
		t.Errorf("readers are told apart as %q, %q and %q, want by their addresses", one, of("127.0.0.1:2"), of("127.0.0.2:1"))
	}
}
