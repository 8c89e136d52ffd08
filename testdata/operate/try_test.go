package operate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A tried is `make cluster`, as somebody at a terminal runs it.
type tried struct {
	t     *testing.T
	cmd   *exec.Cmd
	tmp   string // the directory for temporary files
	ports []int
	lines chan string
	pages []string // the URLs that it has printed
	kills []string // the commands that end a node, and NATS
	api   string   // the command that shows the nodes
}

// tryPorts returns the ten ports of `make cluster`, none of which is in use. The system gives
// connections higher ones.
func tryPorts(t *testing.T) []int {
	t.Helper()
	for range 1000 {
		first := 20000 + rand.IntN(10000)
		ports := []int{first, first + 1, first + 2, first + 100, first + 101, first + 102, first + 200, first + 201, first + 202, first + 300}
		if !slices.ContainsFunc(ports, inUse) {
			return ports
		}
	}
	t.Fatal("all ports are in use")
	return nil
}

func inUse(port int) bool {
	ln, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
	if err == nil {
		ln.Close()
	}
	return err != nil
}

// makeCluster is the command. The gateway's program and NATS have been built already.
func makeCluster(tmp string, first int) *exec.Cmd {
	bin, err := filepath.Abs(program)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command("make", "-C", "../..", "--no-print-directory", "-o", "build", "-o", "bin/nats-server", "cluster", fmt.Sprint("PORT=", first), "BIN="+bin)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "MAKE") || strings.HasPrefix(e, "MFLAGS") }), "TMPDIR="+tmp, "RESEAT_GRACE=not a setting of its gateways")
	return cmd
}

func tryCluster(t *testing.T) *tried {
	t.Helper()
	c := &tried{t: t, tmp: t.TempDir(), ports: tryPorts(t), lines: make(chan string, 100)}
	c.cmd = makeCluster(c.tmp, c.ports[0])
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell starts it
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.cmd.Stderr = c.cmd.Stdout
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(c.interrupt)
	c.says("Ctrl-C")
	return c
}

// says waits for a line, and notes what the lines up to it offer.
func (c *tried) says(part string) string {
	c.t.Helper()
	url, kill := regexp.MustCompile(`http://\S+/ .*`), regexp.MustCompile(`kill -9 \d+`)
	for line := range c.lines {
		c.t.Log(line)
		if kill.MatchString(line) {
			c.kills = append(c.kills, kill.FindString(line))
			if url.MatchString(line) {
				c.pages = append(c.pages, strings.Fields(url.FindString(line))[0])
			}
		}
		if _, command, ok := strings.Cut(line, ":  curl"); ok {
			c.api = "curl" + command
		}
		if strings.Contains(line, part) {
			return line
		}
	}
	c.t.Fatalf("it has ended and never said %q", part)
	return ""
}

// interrupt is Ctrl-C: the terminal signals all processes of the group.
func (c *tried) interrupt() {
	if c.cmd.ProcessState != nil {
		return
	}
	syscall.Kill(-c.cmd.Process.Pid, syscall.SIGINT)
	for line := range c.lines {
		c.t.Log(line)
	}
	c.cmd.Wait()
}

// sh runs a command that it has printed.
func (c *tried) sh(command string) string {
	c.t.Helper()
	out, err := exec.Command("sh", "-c", command).Output()
	if err != nil {
		c.t.Fatalf("%s: %v", command, err)
	}
	return string(out)
}

