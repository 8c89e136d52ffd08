package upstream

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A rig is a client, a gateway and a game server in one bubble, connected by pipes.
type rig struct {
	*http.Client
	front *pipeListener
	proxy *Proxy
	log   lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type dialFunc func(ctx context.Context) (net.Conn, error)

// proxied runs test with a proxy for a game server that runs back. The bubble fails the
// test if it leaks a goroutine.
func proxied(t *testing.T, back http.HandlerFunc, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ln := newPipeListener()
		srv := &http.Server{Handler: back, ErrorLog: discardLog}
		go srv.Serve(ln)
		t.Cleanup(func() { srv.Close() })
		test(t, newRig(t, ln.dial))
	})
}

// proxiedTo is proxied with a game server that dial connects to.
func proxiedTo(t *testing.T, dial dialFunc, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t, dial)) })
}

func newRig(t *testing.T, dial dialFunc) *rig {
	target := &Target{URL: mustParse(t, "ws://game:9000/base")}
	target.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	r := &rig{front: newPipeListener()}
	r.proxy = target.Proxy(ProxyOptions{
		Log:  slog.New(slog.NewTextHandler(&r.log, nil)),
		Edit: func(ask *Request) { DropCookies(ask.Header, func(n string) bool { return n == "ours" }) },
	})
	t.Cleanup(r.proxy.Close)
	srv := &http.Server{ErrorLog: discardLog, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.RemoteAddr = "192.0.2.7:5000"
		r.proxy.ServeHTTP(w, req)
	})}
	go srv.Serve(r.front)
	t.Cleanup(func() { srv.Close() })
	tr := &http.Transport{
		DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return r.front.dial(ctx) },
		DisableCompression:    true,
		ExpectContinueTimeout: time.Hour,
	}
	t.Cleanup(tr.CloseIdleConnections)
	r.Client = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return r
}

// raw sends head on a new connection, and returns the connection.
func (r *rig) raw(t *testing.T, head string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := r.front.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// ask sends head on a new connection, and checks the answer.
func (r *rig) ask(t *testing.T, head string, status int, body string) {
	t.Helper()
	conn, br := r.raw(t, head)
	r.wantReply(t, br, status, body)
	conn.Close()
}

// wantReply reads the next answer that is not an interim one, and checks it.
func (r *rig) wantReply(t *testing.T, br *bufio.Reader, status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(br, nil)
	for err == nil && resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(br, nil)
	}
	r.wantAnswer(t, resp, err, status, body)
}

// wantAnswer reads an answer's body, and checks it.
func (r *rig) wantAnswer(t *testing.T, resp *http.Response, err error, status int, body string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); resp.StatusCode != status || string(got) != body || err != nil {
		t.Errorf("%d %.200q %v, want %d %.200q", resp.StatusCode, got, err, status, body)
	}
}

// wantLog checks that the log has one line that contains all of want, or is empty.
func (r *rig) wantLog(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	got := r.log.String()
	if lines := strings.Count(got, "\n"); lines != min(len(want), 1) {
		t.Errorf("%d log lines, want %d: %s", lines, min(len(want), 1), got)
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("the log does not say %q: %s", w, got)
		}
	}
	if strings.Contains(got, canary) {
		t.Errorf("a secret is in the log: %s", got)
	}
}

// pipeTo returns a dial function that hands the server's end to serve.
func pipeTo(serve func(conn net.Conn, req *http.Request)) dialFunc {
	return func(context.Context) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			if req, err := http.ReadRequest(bufio.NewReader(server)); err == nil {
				serve(server, req)
			}
		}()
		return client, nil
	}
}
