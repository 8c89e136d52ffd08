package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var longBody = strings.Repeat("0123456789abcdef", 20_000) // 320 kB

// chunked is body in chunks of a kilobyte.
func chunked(body string) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(1000, len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

var refusals = []struct {
	name, raw string
	status    int
	header    http.Header
	body      string
}{
	{"401 with a challenge", "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nwho?",
		401, http.Header{"Www-Authenticate": {"Bearer"}, "Content-Type": {"text/plain"}, "Content-Length": {"4"}}, "who?"},
	{"302 is not followed", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/other\r\nContent-Length: 5\r\n\r\nmoved",
		302, http.Header{"Location": {"http://127.0.0.1:1/other"}, "Content-Length": {"5"}}, "moved"},
	{"200 is a refusal", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na page", 200, http.Header{"Content-Length": {"6"}}, "a page"},
	{"no body", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, http.Header{"Content-Length": {"0"}}, ""},
	{"long body with a length", "HTTP/1.1 403 Forbidden\r\nContent-Length: " + strconv.Itoa(len(longBody)) + "\r\n\r\n" + longBody,
		403, http.Header{"Content-Length": {strconv.Itoa(len(longBody))}}, longBody},
	{"long body in chunks", "HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n" + chunked(longBody), 500, http.Header{}, longBody},
	{"long body until the end", "HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n" + longBody, 500, http.Header{}, longBody},
	{"HTTP/1.0 until the end", "HTTP/1.0 503 Busy\r\nRetry-After: 7\r\n\r\n" + longBody, 503, http.Header{"Retry-After": {"7"}}, longBody},
	{"chunks and a length", "HTTP/1.1 400 Bad\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked("whole"), 400, http.Header{}, "whole"},
	{"204", "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc", 204, http.Header{}, ""},
	{"304", "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 3\r\n\r\n", 304, http.Header{"Etag": {`"x"`}}, ""},
	{"after interim answers", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Slow\r\nContent-Length: 2\r\n\r\nno", 429, http.Header{"Content-Length": {"2"}}, "no"},
	{"426 and its hop-by-hop headers", "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: x\r\nReseat-Grace: 2m\r\nReseat_Group: g\r\nSec-WebSocket-Version: 13\r\nContent-Length: 1\r\n\r\n!",
		426, http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Content-Length": {"1"}}, "!"},
	{"cookies", "HTTP/1.1 403 No\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 0\r\n\r\n", 403, http.Header{"Set-Cookie": {"a=1", "b=2"}, "Content-Length": {"0"}}, ""},
	{"compressed body", "HTTP/1.1 403 No\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08", 403, http.Header{"Content-Encoding": {"gzip"}, "Content-Length": {"3"}}, "\x1f\x8b\x08"},
	{"status beyond the registry", "HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n", 799, http.Header{"Content-Length": {"0"}}, ""},
	{"bytes behind the body", "HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nnoHTTP/1.1 200 OK\r\n\r\n", 403, http.Header{"Content-Length": {"2"}}, "no"},
}

func TestRefusalPassesWithItsWholeBody(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			g := newGame(t, "ws://game", answering(c.raw))
			conn, err := g.Dial(t.Context(), Request{Path: "/"})
			var refusal *Refusal
			if conn != nil || !errors.As(err, &refusal) || Status(err) != c.status {
				t.Fatalf("%v, %v; want a refusal with %d", conn, err, c.status)
			}
			w := newRecorder()
			WriteError(w, err)
			if w.status != c.status || w.body.String() != c.body {
				t.Errorf("the client got %d and %d bytes, want %d and %d", w.status, w.body.Len(), c.status, len(c.body))
			}
			delete(w.passed, "Content-Type")
			want := c.header.Clone()
			if ct := want["Content-Type"]; ct != nil {
				delete(want, "Content-Type")
				if !reflect.DeepEqual(w.header["Content-Type"], ct) {
					t.Errorf("Content-Type %q, want %q", w.header["Content-Type"], ct)
				}
			}
			if !reflect.DeepEqual(w.passed, want) {
				t.Errorf("the client got %v, want %v", w.passed, want)
			}
			g.wantClosed(t)
		})
	}
}

// The same through a real server, which has its own rules for headers.
func TestRefusalReachesAClientOfNetHTTP(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			g := newGame(t, "ws://game", answering(c.raw))
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := g.Dial(r.Context(), Request{Path: "/"})
				WriteError(w, err)
			}))
			defer srv.Close()
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != c.status || string(body) != c.body {
				t.Errorf("%d, %d bytes, %v; want %d, %d bytes", resp.StatusCode, len(body), err, c.status, len(c.body))
			}
			if got, want := resp.Header["Content-Type"], c.header["Content-Type"]; !reflect.DeepEqual(got, want) {
				t.Errorf("Content-Type %q, want %q", got, want)
			}
			if n, err := conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("the client's connection goes on after the refusal: %d, %v", n, err)
			}
		})
	}
}