// wantNothingLeft checks that no process runs, no port is open and no file is left.
func (c *tried) wantNothingLeft() {
	c.t.Helper()
	for _, kill := range c.kills {
		pid, err := strconv.Atoi(strings.TrimPrefix(kill, "kill -9 "))
		if err != nil {
			c.t.Fatal(err)
		}
		eventually(c.t, fmt.Sprint("process ", pid, " has ended"), func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	}
	for _, port := range c.ports {
		if inUse(port) {
			c.t.Errorf("port %d is still in use", port)
		}
	}
}

// welcomed begins a game at a node's page, and returns the player with its seat and the others'.
func (c *tried) welcomed(page string) (*player, int, []int) {
	c.t.Helper()
	p := (&player{url: "ws" + strings.TrimPrefix(page, "http") + "demo/play?name=Tester", header: http.Header{"Origin": {strings.TrimSuffix(c.pages[0], "/")}}}).join(c.t)
	var m struct {
		Seat    int
		Players []struct{ Seat int }
	}
	if err := json.Unmarshal([]byte(p.next()), &m); err != nil {
		c.t.Fatal(err)
	}
	var seats []int
	for _, other := range m.Players {
		seats = append(seats, other.Seat)
	}
	return p, m.Seat, seats
}

// goesOn reads some messages of the game, which numbers them.
func (c *tried) goesOn(p *player) {
	c.t.Helper()
	for range 30 {
		want := p.received + 1
		var m struct{ N uint64 }
		if err := json.Unmarshal([]byte(p.next()), &m); err != nil || m.N != want {
			c.t.Fatalf("message %d, %v, want %d", m.N, err, want)
		}
	}
}

// `make cluster` starts three nodes with one game, survives their ends, and ends what it has
// started.
func TestMakeClusterStartsAndEndsACluster(t *testing.T) {
	if !strings.Contains(file(t, "cluster.md"), "\n## Try it\n\n<!-- sh: run by testdata/operate/try_test.go -->\n```sh\nmake cluster\n```\n") {
		t.Error("docs/cluster.md does not begin with the command")
	}
	c := tryCluster(t)
	if len(c.pages) != 3 || len(c.kills) != 4 {
		t.Fatalf("pages %q, commands %q, want 3 and 4", c.pages, c.kills)
	}
	for _, page := range c.pages {
		resp, err := http.Get(page)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(b, []byte("/demo/demo.js")) {
			t.Errorf("%s: %s, %v, not the demo's page", page, resp.Status, err)
		}
	}
	if nodes := c.sh(c.api); strings.Count(nodes, `"state":"up"`) != 3 {
		t.Errorf("%s: %s", c.api, nodes)
	}
	one, seat, _ := c.welcomed(c.pages[0])
	two, _, others := c.welcomed(c.pages[1])
	if !slices.Contains(others, seat) {
		t.Errorf("the player at n2 sees the seats %v, not %d of the player at n1", others, seat)
	}
	if out, err := makeCluster(t.TempDir(), c.ports[0]).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("address already in use; choose other ports, such as: make cluster PORT=")) {
		t.Errorf("with ports that are in use: %v: %s", err, out)
	}
	one.url = strings.Replace(one.url, c.pages[0][5:], c.pages[2][5:], 1)
	one.resume()
	c.goesOn(one)
	c.sh(c.kills[1])
	c.says("n2 has ended (signal: killed)")
	c.sh(strings.Replace(c.kills[2], " -9", "", 1)) // no session is of n3
	c.says("n3 has stopped")
	one.url = strings.Replace(one.url, c.pages[2][5:], c.pages[0][5:], 1)
	one.resume()
	c.goesOn(one)
	two.conn.CloseNow()
	two.url = strings.Replace(two.url, c.pages[1][5:], c.pages[0][5:], 1)
	if err := two.connect(); err == nil || !strings.Contains(err.Error(), "its node was lost") {
		t.Errorf("the player of n2: %v, want the loss of its node", err)
	}
	c.sh(c.kills[3])
	c.says("nats has ended")
	c.goesOn(one)
	c.interrupt()
	c.wantNothingLeft()
	if left, err := os.ReadDir(c.tmp); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// Even if `make cluster` is killed, nothing goes on.
func TestKilledMakeClusterLeavesNoProcess(t *testing.T) {
	c := tryCluster(t)
	out := c.sh(fmt.Sprint("ps -o pid=,args= --ppid ", c.cmd.Process.Pid))
	pid, args, _ := strings.Cut(strings.TrimSpace(out), " ")
	if !strings.HasPrefix(args, "bin/cluster ") {
		t.Fatalf("make runs %q", out)
	}
	c.sh("kill -9 " + pid)
	c.cmd.Wait()
	c.wantNothingLeft()
}
