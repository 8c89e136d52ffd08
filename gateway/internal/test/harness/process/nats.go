//go:build linux

package process

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"reseat/gateway/internal/test/freeport"
)

// NATS is a NATS server of several. Its addresses and its files stay when it is started again.
type NATS struct {
	Name                    string
	Client, Routes, Monitor string // where it listens
	Advertised              string // where the others connect to Routes
	bin, dir                string
	prefix                  []string
	others                  []*NATS
	cmd                     *exec.Cmd
}

// StartNATS starts a cluster of n servers with files below dir.
func StartNATS(bin, dir string, n int) (list []*NATS, err error) {
	for i := range n {
		list = append(list, NewNATS(bin, fmt.Sprint("s", i), dir, nil))
	}
	Join(list)
	for _, s := range list {
		if err := s.Start(); err != nil {
			return list, err
		}
	}
	return list, nil
}

// Leader returns the server that leads a stream, nil if none does.
func Leader(servers []*NATS, stream string) *NATS {
	for _, asked := range servers {
		name := asked.leader(stream)
		if i := slices.IndexFunc(servers, func(s *NATS) bool { return s.Name == name }); i >= 0 {
			return servers[i]
		}
	}
	return nil
}

// NewNATS returns a server with files below dir. prefix, if any, is a command that runs the program.
func NewNATS(bin, name, dir string, prefix []string) *NATS {
	n := &NATS{Name: name, Client: freeport.Addr(), Routes: freeport.Addr(), Monitor: freeport.Addr(), bin: bin, dir: filepath.Join(dir, "nats-"+name), prefix: prefix}
	n.Advertised = n.Routes
	return n
}

// Join makes the servers one cluster, before they are started.
func Join(all []*NATS) {
	for _, n := range all {
		for _, other := range all {
			if other != n {
				n.others = append(n.others, other)
			}
		}
	}
}

// Start starts it.
func (n *NATS) Start() error {
	var routes []string
	for _, other := range n.others {
		routes = append(routes, "nats://"+other.Advertised)
	}
	text := fmt.Sprintf("server_name: %s\nlisten: %q\nhttp: %q\njetstream { store_dir: %q }\n", n.Name, n.Client, n.Monitor, n.dir)
	if len(routes) > 0 {
		text += fmt.Sprintf("cluster { name: chaos, listen: %q, advertise: %q, no_advertise: true, routes: [%s] }\n", n.Routes, n.Advertised, strings.Join(routes, ", "))
	}
	if err := os.WriteFile(n.dir+".conf", []byte(text), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(n.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	argv := append(append([]string{}, n.prefix...), n.bin, "-c", n.dir+".conf")
	n.cmd = exec.Command(argv[0], argv[1:]...)
	n.cmd.Stderr = log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return n.cmd.Start()
}

// Signal sends it a signal.
func (n *NATS) Signal(s syscall.Signal) { n.cmd.Process.Signal(s) }

// Kill kills it, if it is running.
func (n *NATS) Kill() {
	if n.cmd == nil || n.cmd.Process == nil {
		return
	}
	n.Signal(syscall.SIGCONT)
	n.cmd.Process.Kill()
	n.cmd.Wait()
	n.cmd = nil
}

// Empty removes what it has stored.
func (n *NATS) Empty() { os.RemoveAll(n.dir) }

func (n *NATS) get(path string, v any) bool {
	client := http.Client{Timeout: time.Second}
	resp, err := client.Get("http://" + n.Monitor + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(v) == nil && resp.StatusCode == http.StatusOK
}

// Healthy reports whether all its streams are up to date.
func (n *NATS) Healthy() bool { return n.get("/healthz", new(struct{})) }

// leader names the server that leads a stream, "" if this one knows of none.
func (n *NATS) leader(stream string) string {
	var all struct {
		Accounts []struct {
			Streams []struct {
				Name    string
				Cluster struct{ Leader string }
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	n.get("/jsz?streams=1&accounts=1", &all)
	for _, a := range all.Accounts {
		for _, st := range a.Streams {
			if st.Name == stream {
				return st.Cluster.Leader
			}
		}
	}
	return ""
}
