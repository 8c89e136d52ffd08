package operate

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
)

// checked runs reseat check, on ports that are free unless args name others, and returns its
// findings and its exit status.
func checked(t *testing.T, args ...string) (lines []string, status int) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"check", "--log-level=error"}, args...)...)
	cmd.Env = append(os.Environ(), "RESEAT_LISTEN=127.0.0.1:0", "RESEAT_ADMIN=127.0.0.1:0", "RESEAT_NODE_LISTEN=127.0.0.1:0")
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"), status
}

// wantFindings checks that there is one line that begins so, for each.
func wantFindings(t *testing.T, lines []string, want ...string) {
	t.Helper()
	for _, w := range want {
		n := 0
		for _, l := range lines {
			if strings.HasPrefix(l, w) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d lines begin with %q, want one:\n%s", n, w, strings.Join(lines, "\n"))
		}
	}
}

// after returns what follows a text in the line that has it.
func after(t *testing.T, lines []string, text string) string {
	t.Helper()
	for _, line := range lines {
		if _, rest, ok := strings.Cut(line, text); ok {
			return rest
		}
	}
	t.Fatalf("no %q in\n%s", text, strings.Join(lines, "\n"))
	return ""
}

// nkey returns a file with the seed of a new user's nkey, and its public half.
func nkey(t *testing.T) (file, public string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err1 := pair.Seed()
	public, err2 := pair.PublicKey()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Join(t.TempDir(), "seed"), string(seed)), public
}

// A user with exactly the rights that reseat check prints serves a cluster of three nodes. Without
// one of them, check names it.
func TestPrintedRightsAreThoseThatAClusterNeeds(t *testing.T) {
	key := tokenKey(t)
	flags := []string{"--demo", "--token-key-file=" + key, "--cluster=nats://127.0.0.1:1", "--node-listen=127.0.0.1:0"}
	lines, _ := checked(t, flags...)
	rights := after(t, lines, "rights of a NATS user that is for nodes alone: ")
	seed, user := nkey(t)
	allowed := func(rights string) string {
		return fmt.Sprintf("accounts: {SHARED: {jetstream: enabled, users: [{nkey: %s, %s}]}}\n", user, rights)
	}
	c := newClusterOn(t, startNATSWith(t, allowed(rights)), 3, "--cluster-creds="+seed, "--duplicate=takeover")
	p := c.join(0)
	for i := range 6 {
		p.counts(2)
		p.at(c.nodes[i%3]).resume()
	}
	lines, status := checked(t, append(flags, "--cluster="+c.nats.url(), "--cluster-creds="+seed)...)
	if status != 1 { // of the first URL
		t.Errorf("status %d", status)
	}
	wantFindings(t, lines, "FAIL  --cluster nats://127.0.0.1:1: cannot be reached", "ok    --cluster "+c.nats.url()+": NATS 2.", "ok    JetStream: on",
		"ok    NATS user: has all rights that a node needs", "WARN  buckets reseat_nodes and reseat_players: 1 replica: a lost NATS server loses the directory",
		"ok    clock: ", "ok    certificate of the node: derived from --token-key-file", "ok    node n0 at 127.0.0.1:", "ok    node n1 at 127.0.0.1:", "ok    node n2 at 127.0.0.1:")

	taken, _, _ := strings.Cut(after(t, lines, "node n1 at "), ": ")
	lines, _ = checked(t, append(flags, "--cluster="+c.nats.url(), "--cluster-creds="+seed, "--node-name=mine", "--node-advertise="+taken)...)
	wantFindings(t, lines, "WARN  --node-advertise "+taken+": node n1 listens there, not mine: each node needs an address of its own")

	lacking := startNATSWith(t, allowed(replaced(t, rights, `"$JS.API.STREAM.CREATE.KV_reseat_players", `, "")))
	lines, status = checked(t, "--demo", "--token-key-file="+key, "--cluster="+lacking.url(), "--cluster-creds="+seed, "--node-listen=127.0.0.1:0")
	if status != 1 {
		t.Errorf("status %d without a right", status)
	}
	wantFindings(t, lines, `FAIL  NATS user: may not publish to "$JS.API.STREAM.CREATE.KV_reseat_players"`)
	if n := strings.Count(strings.Join(lines, "\n"), "FAIL"); n != 1 {
		t.Errorf("%d failures, want the right alone:\n%s", n, strings.Join(lines, "\n"))
	}
}

