package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

const (
	testKey  = "dGhlIHNhbXBsZSBub25jZQ=="     // RFC 6455 section 1.3
	testGood = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" // its Sec-WebSocket-Accept
	line101  = "HTTP/1.1 101 Switching Protocols\r\n"
	upgrade  = "Upgrade: websocket\r\n"
	connect  = "Connection: Upgrade\r\n"
	accept   = "Sec-WebSocket-Accept: " + testGood + "\r\n"
	good     = line101 + upgrade + connect + accept

	headLimit = 64 << 10
)

// T16: an invalid answer never becomes a tunnel. The canary is where an error might quote
// it.
var badAnswers = []struct {
	name, raw string
	want      error
}{
	{"nothing", "", errNoAnswer},
	{"one byte", "H", errNoAnswer},
	{"cut in the status line", "HTTP/1.1 101 canary", errNoAnswer},
	{"cut in the head", good, errNoAnswer},
	{"cut in a line", good + "X: canary", errNoAnswer},
	{"another protocol", "SSH-2.0-canary\r\n\r\n", errMalformed},
	{"a game's own bytes", "\x00\x01\x02canary\r\n\r\n", errMalformed},
	{"a frame at once", "\x81\x06canary", errNoAnswer},
	{"no status", "HTTP/1.1\r\n\r\n", errMalformed},
	{"status of two digits", "HTTP/1.1 10 canary\r\n\r\n", errMalformed},
	{"status of four digits", "HTTP/1.1 1010 canary\r\n\r\n", errMalformed},
	{"status no number", "HTTP/1.1 1x1 canary\r\n\r\n", errMalformed},
	{"negative status", "HTTP/1.1 -10 canary\r\n\r\n", errMalformed},
	{"status below 100", "HTTP/1.1 099 canary\r\n\r\n", errStatus},
	{"HTTP/2 in text", "HTTP/2.0 101 canary\r\n" + upgrade + connect + accept + "\r\n", errMalformed},
	{"HTTP/0.9", "HTTP/0.9 101 canary\r\n" + upgrade + connect + accept + "\r\n", errMalformed},
	{"a request", "GET /canary HTTP/1.1\r\n\r\n", errMalformed},
	{"line without colon", good + "canary\r\n\r\n", errMalformed},
	{"blank in a name", good + "can ary: x\r\n\r\n", errMalformed},
	{"blank before the colon", good + "Canary : x\r\n\r\n", errMalformed},
	{"NUL in a value", good + "X: can\x00ary\r\n\r\n", errMalformed},
	{"CR in a value", good + "X: can\rary\r\n\r\n", errMalformed},
	{"head begins with a fold", line101 + " canary\r\n\r\n", errMalformed},
	{"101 of HTTP/1.0", "HTTP/1.0 101 Switching Protocols\r\n" + upgrade + connect + accept + "\r\n", errOldHTTP},
	{"no Upgrade", line101 + connect + accept + "\r\n", errUpgrade},
	{"Upgrade to something else", line101 + "Upgrade: h2c\r\n" + connect + accept + "\r\n", errUpgrade},
	{"Upgrade with a suffix", line101 + "Upgrade: websockets\r\n" + connect + accept + "\r\n", errUpgrade},
	{"no Connection", line101 + upgrade + accept + "\r\n", errConnection},
	{"Connection: close", line101 + upgrade + "Connection: close\r\n" + accept + "\r\n", errConnection},
	{"no Accept", line101 + upgrade + connect + "\r\n", errAccept},
	{"empty Accept", line101 + upgrade + connect + "Sec-WebSocket-Accept:\r\n\r\n", errAccept},
	{"the key as Accept", line101 + upgrade + connect + "Sec-WebSocket-Accept: " + testKey + "\r\n\r\n", errAccept},
	{"Accept in lower case", line101 + upgrade + connect + strings.ToLower(accept) + "\r\n", errAccept},
	{"Accept twice", good + accept + "\r\n", errAccept},
	{"a second, wrong Accept", good + "Sec-WebSocket-Accept: canary\r\n\r\n", errAccept},
	{"Accept in a list", line101 + upgrade + connect + "Sec-WebSocket-Accept: " + testGood + ", x\r\n\r\n", errAccept},
	{"extension unasked", good + "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n", errExtension},
	{"second extension line", good + "Sec-WebSocket-Extensions:\r\nSec-WebSocket-Extensions: x-canary\r\n\r\n", errExtension},
	{"subprotocol unasked", good + "Sec-WebSocket-Protocol: canary\r\n\r\n", errProtocol},
	{"head too long", good + "X: " + strings.Repeat("canary ", headLimit/7) + "\r\n\r\n", errHeadLength},
	{"status line too long", "HTTP/1.1 101 " + strings.Repeat("canary ", headLimit/7+1), errHeadLength},
	{"endless interim answers", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInterim+1) + good + "\r\n", errInterim},
	{"long interim answers", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("l", headLimit/4)+"\r\n\r\n", 4) + good + "\r\n", errHeadLength},
	{"interim answer, then the end", "HTTP/1.1 102 Processing\r\n\r\n", errNoAnswer},
	{"refusal of bad length", "HTTP/1.1 403 canary\r\nContent-Length: canary\r\n\r\n", errMalformed},
	{"refusal of two lengths", "HTTP/1.1 403 canary\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", errMalformed},
	{"refusal of unknown coding", "HTTP/1.1 403 canary\r\nTransfer-Encoding: canary\r\n\r\n", errMalformed},
}

