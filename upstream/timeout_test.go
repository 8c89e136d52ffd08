package upstream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A slow body passes; a stalled one times out, and its upstream connection is closed.
func TestStalledRequestBodyTimesOutAfterThirtySeconds(t *testing.T) {
	ended := make(chan error, 1)
	proxied(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		w.Write(b)
		ended <- err
	}, func(t *testing.T, r *rig) {
		const head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"
		conn, br := r.raw(t, head)
		for range 5 {
			time.Sleep(5 * time.Second)
			io.WriteString(conn, "x")
		}
		r.wantReply(t, br, 200, "xxxxx")
		if err := <-ended; err != nil {
			t.Error(err)
		}

		conn, br = r.raw(t, head+"xx")
		began := time.Now()
		r.wantReply(t, br, http.StatusRequestTimeout, "the request body could not be read\n")
		if d := time.Since(began); d != bodyTimeout {
			t.Errorf("timed out after %v", d)
		}
		if err := <-ended; err == nil {
			t.Error("the upstream was given a whole body")
		}
		if _, err := io.Copy(io.Discard, br); err != nil {
			t.Errorf("the connection ended with %v", err)
		}
		conn.Close()
		r.wantLog(t) // not the upstream's fault
	})
}

// An upstream may answer without reading the body: net/http reads the rest of it before it
// answers, and would wait forever.
func TestDiscardedBodyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipeListener()
		srv := &http.Server{ErrorLog: discardLog, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			newClientBody(r, http.NewResponseController(w)).leave()
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		})}
		go srv.Serve(ln)
		defer srv.Close()
		conn, err := ln.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || time.Since(began) != bodyTimeout {
			t.Errorf("%v, %v after %v", resp, err, time.Since(began))
		}
	})
}

// Only the client is timed, not the upstream: long polling may take hours.
func TestSlowUpstreamResponseIsAllowed(t *testing.T) {
	proxied(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		for range 3 {
			time.Sleep(5 * time.Minute)
			io.WriteString(w, "tick ")
			http.NewResponseController(w).Flush()
		}
		time.Sleep(5 * time.Minute)
	}, func(t *testing.T, r *rig) {
		conn, br := r.raw(t, "")
		for range 2 { // the first request's deadline must not affect the second
			io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
			r.wantReply(t, br, 200, "tick tick tick ")
			time.Sleep(90 * time.Second)
		}
		conn.Close()
	})
}

func TestUnreadResponseTimesOutAfterAMinute(t *testing.T) {
	gone := make(chan time.Time, 1)
	proxied(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		time.Sleep(time.Second) // the head has been sent
		for piece := bytes.Repeat([]byte("x"), 32<<10); ; {
			if _, err := w.Write(piece); err != nil {
				gone <- time.Now()
				return
			}
		}
	}, func(t *testing.T, r *rig) {
		began := time.Now()
		conn, br := r.raw(t, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 { // read slowly
			time.Sleep(50 * time.Second)
			if _, err := io.ReadFull(resp.Body, make([]byte, 64<<10)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		select {
		case at := <-gone:
			if d := at.Sub(began); d < 500*time.Second || d > 500*time.Second+WriteTimeout {
				t.Errorf("timed out after %v, want a minute after 500s at the latest", d)
			}
		default:
			t.Error("never given up")
		}
		conn.Close()
		synctest.Wait()
		if strings.Contains(r.log.String(), "upstream.request_failed") {
			t.Errorf("the upstream is blamed: %s", r.log.String())
		}
	})
}

// A byte now and then would hold a connection to the game server forever.
func TestTricklingBodyTimesOut(t *testing.T) {
	ended := make(chan error, 1)
	proxied(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		ended <- err
	}, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			piece int // bytes every ten seconds
			whole bool
		}{{1, false}, {5 << 10, false}, {12 << 10, true}} {
			const pieces = 30
			conn, br := r.raw(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", pieces*c.piece))
			var sender sync.WaitGroup
			sender.Go(func() {
				for range pieces {
					if _, err := io.WriteString(conn, strings.Repeat("x", c.piece)); err != nil {
						return
					}
					time.Sleep(10 * time.Second)
				}
			})
			resp, err := http.ReadResponse(br, nil)
			sender.Wait()
			if err != nil || (resp.StatusCode == http.StatusOK) != c.whole {
				t.Errorf("%d bytes every ten seconds: %v %v", c.piece, resp, err)
			}
			if err := <-ended; (err == nil) != c.whole {
				t.Errorf("%d bytes every ten seconds: the game server has %v", c.piece, err)
			}
		}
	})
}

// ReverseProxy clears the header after an interim answer, including what the gateway has set
// for the final one. Connection is set only by the gateway.
func TestInterimAnswerKeepsTheGatewaysHeaders(t *testing.T) {
	rec := httptest.NewRecorder()
	w := &timeoutWriter{rec, http.NewResponseController(rec), http.Header{"Connection": {"close"}, "X-Gateway": {"1"}}, true}
	w.Header().Set("Reseat-Group", "g")
	w.WriteHeader(http.StatusEarlyHints)
	if w.Header().Get("Reseat-Group") != "" {
		t.Errorf("an interim answer passes %v", w.Header())
	}
	clear(w.Header())
	w.Header().Set("Connection", "keep-alive")
	w.WriteHeader(http.StatusOK)
	if h := w.Header(); h.Get("Connection") != "close" || h.Get("X-Gateway") != "1" {
		t.Errorf("the final answer has %v", h)
	}
}
