//go:build linux

package listen

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
)

var (
	// theLoop is the event loop that connections are accepted for; nil: they are those of package net.
	theLoop *epoll.Loop
	// alone says that the server parses all requests itself.
	alone bool
)

func accepted(fd int, local, peer net.Addr) (net.Conn, error) {
	c, err := theLoop.Accepted(fd, local, peer)
	if err != nil {
		return nil, err
	}
	return c, nil
}

type stopwatch struct{ began time.Time }

func (s stopwatch) Now() session.Time { return session.Time(time.Since(s.began)) + 1 }

// withLoop has the rest of the test accept connections for an event loop.
func withLoop(t *testing.T) {
	t.Helper()
	loop, err := epoll.Start(stopwatch{time.Now()}, true)
	if err != nil {
		t.Fatal(err)
	}
	theLoop = loop
	t.Cleanup(func() {
		theLoop = nil
		loop.Close()
		loop.Wait()
	})
}

func TestConnectionsOfAnEventLoopBehaveTheSame(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"HalfRequestIsServedAfterThaw":                     TestHalfRequestIsServedAfterThaw,
		"HalfRequestIsServedByTheNextProcessOnce":          TestHalfRequestIsServedByTheNextProcessOnce,
		"KeptAliveConnectionMovesBetweenRequests":          TestKeptAliveConnectionMovesBetweenRequests,
		"ConnectionThatHasSentMoreThanARequestStays":       TestConnectionThatHasSentMoreThanARequestStays,
		"FreezeDoesNotTruncateAnAnswer":                    TestFreezeDoesNotTruncateAnAnswer,
		"FrozenConnectionKeepsItsDescriptor":               TestFrozenConnectionKeepsItsDescriptor,
		"ClosedConnectionIsNotFrozen":                      TestClosedConnectionIsNotFrozen,
		"DeadlineEndsReadOfThawedConnection":               TestDeadlineEndsReadOfThawedConnection,
		"WaitingReadEndsWhenTheConnectionMoves":            TestWaitingReadEndsWhenTheConnectionMoves,
		"PausedListenerLeavesClientsToTheQueueOfTheSystem": TestPausedListenerLeavesClientsToTheQueueOfTheSystem,
		"ClosedListenerEndsAcceptWhilePaused":              TestClosedListenerEndsAcceptWhilePaused,
		"InheritedListenerGoesOn":                          TestInheritedListenerGoesOn,
	} {
		t.Run(name, func(t *testing.T) {
			withLoop(t)
			test(t)
		})
	}
}

// answers are what handlers of a process do, by path.
var answers = map[string]http.HandlerFunc{
	"/refused": func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute))
		h.Set("Retry-After", "5")
		http.Error(w, "not now", http.StatusServiceUnavailable)
	},
	"/closed": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusForbidden)
		w.Write(bytes.Repeat([]byte("x"), 10_000))
	},
	"/nothing": func(http.ResponseWriter, *http.Request) {},
	"/nobody":  func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) },
	"/flushed": func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "a")
		http.NewResponseController(w).Flush()
		io.WriteString(w, "b")
	},
	"/truncated": func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "a")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	"/aborted": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"/echo":    echo,
}

func echo(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	early, _ := rw.Reader.Peek(rw.Reader.Buffered())
	conn, rest := conn.(interface{ Unwrap() (net.Conn, []byte) }).Unwrap()
	defer conn.Close()
	fmt.Fprintf(conn, "%s%s", early, rest)
	io.Copy(conn, conn)
}

func handshakeOf(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: game.example:8080\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
}

// onBoth runs test for connections of package net and for those of an event loop.
func onBoth(t *testing.T, test func(t *testing.T)) {
	t.Run("net", test)
	t.Run("loop", func(t *testing.T) {
		withLoop(t)
		test(t)
	})
}

