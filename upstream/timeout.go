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

// A request that has begun holds descriptors, so that one whose client stops in
// its midst must not last for ever. How long an upstream takes to answer is not
// bounded: that is what long polling is.
const (
	// bodyPatience is how long a client may send nothing of a body that is read,
	bodyPatience = 30 * time.Second
	// and bodyRate, in bytes a second, how slowly it may send after that time: a byte
	// every half minute would hold a connection to the game server for ever.
	bodyRate = 1 << 10
	// AnswerPatience is how long it may take nothing of what it is sent.
	AnswerPatience = time.Minute
)

// A clientBody is read with bodyPatience. It notes whether it could not be read
// to its end: then the failure is not the upstream's.
type clientBody struct {
	io.ReadCloser
	control *http.ResponseController

	mu     sync.Mutex
	began  time.Time // when it was first read
	size   int64     // bytes read
	over   bool      // read to its end
	left   bool      // the handler has returned: the connection is another request's
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
	deadline := now.Add(bodyPatience)
	if slowest := b.began.Add(bodyPatience + time.Duration(b.size)*time.Second/bodyRate); slowest.Before(deadline) {
		deadline = slowest
	}
	b.control.SetReadDeadline(deadline)
}

// end notes how the body has ended. What is read behind its end, while it is
// answered, is not the body's, and may be long in coming.
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

// leave is called when the handler returns. The transport may read on; and what
// is left of the body net/http reads, before it answers or serves the next
// request.
func (b *clientBody) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = true
	if !b.over && b.broken == nil {
		b.control.SetReadDeadline(time.Now().Add(bodyPatience))
	}
}

// failed is the HTTP status for a body that broke off, 0 where it did not.
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

// A patientWriter gives a client AnswerPatience to take each piece of an answer,
// however long the next one is in coming.
//
// An interim answer of the upstream's (1xx) passes by the rules of the final one.
// ReverseProxy clears the header behind it, and with it what the gateway had set.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	set     http.Header // by the gateway, for the final answer
}

// WriteHeader implements http.ResponseWriter.
func (w *patientWriter) WriteHeader(status int) {
	h := w.Header()
	if status >= 100 && status < 200 {
		pass := passed(h, func(string) bool { return false })
		clear(h)
		maps.Copy(h, pass)
	} else {
		for name, values := range w.set {
			if _, ok := h[name]; !ok || name == "Connection" {
				h[name] = values
			}
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *patientWriter) Write(p []byte) (int, error) {
	defer w.bounded()()
	return w.ResponseWriter.Write(p)
}

// FlushError is what an http.ResponseController flushes by.
func (w *patientWriter) FlushError() error {
	defer w.bounded()()
	return w.control.Flush()
}

// Unwrap lets an http.ResponseController reach the rest.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *patientWriter) bounded() (done func()) {
	w.control.SetWriteDeadline(time.Now().Add(AnswerPatience))
	return func() { w.control.SetWriteDeadline(time.Time{}) }
}
