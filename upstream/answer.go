package upstream

import (
	"bufio"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

const (
	// maxHead bounds the head of an answer, interim answers included, in bytes.
	maxHead = 64 << 10
	// maxInterim bounds the interim answers (1xx) before the final one.
	maxInterim = 8
)

// Errors about a bad response. They never contain bytes of the upstream.
var (
	errNoAnswer   = errors.New("connection closed before the answer was complete")
	errMalformed  = errors.New("answer is not HTTP/1")
	errHeadLength = fmt.Errorf("head of the answer is longer than %d bytes", maxHead)
	errInterim    = fmt.Errorf("more than %d interim answers", maxInterim)
	errStatus     = errors.New("answer has no status from 100 to 999")
	errOldHTTP    = errors.New("answer 101 is not HTTP/1.1")
	errUpgrade    = errors.New("answer 101 lacks Upgrade: websocket")
	errConnection = errors.New("answer 101 lacks Connection: Upgrade")
	errAccept     = errors.New("answer 101 has a wrong Sec-WebSocket-Accept")
	errExtension  = errors.New("answer 101 names an extension, none was offered")
	errProtocol   = errors.New("answer 101 names a subprotocol that was not offered")
)

// readAnswer reads the upstream's answer from src. It returns exactly one of: a Conn
// without its net.Conn, a Refusal whose Body continues to read src and cannot be closed, or
// an error, which is either src's own or one of the above.
func readAnswer(src io.Reader, key string, offered []string) (*Conn, *Refusal, error) {
	r := headReaders.Get().(*headReader)
	r.reset(src)
	resp, err := r.final()
	if err != nil {
		r.release()
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		r.left = math.MaxInt64
		return nil, &Refusal{
			Status:        resp.StatusCode,
			Header:        resp.Header,
			ContentLength: resp.ContentLength,
			Body:          io.NopCloser(resp.Body),
		}, nil // the reader stays with the body
	}
	defer r.release()
	protocol, err := checkSwitch(resp, key, offered)
	if err != nil {
		return nil, nil, err
	}
	early, _ := r.buf.Peek(r.buf.Buffered())
	return &Conn{Protocol: strings.Clone(protocol), Header: resp.Header, Early: slices.Clone(early)}, nil, nil
}

// checkSwitch checks a 101 answer after RFC 6455 section 4.1 and returns the
// subprotocol that it chose.
func checkSwitch(resp *http.Response, key string, offered []string) (string, error) {
	h := resp.Header
	accept := h["Sec-Websocket-Accept"]
	chosen := h["Sec-Websocket-Protocol"]
	switch {
	case !resp.ProtoAtLeast(1, 1):
		return "", errOldHTTP
	case !httpguts.HeaderValuesContainsToken(h["Upgrade"], "websocket"):
		return "", errUpgrade
	case !httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade"):
		return "", errConnection
	case len(accept) != 1 || subtle.ConstantTimeCompare([]byte(accept[0]), []byte(acceptFor(key))) != 1:
		return "", errAccept
	case slices.ContainsFunc(h["Sec-Websocket-Extensions"], func(v string) bool { return v != "" }):
		return "", errExtension
	case len(chosen) == 0:
		return "", nil
	case len(chosen) > 1 || !slices.Contains(offered, chosen[0]):
		return "", errProtocol
	}
	return chosen[0], nil
}

// acceptFor returns the Sec-WebSocket-Accept for a key: RFC 6455 section 4.2.2.
func acceptFor(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// A headReader reads the head of one answer through a pooled buffer. It records the error
// of its source: a parser's error does not distinguish a broken connection from a malformed
// answer, and may quote the upstream.
type headReader struct {
	src  io.Reader
	left int64 // bytes that may still be read
	err  error // the first error of src, or errHeadLength
	buf  *bufio.Reader
}

var headReaders = sync.Pool{New: func() any {
	r := new(headReader)
	r.buf = bufio.NewReaderSize(r, 4096)
	return r
}}

func (r *headReader) reset(src io.Reader) {
	r.src, r.left, r.err = src, maxHead, nil
	r.buf.Reset(r)
}

func (r *headReader) release() {
	r.reset(nil)
	headReaders.Put(r)
}

// Read reads from the source while the limit lasts.
func (r *headReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.left == 0 {
		r.err = errHeadLength
		return 0, r.err
	}
	n, err := r.src.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	r.err = err
	return n, err
}

// final reads heads until one is not an interim answer: RFC 9110 section 15.2.
func (r *headReader) final() (*http.Response, error) {
	for range maxInterim + 1 {
		resp, err := r.next()
		switch {
		case err != nil:
			return nil, r.reason()
		case resp.ProtoMajor != 1 || !namesAreTokens(resp.Header):
			return nil, errMalformed
		case resp.StatusCode < 100:
			return nil, errStatus
		case resp.StatusCode == http.StatusSwitchingProtocols || resp.StatusCode >= 200:
			return resp, nil
		}
	}
	return nil, errInterim
}

// switches begins a 101 of HTTP/1.1.
const switches = "HTTP/1.1 101"

// next reads a head. Of a 101, http.ReadResponse would drop the Connection that contains close, and
// read a body's length, which no 101 has: RFC 9110 section 15.2.
func (r *headReader) next() (*http.Response, error) {
	if b, _ := r.buf.Peek(len(switches)); string(b) != switches {
		return http.ReadResponse(r.buf, nil)
	}
	text := textproto.NewReader(r.buf)
	line, err := text.ReadLine()
	if err != nil || line != switches && !strings.HasPrefix(line, switches+" ") {
		return nil, errMalformed
	}
	header, err := text.ReadMIMEHeader()
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header(header)}, err
}

// namesAreTokens reports whether every name in h is a token. RFC 9112 section 5.1 forbids
// blanks in it and after it; net/http accepts them.
func namesAreTokens(h http.Header) bool {
	for name := range h {
		if !httpguts.ValidHeaderFieldName(name) {
			return false
		}
	}
	return true
}

// reason returns why there is no head.
func (r *headReader) reason() error {
	switch {
	case r.err == nil:
		return errMalformed
	case errors.Is(r.err, io.EOF):
		return errNoAnswer
	default:
		return r.err
	}
}
