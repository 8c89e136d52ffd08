package server

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"reseat/gateway/cluster/engine"
	"reseat/gateway/internal/test/testcert"
)

// fakeNATS answers as a NATS server of a version does, up to the first PING.
func fakeNATS(t *testing.T, version string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "INFO {\"server_id\":\"x\",\"version\":%q,\"headers\":true,\"max_payload\":1000}\r\n", version)
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if lines.Text() == "PING" {
					fmt.Fprint(c, "PONG\r\n")
				}
			}
			c.Close()
		}
	}()
	return ln.Addr().String()
}

const rightsLine = `ok    rights of a NATS user that is for nodes alone: permissions: {publish: ["test.>", "$JS.API.INFO", `

func TestCheckReportsNATSThatCannotBeUsed(t *testing.T) {
	down, old := closedGame(t).Addr().String(), fakeNATS(t, "2.11.8")
	game, keys := startGame(t, nil), secretFile(t)
	status, report, errs := once("check", "--upstream", game.url("ws"), "--token-key-file", keys, "--cluster-name=test",
		"--cluster=nats://someone:secret@"+down, "--cluster=nats://"+old, "--node-advertise="+down, "--node-listen=127.0.0.1:0")
	if status != 1 || errs != "" || strings.Contains(report, "secret@") {
		t.Errorf("status %d, stderr %q", status, errs)
	}
	wantLines(t, report, "ok    settings", "ok    --token-key-file", "ok    upstream",
		"FAIL  --cluster nats://"+down+": cannot be reached",
		`FAIL  --cluster nats://`+old+`: NATS cannot be used: the NATS server has version "2.11.8", want 2.12 or newer`,
		rightsLine,
		"ok    certificate of the node: derived from --token-key-file",
		"ok    --node-advertise "+down+": reachable, and nobody listens there yet")
}

// Whether a game server takes redials cannot be tried without being a player.
func TestCheckSaysWhatDurableRoutesAskOfTheGameServer(t *testing.T) {
	game, keys := startGame(t, nil), secretFile(t)
	closed := closedGame(t)
	status, report, errs := once("check", "--route", "/a/*="+game.url("ws")+";durable=on", "--route", "/b/*="+game.url("ws"), "--route", "/c="+game.url("ws")+";durable=on",
		"--token-key-file", keys, "--cluster=nats://"+closed.Addr().String())
	if want := "\nok    --durable /a/*, /c: cannot be tried: the game server must take a further request with the same Reseat-Session"; status != 1 || errs != "" || !strings.Contains(report, want) {
		t.Errorf("status %d, stderr %q, want %q:\n%s", status, errs, want, report)
	}
}

func TestCheckReportsTheNodesCertificateAndAddress(t *testing.T) {
	free := closedGame(t).Addr().String()
	cert, key := testcert.New(t, "127.0.0.1").Write(t.TempDir()) // for servers, and not for clients
	other := startGame(t, nil)                                   // accepts, and does not speak TLS
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--node-cert=" + cert, "--node-key=" + key, "--node-ca=" + cert, "--node-advertise=" + free}, "FAIL  certificate of the node: --node-cert: not accepted by --node-ca as that of a client: "},
		{[]string{"--node-advertise=" + other.Addr().String()}, "FAIL  --node-advertise " + other.Addr().String() + ": no answer: does a firewall, or a network policy, let other nodes connect?"},
		{[]string{"--node-listen=" + free}, "ok    --node-advertise " + free + ": reachable, and nobody listens there yet"},
	} {
		args := append([]string{"check", "--demo", "--token-key-file", secretFile(t), "--cluster=nats://" + free}, c.args...)
		if status, report, _ := once(args...); status != 1 || !strings.Contains(report, "\n"+c.want) {
			t.Errorf("%q: status %d, want %q:\n%s", c.args, status, c.want, report)
		}
	}
}

// The limits of the clock are those of a start.
func TestCheckReportsTheClock(t *testing.T) {
	for _, c := range []struct {
		skew   time.Duration
		known  bool
		want   string
		status int
	}{
		{3 * time.Millisecond, true, "ok    clock: 3ms ahead of the NATS server's", 0},
		{-999 * time.Millisecond, true, "ok    clock: 999ms behind the NATS server's", 0},
		{time.Second, true, "WARN  clock: 1s ahead of the NATS server's: set it by NTP", 0},
		{-29 * time.Second, true, "WARN  clock: 29s behind the NATS server's: set it by NTP", 0},
		{-30 * time.Second, true, "FAIL  clock: 30s behind the NATS server's: from 30s on a node may not join", 1},
		{0, false, "ok    clock: not compared: NATS reports its time once the first node has made its bucket", 0},
	} {
		var out bytes.Buffer
		r := &report{out: &out}
		if r.clock(&engine.Found{Skew: c.skew, SkewKnown: c.known}); out.String() != c.want+"\n" || r.status != c.status {
			t.Errorf("%v: status %d, %s", c.skew, r.status, &out)
		}
	}
}

// One NATS server, or one replica, is enough to try it out, and no more.
func TestCheckReportsTheReplicasOfBuckets(t *testing.T) {
	a, b := engine.FoundBucket{Name: "x_nodes"}, engine.FoundBucket{Name: "x_players"}
	with := func(f engine.FoundBucket, replicas int) engine.FoundBucket {
		f.Exists, f.Replicas = true, replicas
		return f
	}
	broken := with(b, 3)
	broken.Err = fmt.Errorf("has no leader")
	for _, c := range []struct {
		clustered bool
		list      []engine.FoundBucket
		want      []string
		status    int
	}{
		{false, []engine.FoundBucket{a, b}, []string{"WARN  buckets x_nodes and x_players: not there yet: the first node makes them. There is one NATS server, so they get 1 replica: a lost NATS server loses the directory"}, 0},
		{true, []engine.FoundBucket{a, b}, []string{"ok    buckets x_nodes and x_players: not there yet: the first node makes them, with up to 3 replicas"}, 0},
		{true, []engine.FoundBucket{with(a, 3), with(b, 3)}, []string{"ok    buckets x_nodes and x_players: 3 replicas"}, 0},
		{true, []engine.FoundBucket{with(a, 3), with(b, 1)}, []string{"ok    bucket x_nodes: 3 replicas", "WARN  bucket x_players: 1 replica: a lost NATS server loses the directory"}, 0},
		{true, []engine.FoundBucket{with(a, 2), with(b, 2)}, []string{"WARN  buckets x_nodes and x_players: 2 replicas: while one of the two servers is down nothing can be written. Use three servers"}, 0},
		{true, []engine.FoundBucket{with(a, 3), broken}, []string{"ok    bucket x_nodes: 3 replicas", "FAIL  bucket x_players: has no leader"}, 1},
		{true, []engine.FoundBucket{with(a, 3), with(a, 3), with(b, 3)}, []string{"ok    buckets x_nodes to x_players: 3 replicas"}, 0},
		{true, nil, []string{""}, 0},
	} {
		var out bytes.Buffer
		r := &report{out: &out}
		r.buckets(c.clustered, "a lost NATS server loses the directory", c.list...)
		wantLines(t, out.String(), c.want...)
		if r.status != c.status {
			t.Errorf("%+v: status %d", c.list, r.status)
		}
	}
}
