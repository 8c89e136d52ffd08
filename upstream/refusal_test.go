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
	{"chunks and a length", "HTTP/1.1 400 Bad\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked("whole"), 400, http.Header{"Content-Length": {"5"}}, "whole"},
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

// Through a real server, which has its own rules for headers.
func TestRefusalPassesWithItsWholeBody(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			g := newGame(t, "ws://game", answering(c.raw))
			conn, resp := refused(t, g)
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != c.status || string(body) != c.body {
				t.Errorf("%d, %d bytes, %v; want %d, %d bytes", resp.StatusCode, len(body), err, c.status, len(c.body))
			}
			for _, name := range []string{"Date", "Connection"} { // the gateway's own
				delete(resp.Header, name)
			}
			if !reflect.DeepEqual(resp.Header, c.header) {
				t.Errorf("the client got %v, want %v", resp.Header, c.header)
			}
			if n, err := conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("the client's connection goes on after the refusal: %d, %v", n, err)
			}
			g.wantClosed(t)
		})
	}
}

// refused returns a client's connection to a server that dials g, and the answer.
func refused(t *testing.T, g *game) (net.Conn, *http.Response) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := g.Dial(r.Context(), Request{Path: "/"})
		WriteError(w, err)
	}))
	t.Cleanup(srv.Close)
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, resp
}

// A truncated refusal reaches the client, above all its status.
func TestTruncatedRefusalKeepsItsStatus(t *testing.T) {
	_, resp := refused(t, newGame(t, "ws://game", answering("HTTP/1.1 403 No\r\nContent-Length: 100\r\n\r\nshort")))
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

func TestErrorHasItsWordStatusAndLine(t *testing.T) {
	for kind, want := range map[Kind]struct {
		word   string
		status int
		text   string
	}{
		Unreachable: {"unreachable", 502, "the game server cannot be reached\n"},
		Timeout:     {"timeout", 504, "the game server did not answer in time\n"},
		BadAnswer:   {"bad_answer", 502, "the game server's answer is not valid\n"},
		Canceled:    {"canceled", 502, "the game server cannot be reached\n"},
	} {
		w := newRecorder()
		WriteError(w, fmt.Errorf("session 7: %w", &Error{Kind: kind, Addr: "10.0.0.1:9000", Err: io.EOF}))
		if kind.String() != want.word || w.status != want.status || w.body.String() != want.text {
			t.Errorf("%v: %d %q, want %+v", kind, w.status, w.body.String(), want)
		}
	}
	for err, want := range map[error]int{context.DeadlineExceeded: 504, &net.DNSError{IsTimeout: true}: 504, io.ErrUnexpectedEOF: 502, &Refusal{Status: 418}: 418} {
		if got := Status(fmt.Errorf("dial: %w", err)); got != want {
			t.Errorf("%v: status %d, want %d", err, got, want)
		}
	}
}
