package faults

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const session = "s"

// A rig is one client's connection through a relay: both ends, and the session's faults.
type rig struct {
	t      *testing.T
	lines  *Lines
	near   *Conn      // the gateway's end
	far    net.Conn   // the client's
	closed []net.Conn // by Options.Close
}

func inRig(t *testing.T, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, lines: NewLines()}
		r.near, r.far = r.connect()
		r.lines.Serve(Options{Client: func(string) net.Conn { return r.near }, Close: func(c net.Conn) bool { r.closed = append(r.closed, c); return true }})
		defer r.lines.Stop()
		f(t, r)
	})
}

func (r *rig) connect() (*Conn, net.Conn) {
	here, there := net.Pipe()
	return r.lines.wrap(here), there
}

// admit connects another client, which says that it belongs to a session. It returns how long the handshake
// waited, and then how long a message takes.
func (r *rig) admit(session string) (admitted bool, waited, takes time.Duration) {
	r.t.Helper()
	near, far := r.connect()
	defer far.Close()
	begun := time.Now()
	admitted = r.lines.Admit(ConnContext(context.Background(), near), session)
	if waited = time.Since(begun); admitted {
		takes = r.takes(far, near, 5)
	}
	return admitted, waited, takes
}

func (r *rig) apply(text string) {
	r.t.Helper()
	f, err := Parse([]byte(text))
	if err == nil {
		err = r.lines.Apply(session, f)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// takes returns how long a message takes.
func (r *rig) takes(from io.Writer, to io.Reader, bytes int) time.Duration {
	r.t.Helper()
	begun := time.Now()
	go from.Write([]byte(strings.Repeat("x", bytes)))
	if _, err := io.ReadFull(to, make([]byte, bytes)); err != nil {
		r.t.Fatal(err)
	}
	return time.Since(begun)
}

func (r *rig) want(up, down time.Duration) {
	r.t.Helper()
	if got := r.takes(r.far, r.near, 5); got != up {
		r.t.Errorf("up: %v, want %v", got, up)
	}
	if got := r.takes(r.near, r.far, 5); got != down {
		r.t.Errorf("down: %v, want %v", got, down)
	}
}

func TestLineWithoutFaultDelaysNothing(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) { r.want(0, 0) })
}

func TestSilenceHoldsItsDirectionForItsTime(t *testing.T) {
	for direction, want := range map[string][2]time.Duration{"both": {3 * s, 0}, "up": {3 * s, 0}, "down": {0, 3 * s}} {
		inRig(t, func(t *testing.T, r *rig) {
			r.apply(`{"fault":"silence","for":"3s","direction":"` + direction + `"}`)
			r.want(want[0], want[1])
			r.want(0, 0)
		})
	}
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"silence","for":"3s"}`)
		if got := r.takes(r.near, r.far, 5); got != 3*s {
			t.Errorf("down: %v", got)
		}
	})
}

// A client that reconnects is on another network.
func TestSilenceSparesConnectionsMadeLater(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"silence","for":"3s"}`)
		if admitted, waited, takes := r.admit(session); !admitted || waited+takes != 0 {
			t.Errorf("a later connection is admitted: %t, waits %v, and takes %v", admitted, waited, takes)
		}
	})
}

func TestOfflineHoldsEveryConnection(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"offline","for":"10s"}`)
		if admitted, waited, _ := r.admit(session); !admitted || waited != 10*s {
			t.Errorf("admitted: %t, after %v", admitted, waited)
		}
		r.want(0, 0)
	})
}

// As a machine that is gone: what there is breaks, and what comes is refused, for this client alone.
func TestLostNodeRefusesItsClientAlone(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		if err := r.lines.Apply(session, Fault{Name: Node}); !errors.Is(err, ErrNoCluster) {
			t.Errorf("outside a cluster: %v", err)
		}
		r.lines.opts.Cluster = true
		r.apply(`{"fault":"node","for":"10s"}`)
		if _, err := r.far.Read(make([]byte, 1)); err == nil {
			t.Error("the connection lives on")
		}
		own, _, _ := r.admit(session)
		another, _, _ := r.admit("another")
		time.Sleep(10 * s)
		if later, _, _ := r.admit(session); own || !another || !later {
			t.Errorf("admitted: %t; another's client: %t; after its time: %t", own, another, later)
		}
	})
}

// Each use looks at a few lines, and still those that are not used any more do not add up.
func TestUnusedLinesAreForgotten(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"offline","for":"10m"}`)
		used, done := r.lines.line("used") // and its connection is about to join
		for i := range 1000 {
			r.lines.Clear(strconv.Itoa(i))
		}
		if r.lines.of["used"] != used {
			t.Error("a line was forgotten while it was used")
		}
		done()
		if n := len(r.lines.of); n > 50 {
			t.Errorf("%d lines are kept, one is used", n)
		}
		if r.lines.of[session] == nil {
			t.Error("a fault was forgotten")
		}
	})
}