// exchange sends a handshake, then more, and returns everything that comes back until the
// connection is closed.
func exchange(t *testing.T, p *process, path, more string) string {
	t.Helper()
	c := call(t, p)
	c.send(handshakeOf(path))
	if more != "" {
		time.Sleep(10 * time.Millisecond) // often in a segment of its own; either is good
		c.send(more)
	}
	c.CloseWrite()
	all, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	var kept []string
	for line := range strings.SplitSeq(string(all), "\r\n") {
		if !strings.HasPrefix(line, "Date:") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\r\n")
}

// wantConns waits until n connections are tracked.
func (p *process) wantConns(n int) {
	p.t.Helper()
	await(p.t, fmt.Sprint(n, " connections are tracked"), func() bool {
		conns, _ := p.tracker.Counts()
		return conns == n
	})
}

// Whatever a handler answers, the client gets the same as from net/http alone.
func TestHandshakeIsAnsweredAsByTheServerAlone(t *testing.T) {
	for path := range answers {
		more := ""
		if path == "/echo" {
			more = "what it says"
		}
		alone = true
		want := exchange(t, newProcess(t, nil), path, more)
		alone = false
		t.Run(path, func(t *testing.T) {
			onBoth(t, func(t *testing.T) {
				p := newProcess(t, nil)
				if got := exchange(t, p, path, more); got != want {
					t.Errorf("%q, want %q", got, want)
				}
				if _, hijacked := p.states.Load(http.StateHijacked); hijacked {
					t.Error("the server has parsed the handshake: nothing is tested here")
				}
				p.wantConns(0)
			})
		})
	}
}

func TestHandshakeIsCancelledWhenItsClientCloses(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"BeforeTheAnswer": func(http.ResponseWriter) {},
		"DuringTheAnswer": func(w http.ResponseWriter) {
			io.WriteString(w, "a")
			http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T) {
				began, over := make(chan struct{}), make(chan struct{})
				p := newProcess(t, nil, func(w http.ResponseWriter, r *http.Request) {
					answer(w)
					close(began)
					<-r.Context().Done()
					close(over)
				})
				c := call(t, p)
				c.send(handshakeOf("/waits"))
				<-began
				select {
				case <-over:
					t.Fatal("cancelled while its client waits")
				case <-time.After(watchAfter + 20*time.Millisecond):
				}
				c.Close()
				<-over
			})
		})
	}
}

// Whether it has sent nothing or a part of its request.
func TestClientThatStopsSendingIsClosed(t *testing.T) {
	headTime = 50 * time.Millisecond
	defer func() { headTime = 0 }()
	onBoth(t, func(t *testing.T) {
		p := newProcess(t, nil)
		for _, sent := range []string{"", "GET /half HTTP/1.1\r\nHo"} {
			c := call(t, p)
			c.send(sent)
			if _, err := io.ReadAll(c); err != nil {
				t.Errorf("after %q: %v", sent, err)
			}
		}
		p.wantConns(0)
	})
}

// net/http gives up a handshake only if nothing is left to read.
func TestHandshakeWithEarlyBytesIsNotCancelled(t *testing.T) {
	onBoth(t, func(t *testing.T) {
		began, proceed, cancelled := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
		p := newProcess(t, nil, func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-proceed
			cancelled <- r.Context().Err() != nil
			echo(w, r)
		})
		c := call(t, p)
		c.send(handshakeOf("/waits"))
		<-began
		c.send("early")
		c.CloseWrite()
		time.Sleep(watchAfter + 20*time.Millisecond) // it has been noticed by now, or soon
		close(proceed)
		if <-cancelled {
			t.Error("cancelled")
		}
		if all, err := io.ReadAll(c); string(all) != "early" || err != nil {
			t.Errorf("%q, %v", all, err)
		}
	})
}

// awaitWatch waits until the endWatch of c, if it has one, has begun.
func awaitWatch(c *Conn) {
	for c.watch != nil && c.watch.begin.Stop() {
		c.watch.begin.Reset(0)
		time.Sleep(time.Millisecond)
	}
}

// The endWatch must not use a connection that the handler has taken over: it would keep others
// from reading, and its deadline would end their reads.
func TestConnectionTakenOverLateCanBeRead(t *testing.T) {
	onBoth(t, func(t *testing.T) {
		watched := make(chan struct{})
		p := newProcess(t, nil, func(w http.ResponseWriter, r *http.Request) {
			awaitWatch(r.Context().Value(connKey{}).(*Conn))
			close(watched)
			echo(w, r)
		})
		c := call(t, p)
		c.send(handshakeOf("/waits"))
		<-watched
		c.send("later")
		c.CloseWrite()
		if all, err := io.ReadAll(c); string(all) != "later" || err != nil {
			t.Errorf("%q, %v", all, err)
		}
	})
}

func TestEndWatchLeavesNoDeadlineBehind(t *testing.T) {
	conn := NewConn(call(t, newProcess(t, nil)).TCPConn, nil)
	conn.onEnd(func() { t.Error("it has not ended") })
	awaitWatch(conn)
	conn.onEnd(nil)
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A closing server must not leave a handler behind that waits for a ResponseWriter.
func TestHandlerGoesOnWhenTheServerHasClosed(t *testing.T) {
	onBoth(t, func(t *testing.T) {
		began, proceed, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		p := newProcess(t, nil, func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-proceed
			_, err := io.WriteString(w, "too late")
			http.NewResponseController(w).Flush()
			failed <- err
		})
		c := call(t, p)
		c.send(handshakeOf("/waits"))
		<-began
		p.queue.Close()
		close(proceed)
		if err := <-failed; err == nil {
			t.Error("an answer that nobody can send")
		}
	})
}

