package server

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"reseat/gateway/internal/test/testcert"
)

// once runs the program until it exits by itself.
func once(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = Run(onFreePorts(args), nil, &out, &errs, make(chan os.Signal))
	return status, out.String(), errs.String()
}

// onFreePorts returns the arguments of a check with ports that are free, if they name none.
func onFreePorts(args []string) []string {
	if len(args) == 0 || args[0] != "check" {
		return args
	}
	return append(args[:1:1], override([]string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0"}, args[1:]...)...)
}

func TestExitStatus(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	game, free := "--upstream=ws://127.0.0.1:9", "--listen=127.0.0.1:0"
	pair := testcert.New(t, "game.example")
	cert, key := pair.Write(t.TempDir())
	for _, c := range []struct {
		what   string
		args   []string
		status int
		says   string // how the only line begins: on stdout for status 0, else on stderr
	}{
		{"version", []string{"--version"}, 0, "reseat "},
		{"help", []string{"--help"}, 0, "reseat keeps"},
		{"help of check", []string{"check", "--help"}, 0, "reseat keeps"},
		{"a wrong value", []string{game, "--grace=45"}, 2, "reseat: --grace: want a duration"},
		{"an unknown flag", []string{game, "--grce=45s"}, 2, "reseat: --grce: unknown flag"},
		{"nothing to serve", nil, 2, "reseat: --upstream, --route, --demo: want at least one"},
		{"a taken port", []string{game, "--listen=" + taken.Addr().String(), "--admin=off"}, 1, "reseat: --listen: listen tcp " + taken.Addr().String() + ": bind: address already in use; another program listens there: stop it, or choose another port"},
		{"an address of another machine", []string{game, "--listen=192.0.2.1:8080", "--admin=off"}, 1, "reseat: --listen: listen tcp 192.0.2.1:8080: bind: cannot assign requested address; use an address of this machine"},
		{"a taken port with TLS", []string{game, "--tls-cert=" + cert, "--tls-key=" + key, "--listen=" + taken.Addr().String(), "--admin=off"}, 1, "reseat: --listen: "},
		{"a taken port of the admin address", []string{game, free, "--admin=" + taken.Addr().String()}, 1, "reseat: --admin: "},
	} {
		status, stdout, stderr := once(append(c.args, "--log-level=error")...)
		said, other := stderr, stdout
		if c.status == 0 {
			said, other = other, said
		}
		if status != c.status || !strings.HasPrefix(said, c.says) || other != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want %d and %q", c.what, status, stdout, stderr, c.status, c.says)
		}
		if c.status > 0 && strings.Count(said, "\n") != 1 {
			t.Errorf("%s: want one line, got %q", c.what, said)
		}
	}
}

func TestRequestedStopExitsWithZero(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p := begin(t)
		p.signals <- s
		p.wait("shutdown.started")
		if status := <-p.status; status != 0 {
			t.Errorf("%v: exit status %d", s, status)
		}
	}
}

func TestSecondSignalExitsImmediately(t *testing.T) {
	p := begin(t)
	join(t, p.clients["ws"].(string)+"/demo/play", nil)
	p.signals <- syscall.SIGTERM
	p.wait("shutdown.started") // a player is attached: the drain takes ten seconds
	p.signals <- syscall.SIGTERM
	if status := <-p.status; status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
}

func TestLogNamesAddressesThatBrowsersCanOpen(t *testing.T) {
	p := begin(t, "--listen=:0")
	_, port, err := net.SplitHostPort(p.clients["addr"].(string))
	if err != nil || p.clients["http"] != "http://localhost:"+port || p.clients["ws"] != "ws://localhost:"+port {
		t.Errorf("clients: %v, %v", p.clients, err)
	}
	if p.demo != "http://localhost:"+port+"/" || !strings.HasPrefix(p.admin, "http://127.0.0.1:") {
		t.Errorf("demo %s, admin %s", p.demo, p.admin)
	}
	for _, url := range []string{p.demo, p.admin + "/healthz"} {
		if resp := get(t, http.DefaultClient, url); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", url, resp.Status)
		}
	}
}
