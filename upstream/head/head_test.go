package head

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
)

const handshake = "GET /play?room=7 HTTP/1.1\r\nHost: game.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nOrigin: https://game.example\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\ncookie: a=b\r\nCookie:  c=d \r\n\r\n"

func TestPlainHeadIsParsed(t *testing.T) {
	h, ok := Parse([]byte(handshake + "\x81\x00"))
	want := Head{
		Line: "GET /play?room=7 HTTP/1.1", Host: []string{"game.example"}, Size: len(handshake),
		Header: http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Origin": {"https://game.example"}, "Sec-Websocket-Version": {"13"},
			"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Cookie": {"a=b", "c=d"},
		},
	}
	if !ok || !reflect.DeepEqual(h, want) {
		t.Errorf("%v, %+v\nwant %+v", ok, h, want)
	}
}

// Values are parts of one array: a field that grows must not overwrite the next one.
func TestFieldsDoNotShareRoom(t *testing.T) {
	h, _ := Parse([]byte("GET / HTTP/1.1\r\nA: 1\r\nB: 2\r\n\r\n"))
	if h.Header.Add("A", "x"); h.Header.Get("B") != "2" {
		t.Errorf("%v", h.Header)
	}
}

func TestUnusualHeadsAreLeft(t *testing.T) {
	for _, s := range []string{
		"", "GET / HTTP/1.1", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", "GET / HTTP/1.1\r\n folded: a\r\n\r\n",
		"GET / HTTP/1.1\r\nno colon\r\n\r\n", "GET / HTTP/1.1\r\n: a\r\n\r\n", "GET / HTTP/1.1\r\nA : b\r\n\r\n", "GET / HTTP/1.1\r\nA_B: c\r\n\r\n",
		"GET / HTTP/1.1\r\nA: \x00\r\n\r\n", "GET / HTTP/1.1\r\nA: \xff\r\n\r\n", "GET / HTTP/1.1\r\nA: a\rb\r\n\r\n", "GET / HTTP/1.1\r\nA: a\nB: b\r\n\r\n", "GET /\x7f HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\ncontent-length: 0\r\n\r\n", "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "GET / HTTP/1.1\r\nTrailer: a\r\n\r\n", "GET / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n",
		"GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", maxFields+1) + "\r\n",
	} {
		if h, ok := Parse([]byte(s)); ok {
			t.Errorf("%q is taken for plain: %+v", s, h)
		}
	}
}

func TestHeadIsParsedInOnePiece(t *testing.T) {
	b := []byte(strings.Replace(handshake, "cookie: a=b\r\n", "", 1))
	// The head, the values, the hosts, and the map with its table.
	if n := testing.AllocsPerRun(100, func() { Parse(b) }); n > 5 {
		t.Errorf("%v allocations", n)
	}
}