func TestTruncatedRefusalIsNotTreatedAsComplete(t *testing.T) {
	for name, raw := range map[string]string{
		"short of its length":  "HTTP/1.1 403 No\r\nContent-Length: 100\r\n\r\nshort",
		"cut between chunks":   "HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
		"cut within a chunk":   "HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nshort",
		"nonsense for a chunk": "HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nshort",
	} {
		t.Run(name, func(t *testing.T) {
			g := newGame(t, "ws://game", answering(raw))
			_, err := g.Dial(t.Context(), Request{Path: "/"})
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("panic with %v, want http.ErrAbortHandler", p)
				}
				g.wantClosed(t)
			}()
			WriteError(newRecorder(), err)
		})
	}
}

// A truncated refusal reaches the client, above all its status.
func TestTruncatedRefusalKeepsItsStatus(t *testing.T) {
	g := newGame(t, "ws://game", answering("HTTP/1.1 403 No\r\nContent-Length: 100\r\n\r\nshort"))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := g.Dial(r.Context(), Request{Path: "/"})
		WriteError(w, err)
	}))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 403 || string(body) != "short" || err != io.ErrUnexpectedEOF {
		t.Errorf("%d %q, %v; want 403, the truncated body, and an error", resp.StatusCode, body, err)
	}
}

func TestRefusalBodyEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGame(t, "ws://game", func(conn net.Conn, r *http.Request) {
			io.WriteString(conn, "HTTP/1.1 403 No\r\n\r\nand so on")
			io.Copy(io.Discard, conn)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := g.Dial(ctx, Request{Path: "/"})
		var refusal *Refusal
		if !errors.As(err, &refusal) {
			t.Fatal(err)
		}
		begun := time.Now()
		body, err := io.ReadAll(refusal.Body)
		if string(body) != "and so on" || err == nil || time.Since(begun) != 10*time.Second {
			t.Errorf("read %q, %v after %v; want an error after 10s", body, err, time.Since(begun))
		}
		refusal.Body.Close()
		g.wantClosed(t)
	})
}

func TestClosingARefusalUnreadDoesNotWaitForItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGame(t, "ws://game", func(conn net.Conn, r *http.Request) {
			io.WriteString(conn, "HTTP/1.1 403 No\r\nContent-Length: 1000000\r\n\r\nand so on")
			io.Copy(io.Discard, conn)
		})
		_, err := g.Dial(t.Context(), Request{Path: "/"})
		var refusal *Refusal
		if !errors.As(err, &refusal) {
			t.Fatal(err)
		}
		refusal.Body.Close()
		g.wantClosed(t)
	})
}

func TestWriteErrorSendsStatusAndOneLine(t *testing.T) {
	for kind, want := range map[Kind]struct {
		status int
		text   string
	}{
		Unreachable: {502, "the game server cannot be reached\n"},
		Timeout:     {504, "the game server did not answer in time\n"},
		BadAnswer:   {502, "the game server's answer is not valid\n"},
		Canceled:    {502, "the game server cannot be reached\n"},
	} {
		w := newRecorder()
		WriteError(w, fmt.Errorf("session 7: %w", &Error{Kind: kind, Addr: "10.0.0.1:9000", Err: io.EOF}))
		if w.status != want.status || w.body.String() != want.text {
			t.Errorf("%v: %d %q, want %d %q", kind, w.status, w.body.String(), want.status, want.text)
		}
	}
}

func TestStatusOfForeignErrors(t *testing.T) {
	for err, want := range map[error]int{
		context.DeadlineExceeded:                      504,
		&net.DNSError{IsTimeout: true}:                504,
		io.ErrUnexpectedEOF:                           502,
		&Refusal{Status: 418}:                         418,
		&Error{Kind: Timeout, Err: io.EOF}:            504,
		&Error{Kind: Canceled, Err: context.Canceled}: 502,
	} {
		if got := Status(fmt.Errorf("dial: %w", err)); got != want {
			t.Errorf("%v: status %d, want %d", err, got, want)
		}
	}
}
