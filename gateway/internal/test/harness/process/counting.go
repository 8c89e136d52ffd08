//go:build linux

package process

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"reseat/gateway/internal/test/freeport"
)

// Counting is the counting game of docs/games.
type Counting struct {
	Addr string
	cmd  *exec.Cmd
}

// StartCounting starts the game with a message to each session every tick milliseconds, and waits until
// it listens.
func StartCounting(bin, dir string, tick int) (*Counting, error) {
	port := strconv.Itoa(freeport.Port())
	g := &Counting{Addr: "127.0.0.1:" + port, cmd: exec.Command(bin)}
	g.cmd.Env = append(os.Environ(), "PORT="+port, "TICK_MS="+strconv.Itoa(tick), "WAIT_MS=15000") // a busy machine reads late
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(dir, "game.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	g.cmd.Stderr = log
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return g, err
}

// Kill kills it.
func (g *Counting) Kill() {
	g.cmd.Process.Kill()
	g.cmd.Wait()
}

// A Report is what the game says of a session.
type Report struct {
	Session                       string
	Received, Sent, Lost          uint64
	Applied                       []int64
	Connections, Repeats, Resyncs int
}

// Reports returns those of all sessions, by session.
func (g *Counting) Reports() map[string]Report {
	all := map[string]Report{}
	resp, err := http.Get("http://" + g.Addr + "/report")
	if err != nil {
		return all
	}
	defer resp.Body.Close()
	var list struct{ Sessions []Report }
	json.NewDecoder(resp.Body).Decode(&list)
	for _, r := range list.Sessions {
		all[r.Session] = r
	}
	return all
}
