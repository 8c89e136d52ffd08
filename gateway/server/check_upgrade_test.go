//go:build linux

package server

import (
	"os"
	"path/filepath"
	"testing"

	"reseat/gateway/handover"
)

func TestCheckReportsUpgradeSockets(t *testing.T) {
	game, dir := startGame(t, nil), t.TempDir()
	alive := filepath.Join(dir, "alive.sock")
	ln, err := handover.Listen(alive, false)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file := writeFile(t, filepath.Join(dir, "file"), "x")
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--takeover", alive}, 0, "ok    --takeover " + alive + ": a process of this user listens there; nothing was sent"},
		{[]string{"--takeover", dir + "/none"}, 0, "WARN  --takeover " + dir + "/none: nobody listens there"},
		{[]string{"--takeover", file + "/s"}, 1, "FAIL  --takeover " + file + "/s: connect: not a directory"},
		{[]string{"--upgrade-socket", dir + "/new.sock"}, 0, "ok    --upgrade-socket " + dir + "/new.sock: can be made"},
		{[]string{"--upgrade-socket", alive}, 0, "ok    --upgrade-socket " + alive},
		{[]string{"--upgrade-socket", dir + "/none/s"}, 1, "FAIL  --upgrade-socket " + dir + "/none/s: stat " + dir + "/none: no such file or directory"},
		{[]string{"--upgrade-socket", file}, 1, "FAIL  --upgrade-socket " + file + ": " + file + " is not a socket"},
	} {
		status, report, errs := once(append([]string{"check", "--upstream", game.url("ws"), "--token-key-file", secretFile(t)}, c.args...)...)
		if status != c.status || errs != "" {
			t.Errorf("%q: status %d, want %d; stderr %q", c.args, status, c.status, errs)
		}
		wantLines(t, report, "ok    settings", "ok    --token-key-file", "ok    upstream", c.want)
	}
	if _, err := os.Stat(dir + "/new.sock"); err == nil {
		t.Error("check has made a socket")
	}
}

func TestCheckReportsUpgradeSocketOfAnotherUser(t *testing.T) {
	game, path := startGame(t, nil), filepath.Join(t.TempDir(), "s")
	ln, err := handover.Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := os.Chown(path, os.Geteuid()+1, -1); err != nil {
		t.Skip("only root can give a file away")
	}
	status, report, _ := once("check", "--upstream", game.url("ws"), "--token-key-file", secretFile(t), "--takeover", path)
	if status != 1 {
		t.Errorf("status %d", status)
	}
	wantLines(t, report, "ok    settings", "ok    --token-key-file", "ok    upstream", "FAIL  --takeover "+path+": it belongs to user ")
}