// Otherwise an attempt that its client has given up would take the session from the next one.
func TestAttemptGivenUpWhileOfflineIsNotAdmitted(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"offline","for":"10s"}`)
		near, far := r.connect()
		time.AfterFunc(4*s, func() { far.Close() })
		if r.lines.Admit(ConnContext(t.Context(), near), session) {
			t.Error("it is admitted")
		}
	})
}

func TestOtherSessionsAreNotAffected(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"offline"}`)
		if admitted, waited, takes := r.admit("another"); !admitted || waited+takes != 0 {
			t.Errorf("another session's client is admitted: %t, waits %v, and takes %v", admitted, waited, takes)
		}
	})
}

// As a phone does: the page knows at once, the gateway hears nothing.
func TestAirplaneModeIsKnownToTheClientAlone(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"airplane","for":"10s"}`)
		begun := time.Now()
		if _, err := r.far.Read(make([]byte, 1)); err == nil || time.Since(begun) > 0 {
			t.Errorf("the client gets %v after %v", err, time.Since(begun))
		}
		if _, err := r.near.Read(make([]byte, 1)); err == nil || time.Since(begun) != 10*s {
			t.Errorf("the gateway gets %v after %v", err, time.Since(begun))
		}
	})
}

func TestClearEndsAllFaults(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		for _, f := range []string{`{"fault":"hotel-wifi"}`, `{"fault":"offline"}`, `{"fault":"silence"}`, `{"fault":"slow","latency":"2s"}`} {
			r.apply(f)
			synctest.Wait()
		}
		time.AfterFunc(time.Second, func() { r.lines.Clear(session) })
		r.want(time.Second, 0) // what waits, too
		time.Sleep(time.Minute)
		r.want(0, 0) // the steps of the preset are not taken
	})
}

func TestSlowLineHasLatencyAndRate(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"slow","latency":"100ms","for":"5s"}`)
		r.want(100*time.Millisecond, 100*time.Millisecond)
		r.apply(`{"fault":"slow","rate":1000,"direction":"down","for":"5s"}`)
		r.want(100*time.Millisecond, 5*time.Millisecond)
		if got := r.takes(r.near, r.far, 3000); got != 3*s {
			t.Errorf("3000 bytes at 1000 a second take %v", got)
		}
		time.Sleep(5 * s)
		r.want(0, 0)
	})
}

// Latency is no pause between messages: they are under way at the same time, and in order.
func TestLatencyDoesNotLimitTheRate(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"slow","latency":"500ms","jitter":"400ms"}`)
		go func() {
			for i := range 10 {
				r.near.Write([]byte{byte(i)})
				time.Sleep(50 * time.Millisecond)
			}
		}()
		begun, got := time.Now(), make([]byte, 1)
		for i := range 10 {
			if _, err := io.ReadFull(r.far, got); err != nil || got[0] != byte(i) {
				t.Fatalf("%d, %v; want %d", got[0], err, i)
			}
		}
		if d := time.Since(begun); d > 1400*time.Millisecond {
			t.Errorf("10 messages in half a second take %v", d)
		}
	})
}

func TestCloseWaitsUntilTheLineLetsItPass(t *testing.T) {
	for _, last := range []string{"", "last"} {
		inRig(t, func(t *testing.T, r *rig) {
			r.apply(`{"fault":"silence","for":"3s"}`)
			begun := time.Now()
			r.near.Write([]byte(last))
			r.near.Close()
			if got, err := io.ReadAll(r.far); string(got) != last || err != nil || time.Since(begun) != 3*s {
				t.Errorf("%q, %v after %v; want %q", got, err, time.Since(begun), last)
			}
		})
	}
}

// A page that is left says goodbye and resets the connection. On a slow line the gateway must hear it.
func TestWritingToAClientThatIsGoneFailsAfterItsLastWordsAlone(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"slow","latency":"600ms","direction":"up"}`)
		r.far.Write([]byte("bye"))
		r.far.Close()
		if _, err := r.near.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := r.near.Write([]byte("x")); err != nil {
			t.Errorf("write: %v", err)
		}
		if got, err := io.ReadAll(r.near); string(got) != "bye" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestClosedConnDoesNotBlockItsReader(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"silence","for":"3s"}`)
		go r.far.Write([]byte("x"))
		time.AfterFunc(time.Second, func() { r.near.Close() })
		begun := time.Now()
		if _, err := r.near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

func TestDeadlinesInterruptAndLoseNothing(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"silence","for":"3s"}`)
		go r.far.Write([]byte("x"))
		begun := time.Now()
		r.near.SetReadDeadline(begun.Add(s))
		if _, err := r.near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != s {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		r.near.SetReadDeadline(time.Time{})
		b := make([]byte, 1)
		if n, err := r.near.Read(b); n != 1 || err != nil || time.Since(begun) != 3*s {
			t.Errorf("then %d, %v after %v", n, err, time.Since(begun))
		}
		r.near.SetWriteDeadline(time.Now().Add(s))
		var err error
		for err == nil {
			_, err = r.near.Write(make([]byte, chunkSize)) // nobody reads
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write: %v", err)
		}
	})
}