// asServer returns the request that an http.Server makes of head, nil if it refuses it.
func asServer(t *testing.T, head []byte) (r *http.Request) {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	ln := &oneConn{conns: make(chan net.Conn, 1)}
	ln.conns <- server
	got := make(chan *http.Request, 1)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r
		panic(http.ErrAbortHandler)
	}), ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			select {
			case got <- nil:
			default:
			}
		}
	}, MaxHeaderBytes: 1 << 20}
	var served sync.WaitGroup
	served.Go(func() { s.Serve(ln) })
	go client.Write(head)
	go io.Copy(io.Discard, client)
	r = <-got
	s.Close()
	served.Wait()
	return r
}

type oneConn struct {
	conns chan net.Conn
	close sync.Once
}

func (o *oneConn) Accept() (net.Conn, error) {
	if c := <-o.conns; c != nil {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (o *oneConn) Close() error   { o.close.Do(func() { close(o.conns) }); return nil }
func (o *oneConn) Addr() net.Addr { return namedAddr("") }

// What parsePlain takes an http.Server takes too, as the same request and nothing more.
func FuzzPlainHandshakeIsParsedAsByTheServer(f *testing.F) {
	browser := "GET /match/7?token=a%20b HTTP/1.1\r\nHost: game.example\r\nConnection: Upgrade\r\nPragma: no-cache\r\nCache-Control: no-cache\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nUpgrade: websocket\r\nOrigin: https://game.example\r\nSec-WebSocket-Version: 13\r\n" +
		"Accept-Encoding: gzip, deflate, br\r\nCookie: a=b; c=d\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: reseat.v1, chat\r\n\r\n"
	for _, s := range []string{
		browser, handshakeOf("/"), handshakeOf("/a%zz"), handshakeOf("//x/../y;z=1"), handshakeOf("/a b"), handshakeOf("/#a"),
		strings.Replace(browser, "Host:", "HOST : ", 1), strings.Replace(browser, "Host: game.example", "Host:", 1),
		strings.Replace(browser, "Cookie:", "Host: other\r\nCookie:", 1), strings.Replace(browser, "Cookie:", "Cookie: e=f\r\ncookie:", 1),
		strings.Replace(browser, "Cache-Control: no-cache\r\n", "", 1), strings.Replace(browser, "Connection: Upgrade", "Connection: close, Upgrade", 1),
		strings.Replace(browser, "Cookie:", "Content-Length: 0\r\nCookie:", 1), strings.Replace(browser, "Cookie:", "Transfer-Encoding: chunked\r\nCookie:", 1),
		strings.Replace(browser, "Cookie: a", "Cookie: a\r\n folded", 1), strings.Replace(browser, "HTTP/1.1", "HTTP/1.0", 1), browser + "x",
		strings.ReplaceAll(browser, "\r\n", "\n"), strings.Replace(browser, "GET", "GET ", 1), strings.Replace(browser, "websocket", "h2c", 1),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		ours := parsePlain(t.Context(), head)
		if ours == nil {
			return
		}
		theirs := asServer(t, head)
		if theirs == nil {
			t.Fatalf("net/http refuses %q", head)
		}
		for _, d := range []struct {
			what         string
			ours, theirs any
		}{
			{"method", ours.Method, theirs.Method}, {"URL", ours.URL, theirs.URL}, {"target", ours.RequestURI, theirs.RequestURI},
			{"version", ours.Proto, theirs.Proto}, {"major", ours.ProtoMajor, theirs.ProtoMajor}, {"minor", ours.ProtoMinor, theirs.ProtoMinor},
			{"header", ours.Header, theirs.Header}, {"host", ours.Host, theirs.Host}, {"length", ours.ContentLength, theirs.ContentLength},
			{"encoding", len(ours.TransferEncoding), len(theirs.TransferEncoding)}, {"close", ours.Close, theirs.Close},
			{"body", ours.Body, theirs.Body}, {"trailer", len(ours.Trailer), len(theirs.Trailer)},
		} {
			if !reflect.DeepEqual(d.ours, d.theirs) {
				t.Errorf("%s of %q: %#v, and %#v by net/http", d.what, head, d.ours, d.theirs)
			}
		}
	})
}

func TestBrowsersHandshakeIsPlain(t *testing.T) {
	for _, head := range []string{handshakeOf("/"), handshakeOf("/a?b=c&d"), strings.Replace(handshakeOf("/"), "game.example:8080", "[::1]:80", 1)} {
		if parsePlain(t.Context(), []byte(head)) == nil {
			t.Errorf("%q is left to net/http", head)
		}
	}
	for _, head := range []string{
		handshakeOf("/") + "x", strings.Replace(handshakeOf("/"), "GET", "POST", 1), strings.Replace(handshakeOf("/"), "Upgrade: websocket\r\n", "", 1),
		strings.Replace(handshakeOf("/"), "Upgrade:", "Content-Length: 1\r\nUpgrade:", 1),
	} {
		if parsePlain(t.Context(), []byte(head)) != nil {
			t.Errorf("%q is taken for a plain handshake", head)
		}
	}
}
