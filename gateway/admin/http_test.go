package admin

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
)

// A site is the admin address served over connections, for behaviour that a
// ResponseRecorder cannot show.
type site struct {
	t      *testing.T
	w      *world
	ln     *wstest.Listener
	server *http.Server
}

func (w *world) serve() *site {
	s := &site{w.t, w, wstest.NewListener(4 << 10), &http.Server{Handler: w.admin}}
	go s.server.Serve(s.ln)
	w.t.Cleanup(func() { s.server.Close() })
	return s
}

// A reply is a connection to the admin address on which a request was sent.
type reply struct {
	*wstest.Conn
	t *testing.T
	s *site
	r *bufio.Reader
}

// request sends a request verbatim.
func (s *site) request(raw string) *reply {
	s.t.Helper()
	c, err := s.ln.Dial()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	c.Write([]byte(raw))
	return &reply{c, s.t, s, bufio.NewReader(c)}
}

// get requests target, with header lines.
func (s *site) get(target string, header ...string) *reply {
	s.t.Helper()
	return s.request("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + strings.Join(append(header, "", ""), "\r\n"))
}

// head reads the head of the answer. Its body follows.
func (r *reply) head(status int) *http.Response {
	r.t.Helper()
	resp, err := http.ReadResponse(r.r, nil)
	if err != nil || resp.StatusCode != status {
		r.t.Fatalf("answered %v, %v, want %d", resp, err, status)
	}
	return resp
}

// whole reads an answer and checks it against its description.
func (r *reply) whole(method, target string, status int) *httptest.ResponseRecorder {
	r.t.Helper()
	resp := r.head(status)
	rec := httptest.NewRecorder()
	for name, values := range resp.Header {
		rec.Header()[name] = values
	}
	rec.WriteHeader(status)
	io.Copy(rec.Body, resp.Body)
	described.check(r.t, r.s.w.admin, httptest.NewRequest(method, target, nil), "", rec)
	return rec
}

func TestMissingBodyTimesOut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		s := w.serve()
		for _, c := range [][2]string{{"POST", sessions}, {"PATCH", path(p)}, {"PUT", path(p) + "/data"}} {
			began := time.Now()
			r := s.request(c[0] + " " + c[1] + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
			wantProblem(t, r.whole(c[0], c[1], http.StatusRequestTimeout), http.StatusRequestTimeout, "in time")
			if d := time.Since(began); d != bodyTimeout {
				t.Errorf("%s: given up after %v", c[0], d)
			}
		}
		w.wantList("", p)
	})
}

func TestOversizedBodyIsNotRead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		s := w.serve()
		for _, c := range [][2]string{{"POST", sessions}, {"PATCH", path(p)}, {"PUT", path(p) + "/data"}} {
			r := s.request(c[0] + " " + c[1] + " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
			go func() {
				chunk := []byte("1000\r\n" + strings.Repeat(" ", 0x1000) + "\r\n")
				for range 1 << 12 { // 16 MiB, if they were read
					if _, err := r.Write(chunk); err != nil {
						return
					}
				}
			}()
			wantProblem(t, r.whole(c[0], c[1], http.StatusRequestEntityTooLarge), http.StatusRequestEntityTooLarge, "at most")
			r.Close()
		}
	})
}

// The time limit for a body must not apply to the call itself.
func TestDialMayOutlastBodyTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		answer := make(chan bool)
		w.game.Refuse = func(_ net.Conn, _ *http.Request) bool { <-answer; return false }
		time.AfterFunc(2*bodyTimeout, func() { close(answer) })
		s := w.serve()
		r := s.request("POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 19\r\n\r\n" + `{"path":"/match/7"}`)
		r.head(http.StatusCreated)
		r.Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	}, func(c *gateway.Config, _ *Options) { c.Routes[0].Policy.DialTimeout = time.Minute })
}

func TestHEADIsGETWithoutBody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		s := w.serve()
		for _, target := range []string{"/healthz", "/metrics", sessions, path(p), "/api/v1/events", "/api/v1/openapi.json"} {
			r := s.request("HEAD " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
			resp, err := http.ReadResponse(r.r, httptest.NewRequest("HEAD", target, nil))
			if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") == "" {
				t.Fatalf("%s: %v, %v", target, resp, err)
			}
			if rest, err := io.ReadAll(r.r); len(rest) > 0 || err != nil {
				t.Errorf("%s: a body of %d bytes, %v", target, len(rest), err)
			}
		}
		synctest.Wait()
	})
}