// However it arrives: whole or byte by byte.
func TestBadAnswerIs502AndItsConnectionIsClosed(t *testing.T) {
	for _, c := range badAnswers {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := readAnswer(iotest.OneByteReader(strings.NewReader(c.raw)), testKey, []string{"chat"}); !errors.Is(err, c.want) {
				t.Errorf("one byte at a time: %v, want %v", err, c.want)
			}
			g := newGame(t, "ws://game", func(conn net.Conn, r *http.Request) {
				io.WriteString(conn, strings.ReplaceAll(c.raw, testGood, acceptFor(r.Header.Get("Sec-WebSocket-Key"))))
			})
			conn, err := g.Dial(t.Context(), Request{Path: "/", Protocols: []string{"chat"}})
			if conn != nil || Status(err) != http.StatusBadGateway || kindOf(err) != BadAnswer || !errors.Is(err, c.want) {
				t.Fatalf("%v, status %d, %v; want 502 bad_answer, %v", conn, Status(err), err, c.want)
			}
			if text := err.Error(); strings.Contains(text, "anary") || len(text) > 200 {
				t.Errorf("the error quotes the upstream: %.300q", text)
			}
			g.wantClosed(t)
		})
	}
}

func TestGoodAnswersInManySpellings(t *testing.T) {
	for _, raw := range []string{
		good + "\r\n",
		"HTTP/1.1 101\r\n" + upgrade + connect + accept + "\r\n",
		"HTTP/1.1 101 \r\n" + upgrade + connect + accept + "\r\n",
		"HTTP/1.1 101 Fine\r\nUPGRADE: WebSocket\r\nconnection: upgrade\r\nsec-websocket-accept:   " + testGood + "  \r\n\r\n",
		line101 + upgrade + "Connection: keep-alive, Upgrade\r\n" + accept + "\r\n",
		line101 + upgrade + "Connection: keep-alive\r\nConnection: UPGRADE\r\n" + accept + "\r\n",
		line101 + upgrade + "Connection: Upgrade, close\r\n" + accept + "\r\n",
		good + "Connection: close\r\n\r\n",
		strings.ReplaceAll(line101+upgrade+"Connection: close,\r\n upgrade\r\n"+accept, "\r\n", "\n") + "\n",
		good + "Content-Length: 7\r\nContent-Length: x\r\n\r\n", // a 101 has no body
		strings.ReplaceAll(good, "\r\n", "\n") + "\n",
		good + "Sec-WebSocket-Extensions:\r\n\r\n",
		good + "Content-Length: 0\r\n\r\n",
		good + "Transfer-Encoding: chunked\r\n\r\n",
		good + "X: a\r\n b\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + good + "\r\n",
		good + "X: " + strings.Repeat("x", headLimit-len(good)-7) + "\r\n\r\n", // exactly the limit
	} {
		for _, src := range []io.Reader{strings.NewReader(raw), iotest.OneByteReader(strings.NewReader(raw))} {
			conn, refusal, err := readAnswer(src, testKey, nil)
			if err != nil || refusal != nil || conn.Protocol != "" || len(conn.Early) != 0 {
				t.Errorf("%.200q: %+v, %v, %v", raw, conn, refusal, err)
			}
		}
	}
}