// The dashboard shows the error as the reason of the disconnect.
func TestResetIsLabelled(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.apply(`{"fault":"reset"}`)
		if _, err := r.near.Read(make([]byte, 1)); err == nil || err.Error() != "reset by a fault" && err != io.EOF && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the gateway gets %v", err)
		}
		if _, err := r.far.Read(make([]byte, 1)); err == nil {
			t.Error("the client's connection lives")
		}
	})
}

func TestPresetsEndByThemselves(t *testing.T) {
	for name := range presets {
		inRig(t, func(t *testing.T, r *rig) {
			r.apply(`{"fault":"` + name + `"}`)
			f, _ := Parse([]byte(`{"fault":"` + name + `"}`))
			time.Sleep(f.Lasts())
			if admitted, waited, takes := r.admit(session); !admitted || waited+takes != 0 {
				t.Errorf("%s: afterwards a client is admitted: %t, waits %v, and takes %v", name, admitted, waited, takes)
			}
			if f.Lasts() < 5*s || f.Lasts() > time.Minute {
				t.Errorf("%s lasts %v", name, f.Lasts())
			}
		})
	}
}

func TestFaultsThatNeedSomethingSaySo(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		if err := r.lines.Apply(session, Fault{Name: Restart}); err != ErrNoRestart {
			t.Errorf("restart: %v", err)
		}
		r.apply(`{"fault":"close"}`)
		if len(r.closed) != 1 || r.closed[0] != r.near {
			t.Errorf("closed %v", r.closed)
		}
		r.lines.Serve(Options{Client: func(string) net.Conn { return nil }, Restart: func() bool { return false }})
		for name, want := range map[string]error{Silence: ErrNoClient, Reset: ErrNoClient, Close: ErrNoClient, Restart: ErrTooSoon, Offline: nil, Slow: nil, "tunnel": nil} {
			if err := r.lines.Apply("gone", Fault{Name: name}); err != want {
				t.Errorf("%s without a client: %v, want %v", name, err, want)
			}
		}
	})
}

func TestParseRefusesWhatHasNoMeaning(t *testing.T) {
	for text, want := range map[string]string{
		``: "want {", `[]`: "want {", `{"fault":"silence","x":1}`: "x", `{"fault":"silence"} {}`: "more than one",
		`{}`: "want one of silence, offline, airplane, slow", `{"fault":"Tunnel"}`: "got \"Tunnel\"",
		`{"fault":"silence","for":"11m"}`: "10m0s", `{"fault":"silence","for":"-1s"}`: "for", `{"fault":"silence","for":8}`: "for: want string, got number", `{"fault":"slow","rate":1.5}`: "rate: want int64, got number 1.5",
		`{"fault":"silence","direction":"left"}`: "up, down or both", `{"fault":"offline","direction":"up"}`: "direction",
		`{"fault":"tunnel","for":"3s"}`: "no duration", `{"fault":"reset","for":"3s"}`: "no duration", `{"fault":"silence","rate":1000}`: "only for slow",
		`{"fault":"slow","rate":1}`: "rate: want 128", `{"fault":"slow","latency":"11s"}`: "latency",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	f, err := Parse([]byte(`{"fault":"slow"}`))
	if err != nil || f.For != 30*s || f.Rate == 0 || f.Latency == 0 {
		t.Errorf("slow is %+v, %v", f, err)
	}
}

func TestPlanIsInTheOrderOfItsTimes(t *testing.T) {
	plan, err := ParsePlan([]byte("[[fault]]\nat = '20s'\nfault = 'tunnel'\n[[fault]]\nat = '0s'\nfault = 'slow'\nrate = 1000\n"))
	if err != nil || len(plan) != 2 || plan[0].Name != Slow || plan[1].At != 20*s || string(plan[0].Body) != `{"fault":"slow","rate":1000}` {
		t.Errorf("%+v, %v", plan, err)
	}
}

// What a plan has and nobody reads would be a fault that never comes.
func TestPlanWithMistakesIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "want [[fault]] tables",
		"[[faults]]\nat='0s'\nfault='reset'":   "faults is unknown",
		"at='1s'\n[[fault]]\nfault='reset'":    "at is unknown",
		"[[fault]]\nat=5\nfault='reset'":       "want at, such as",
		"[[fault]]\nat='-5s'\nfault='reset'":   "at: want a duration",
		"[[fault]]\nat='25h'\nfault='reset'":   "at: want a duration",
		"[[fault]]\nat='0s'":                   "fault 1: fault: want one of",
		"[[fault]]\nat='0s'\nfault='x'\nx=nan": "fault 1: json",
	} {
		if _, err := ParsePlan([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
