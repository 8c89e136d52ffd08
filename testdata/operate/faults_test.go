package operate

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Sessions end with their process. A resuming client learns that from the next process
// with the same key, or from one that can't verify its token.
func TestResumeAfterAKillIsRefusedAsUnknown(t *testing.T) {
	key := func(text string) string {
		return "--token-key-file=" + write(t, filepath.Join(t.TempDir(), "key"), strings.Repeat(text, 4))
	}
	ga := newGame(t, 5*time.Millisecond)
	one, two := key("01234567"), key("abcdefgh")
	for name, c := range map[string]struct {
		key  string
		code int
	}{"the same key": {one, 4404}, "another key": {two, 4401}} {
		t.Run(name, func(t *testing.T) {
			at := "127.0.0.1:" + freePort(t)
			g := start(t, "--listen="+at, "--upstream="+ga.url(), one)
			players := make([]*player, 50)
			for i := range players {
				players[i] = g.join()
				players[i].next()
			}
			g.cmd.Process.Kill()
			g.cmd.Wait()
			start(t, "--listen="+at, "--upstream="+ga.url(), c.key)
			for _, p := range players {
				var told *closing
				if err := p.connect(); !errors.As(err, &told) || told.Code != c.code || told.Retry {
					t.Errorf("a resume gets %v, want a final %d", err, c.code)
				}
			}
		})
	}
}

// A log that can't be written, as on a full disk, disturbs no session.
func TestUnwritableLogDisturbsNoSession(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	ga := newGame(t, 5*time.Millisecond)
	addr, admin := "127.0.0.1:"+freePort(t), "127.0.0.1:"+freePort(t)
	cmd := exec.Command(program, "--listen="+addr, "--admin="+admin, "--upstream="+ga.url(), "--log-level=debug", "--log-messages=prefix:9", "--drain=0s")
	cmd.Stderr = full
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	eventually(t, "the gateway is ready", func() bool {
		resp, err := http.Get("http://" + admin + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	p := (&player{url: "ws://" + addr}).join(t)
	for n := 1; n <= 200; n++ {
		p.counts(1)
		if n%50 == 0 {
			p.conn.CloseNow()
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil || p.resumes != 3 {
		t.Errorf("the gateway ended with %v, after %d resumes; want status 0 and 3", err, p.resumes)
	}
}

// A client that steals a token between a disconnect and the resume gets the session,
// because the gateway can't tell them apart. The player's own token is superseded then,
// and its use is logged with both addresses.
func TestStolenTokenIsReportedWithBothAddresses(t *testing.T) {
	ga := newGame(t, 5*time.Millisecond)
	g := start(t, "--upstream="+ga.url())
	robbed := g.join()
	robbed.next()
	robbed.conn.CloseNow()
	thief := (&player{url: robbed.url, from: "127.0.0.2", session: robbed.session, token: robbed.token, received: robbed.received}).join(t)
	for thief.say("mine now"); len(thief.unacked) > 0; { // the ack shows that the new token is confirmed
		thief.next()
	}
	var told *closing
	if err := robbed.connect(); !errors.As(err, &told) || told.Code != 4401 || told.Retry {
		t.Errorf("the superseded token gets %v, want a final 4401", err)
	}
	if line := g.says("token.replayed"); line["peer"] != "127.0.0.1" || line["held_by"] != "127.0.0.2" || line["session"] != robbed.session || line["level"] != "WARN" {
		t.Errorf("reported as %v", line)
	}
	thief.next()
	if thief.resumes > 0 || g.metric("reseat_tokens_replayed_total", "") != 1 {
		t.Errorf("the thief was disconnected %d times, %v replayed tokens are counted", thief.resumes, g.metric("reseat_tokens_replayed_total", ""))
	}
}