// T18: what the upstream may choose, given what it was offered.
func TestSubprotocolMatrix(t *testing.T) {
	none, chat, two := []string(nil), []string{"chat"}, []string{"chat", "superchat"}
	const line = "Sec-WebSocket-Protocol: "
	for _, c := range []struct {
		offered []string
		lines   string
		want    string
		bad     bool
	}{
		{none, "", "", false}, {none, line + "\r\n", "", true}, {none, line + "chat\r\n", "", true},
		{chat, "", "", false}, {chat, line + "chat\r\n", "chat", false}, {chat, line + " chat\t\r\n", "chat", false},
		{chat, line + "Chat\r\n", "", true}, {chat, line + "superchat\r\n", "", true}, {chat, line + "\r\n", "", true},
		{two, line + "superchat\r\n", "superchat", false}, {two, line + "chat, superchat\r\n", "", true}, {two, line + "chat\r\n" + line + "superchat\r\n", "", true},
		{chat, line + "chat\r\n" + line + "chat\r\n", "", true}, {chat, line + "chat,\r\n", "", true}, {chat, line + "reseat.v1\r\n", "", true},
		{[]string{"chat", "chat"}, line + "chat\r\n", "chat", false},
	} {
		conn, _, err := readAnswer(strings.NewReader(good+c.lines+"\r\n"), testKey, c.offered)
		switch {
		case c.bad && !errors.Is(err, errProtocol), !c.bad && err != nil:
			t.Errorf("offered %q, answered %q: %v", c.offered, c.lines, err)
		case err == nil && conn.Protocol != c.want:
			t.Errorf("offered %q, answered %q: took %q, want %q", c.offered, c.lines, conn.Protocol, c.want)
		}
	}
}

// An outcome is what an answer was read as. behind has what the connection goes on with.
type outcome struct {
	conn    *Conn
	refusal *Refusal
	err     error
	behind  string
}

func outcomeOf(src io.Reader) (o outcome) {
	o.conn, o.refusal, o.err = readAnswer(src, testKey, []string{"chat"})
	if o.conn != nil {
		rest, _ := io.ReadAll(src)
		o.behind, o.conn.Early = string(o.conn.Early)+string(rest), nil
	}
	return o
}

