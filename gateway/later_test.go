package gateway_test

import (
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
)

// Requests after the first one of a connection.

// T15: a folded header line is joined by a space, as RFC 9112 section 5.2 allows: the game
// server gets one line, and no header of its own for the folded part.
func TestFoldedHeaderLineIsJoinedByASpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrackedWorld(t, nil)
		var got http.Header
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			got = r.Header
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
			return true
		}
		_, br := w.Request("GET / HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n\tX-B: 2\r\n\r\n")
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusNoContent {
			t.Fatalf("%v, %v; want 204", resp, err)
		}
		if got.Get("X-A") != "1 X-B: 2" || got.Get("X-B") != "" {
			t.Errorf("the game server got X-A %q and X-B %q", got.Get("X-A"), got.Get("X-B"))
		}
	})
}

// T15: after a request whose end is ambiguous, nothing is served.
func TestNothingIsServedAfterChunkedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrackedWorld(t, nil)
		w.game.Refuse = func(c net.Conn, r *http.Request) bool {
			io.Copy(io.Discard, r.Body)
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
			return true
		}
		_, br := w.Request("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /page HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != http.StatusNoContent || !resp.Close {
			t.Fatalf("%v, %v; want 204 and the connection closed", resp, err)
		}
		if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil {
			t.Errorf("after it came %q, %v", rest, err)
		}
	})
}