// Over TLS, with user and password: a node is checked, and joins.
func TestNATSOverTLSWithPassword(t *testing.T) {
	cert, certKey := certificate(t)
	nats := startNATSWith(t, fmt.Sprintf("tls: {cert_file: %q, key_file: %q}\nauthorization: {user: nodes, password: %q}\n", cert, certKey, "p:w/d"))
	_, port, _ := strings.Cut(nats.url(), "127.0.0.1:")
	url := func(password string) string { return "--cluster=tls://nodes:" + password + "@localhost:" + port }
	flags := []string{"--demo", "--token-key-file=" + tokenKey(t), "--node-listen=127.0.0.1:0"}
	lines, status := checked(t, append(flags, url("p%3Aw%2Fd"), "--cluster-ca="+cert)...)
	if status != 0 {
		t.Errorf("status %d:\n%s", status, strings.Join(lines, "\n"))
	}
	wantFindings(t, lines, "ok    --cluster tls://localhost:"+port+": NATS 2.", "ok    NATS user: has all rights that a node needs",
		"WARN  buckets reseat_nodes and reseat_players: not there yet: the first node makes them. There is one NATS server")
	g := start(t, append(flags, url("p%3Aw%2Fd"), "--cluster-ca="+cert)...)
	eventually(t, "the node has joined", func() bool { return strings.Contains(string(g.get("/api/v1/cluster")), `"up":true`) })
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{url("wrong"), "--cluster-ca=" + cert}, "FAIL  --cluster tls://localhost:" + port + ": refuses the credentials"},
		{[]string{url("p%3Aw%2Fd")}, "FAIL  --cluster tls://localhost:" + port + ": nats: tls error: tls: failed to verify certificate"},
		{[]string{"--cluster=" + nats.url()}, "FAIL  --cluster " + nats.url() + ": "},
	} {
		lines, status := checked(t, append(flags, c.args...)...)
		if status != 1 || strings.Contains(strings.Join(lines, "\n"), "wrong@") {
			t.Errorf("%q: status %d:\n%s", c.args, status, strings.Join(lines, "\n"))
		}
		wantFindings(t, lines, c.want)
	}
}

// check names the nodes that do not answer, or have other keys, and joins nothing.
func TestCheckLooksAtTheOtherNodes(t *testing.T) {
	c := newCluster(t, 2)
	flags := []string{"--demo", "--node-listen=127.0.0.1:0", "--cluster=" + c.nats.url()}
	other := write(t, filepath.Join(t.TempDir(), "other"), strings.Repeat("another key here", 2))
	lines, status := checked(t, append(flags, "--token-key-file="+other)...)
	if status != 1 {
		t.Errorf("status %d", status)
	}
	for i := range 2 {
		line := regexp.MustCompile(fmt.Sprintf(`(?m)^FAIL  node n%d at 127\.0\.0\.1:\d+: other keys: do all nodes have the same --token-key-file`, i))
		if !line.MatchString(strings.Join(lines, "\n")) {
			t.Errorf("no line of n%d in\n%s", i, strings.Join(lines, "\n"))
		}
	}
	for _, g := range c.nodes {
		c.wantNodes(g, "up", 2)
		if n := g.metric("reseat_cluster_nodes", "gone"); n != 0 {
			t.Errorf("%v nodes are gone: check has joined", n)
		}
	}
}

// tokenKey returns a file with the key that newCluster uses as well.
func tokenKey(t *testing.T) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "key"), strings.Repeat("0123456789abcdef", 2))
}