// An answer is a connection, a refusal or an error, and the same in however many pieces it arrives. A
// connection is one by net/http's reading too, which differs in the length of a 101's body and a Connection
// that contains close alone. What reaches the client is valid.
func FuzzAnswer(f *testing.F) {
	for _, c := range badAnswers {
		if len(c.raw) < 4096 {
			f.Add([]byte(c.raw))
		}
	}
	for _, s := range []string{
		good + "\r\n", good + "Sec-WebSocket-Protocol: chat\r\nSet-Cookie: a=b\r\nset-cookie:  c=d \r\nReseat-Grace: 2m\r\n\r\n\x81\x05hello",
		good + "Content-Length: 0\r\n\r\n", good + "Transfer-Encoding: chunked\r\n\r\n", good + "Connection: close\r\n\r\n", line101 + upgrade + "Connection: Upgrade, close\r\n" + accept + "\r\n",
		good + "X:\r\n\r\n", good + "X: a\r\n folded\r\n\r\n", good + "Host: a\r\n\r\n", "HTTP/1.1 101  x\r\n:a\r\n\r\n", "HTTP/1.1 101x\r\n\r\n", "HTTP/1.1\t101\r\n\r\n",
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.0 302 Found\r\nLocation: /x\r\n\r\nuntil the end",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		whole := outcomeOf(bytes.NewReader(raw))
		pieces := outcomeOf(iotest.OneByteReader(bytes.NewReader(raw)))
		if !reflect.DeepEqual(pieces.conn, whole.conn) || (pieces.refusal == nil) != (whole.refusal == nil) || pieces.behind != whole.behind || !errors.Is(pieces.err, whole.err) {
			t.Errorf("%q is %+v, and byte for byte %+v", raw, whole, pieces)
		}
		if (whole.conn == nil) == (whole.refusal == nil && whole.err == nil) || whole.refusal != nil && whole.err != nil {
			t.Fatalf("%+v: want one of conn, refusal and error", whole)
		}
		switch {
		case whole.conn != nil:
			checkFuzzedConn(t, raw, whole)
		case whole.refusal != nil:
			checkFuzzedRefusal(t, whole.refusal)
		case len(whole.err.Error()) > 100:
			t.Errorf("a long error: %q", whole.err)
		}
		br := bufio.NewReader(bytes.NewReader(raw))
		resp, err := http.ReadResponse(br, nil)
		for err == nil && resp.StatusCode == http.StatusContinue {
			resp, err = http.ReadResponse(br, nil)
		}
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Close || resp.ProtoMajor != 1 || errors.Is(whole.err, errInterim) {
			return
		}
		if _, e := checkSwitch(resp, testKey, []string{"chat"}); (e == nil) != (whole.conn != nil) && namesAreTokens(resp.Header) {
			t.Errorf("%q: %v, and %v by net/http", raw, whole.err, e)
		}
	})
}

// checkFuzzedConn: a tunnel has the right Accept, and no byte after the head is lost.
func checkFuzzedConn(t *testing.T, raw []byte, o outcome) {
	head, ok := strings.CutSuffix(string(raw), o.behind)
	if !ok || !strings.Contains(head, testGood) || !strings.HasSuffix(head, "\n") {
		t.Errorf("accepted the head %q, and goes on with %q", head, o.behind)
	}
	pass, _ := AnswerHeader(o.conn.Header)
	checkPassed(t, pass, http.StatusSwitchingProtocols)
}

// checkFuzzedRefusal: any refusal can be written to a client, or is truncated with a panic.
func checkFuzzedRefusal(t *testing.T, refusal *Refusal) {
	if refusal.Status < 200 || refusal.Status > 999 {
		t.Errorf("a refusal with status %d", refusal.Status)
	}
	w := newRecorder()
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
		checkPassed(t, w.passed, refusal.Status)
	}()
	WriteRefusal(w, refusal)
}

// checkPassed: headers that reach a client are valid, and meant for it.
func checkPassed(t *testing.T, h http.Header, status int) {
	for name, values := range h {
		needed := status == http.StatusUpgradeRequired && name == "Upgrade" || status == http.StatusProxyAuthRequired && name == "Proxy-Authenticate"
		if n := newFieldName(name); n.reseat || n.hopByHop && !needed || !n.token {
			t.Errorf("the header %q passes", name)
		}
		if v := fmt.Sprint(values); strings.ContainsAny(v, "\r\n\x00") {
			t.Errorf("%s passes with the value %q", name, v)
		}
	}
}

// A recorder is a ResponseWriter that accepts anything, and does not recover from panics.
type recorder struct {
	header, passed http.Header
	status         int
	body           bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: http.Header{}} }

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.passed = r.header.Clone()
	delete(r.passed, "Connection") // the gateway's own
}

// The buffers of answers are reused.
func TestEarlyBytesOutliveTheNextAnswer(t *testing.T) {
	var conns [8]*Conn
	read := func(i int) *Conn {
		conn, _, err := readAnswer(strings.NewReader(good+"\r\n"+strings.Repeat(string(rune('a'+i)), 64)), testKey, nil)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for i := range conns {
		conns[i] = read(i)
	}
	for i, conn := range conns {
		if got, want := string(conn.Early), strings.Repeat(string(rune('a'+i)), 64); got != want {
			t.Errorf("answer %d: early bytes %q, want %q", i, got, want)
		}
	}
}
