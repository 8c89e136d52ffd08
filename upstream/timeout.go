package upstream

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"sync"
	"time"
)

// A request in flight holds descriptors, so one whose client stalls must time out. How
// long an upstream takes to respond is not bounded, because of long polling.
const (
	// bodyTimeout bounds the time in which a client sends nothing of a body that is read.
	bodyTimeout = 30 * time.Second
	// bodyRate is the min average rate after that time, in bytes a second: a byte every
	// half minute would otherwise hold a connection to the game server forever.
	bodyRate = 1 << 10
	// WriteTimeout bounds the time in which a client accepts nothing of a response.
	WriteTimeout = time.Minute
)

// A clientBody is read with bodyTimeout. It records whether reading failed: then the
// failure is not the upstream's.
type clientBody struct {
	io.ReadCloser
	control *http.ResponseController

	mu     sync.Mutex
	began  time.Time // time of the first read
	size   int64     // bytes read
	over   bool      // read to its end
	left   bool      // the handler has returned: the connection serves another request
	broken error
}

type bodyKey struct{}

func newClientBody(r *http.Request, control *http.ResponseController) *clientBody {
	return &clientBody{ReadCloser: r.Body, control: control, over: r.Body == http.NoBody}
}

func (b *clientBody) Read(p []byte) (int, error) {
	b.begin()
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	b.size += int64(n)
	b.mu.Unlock()
	if err != nil {
		b.end(err)
	}
	return n, err
}

func (b *clientBody) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left {
		return
	}
	now := time.Now()
	if b.began.IsZero() {
		b.began = now
	}
	deadline := now.Add(bodyTimeout)
	if slowest := b.began.Add(bodyTimeout + time.Duration(b.size)*time.Second/bodyRate); slowest.Before(deadline) {
		deadline = slowest
	}
	b.control.SetReadDeadline(deadline)
}

// end records how the body ended. Later reads of the connection belong to the next
// request, and may take long.
func (b *clientBody) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != io.EOF:
		b.broken = err
	case !b.left:
		b.over = true
		b.control.SetReadDeadline(time.Time{})
	}
}

// leave is called when the handler returns. The transport may continue to read, and
// net/http reads the rest of the body before it serves the next request.
func (b *clientBody) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = true
	if !b.over && b.broken == nil {
		b.control.SetReadDeadline(time.Now().Add(bodyTimeout))
	}
}

// failed returns the HTTP status for a body that could not be read, else 0.
func (b *clientBody) failed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.broken == nil:
		return 0
	case errors.Is(b.broken, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout
	}
	return http.StatusBadRequest
}

// A timeoutWriter bounds each write of a response by WriteTimeout, however long the
// next one takes to arrive.
//
// An interim response (1xx) passes by the rules of the final one. ReverseProxy clears
// the header after it, and with it what the gateway had set.
type timeoutWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	set     http.Header // by the gateway, for the final answer
	http1   bool        // the client speaks HTTP/1
}

// WriteHeader implements http.ResponseWriter.
func (w *timeoutWriter) WriteHeader(status int) {
	h := w.Header()
	if status >= 100 && status < 200 {
		pass := passed(h, status, func(*fieldName) bool { return false })
		clear(h)
		maps.Copy(h, pass)
	} else {
		for name, values := range w.set {
			if _, ok := h[name]; !ok || name == "Connection" {
				h[name] = values
			}
		}
		if status == http.StatusUpgradeRequired && w.http1 {
			RequireUpgrade(h)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *timeoutWriter) Write(p []byte) (int, error) {
	defer w.bounded()()
	return w.ResponseWriter.Write(p)
}

// FlushError implements what http.ResponseController.Flush calls.
func (w *timeoutWriter) FlushError() error {
	defer w.bounded()()
	return w.control.Flush()
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *timeoutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *timeoutWriter) bounded() (done func()) {
	w.control.SetWriteDeadline(time.Now().Add(WriteTimeout))
	return func() { w.control.SetWriteDeadline(time.Time{}) }
}
