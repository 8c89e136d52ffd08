//go:build linux

package proxy

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Subject is a proxy to be measured.
type Subject struct {
	Name      string   // for --subjects and in the raw results
	Title     string   // in tables
	Resumable bool     // its clients speak reseat.v1
	Only      []string // its workloads; none: all
	Other     bool     // it is another build of the gateway
	Named     bool     // it takes part only if it is asked for by name
	start     func(Place, netip.AddrPort) (*Proxy, error)
}

// Does reports whether the subject takes part in a workload.
func (s Subject) Does(workload string) bool {
	return len(s.Only) == 0 || slices.Contains(s.Only, workload)
}

// Base returns its name without the driver.
func (s Subject) Base() string {
	name, _, _ := strings.Cut(s.Name, "@")
	return name
}

// Start starts it.
func (s Subject) Start(p Place) (*Proxy, error) {
	return s.start(p, freeAddr())
}

// The subjects that others are compared with.
const (
	Direct  = "direct"
	NGINX   = "nginx"
	HAProxy = "haproxy"
	Library = "library"
	Floor   = "floor"
	Reseat  = "reseat"
)

// Subjects returns all subjects, given the gateway's --help.
func Subjects(help string) []Subject {
	list := []Subject{
		{Name: Direct, Title: "no proxy: the game server itself", start: direct},
		{Name: NGINX, Title: "nginx, 1 worker", start: nginx},
		{Name: HAProxy, Title: "HAProxy, 1 thread", start: haproxy},
		{Name: Library, Title: "two legs on coder/websocket", start: library},
		{Name: Floor, Title: "bytes relayed, nothing else", Only: []string{"W1", "W3", "W8"}, Named: true, start: floor},
	}
	for _, driver := range drivers(help) {
		list = append(list, gateways(driver)...)
	}
	return list
}

// gateways returns the gateway with one driver; "" is the only one.
func gateways(driver string) []Subject {
	suffix, title, args := "", "", []string(nil)
	if driver != "" {
		suffix, title, args = "@"+driver, ", "+driver+" driver", []string{"--driver", driver}
	}
	with := func(env []string, more ...string) func(Place, netip.AddrPort) (*Proxy, error) {
		return func(p Place, a netip.AddrPort) (*Proxy, error) { return reseat(p, a, env, slices.Concat(args, more)) }
	}
	list := []Subject{
		{Name: Reseat + suffix, Title: "**Reseat**" + title, Resumable: true, start: with(nil)},
		{Name: "plain" + suffix, Title: "**Reseat**, plain clients" + title, start: with(nil)},
		{Name: "hs256" + suffix, Title: "**Reseat**, HS256 tokens" + title, Resumable: true,
			Only: []string{"W7", "W8"}, start: withKey(with, secret)},
		{Name: "eddsa" + suffix, Title: "**Reseat**, Ed25519 tokens" + title, Resumable: true,
			Only: []string{"W7", "W8"}, start: withKey(with, ed25519Key)},
	}
	for _, n := range []int{3, 5} {
		list = append(list, Subject{Name: fmt.Sprint("nodes", n, suffix), Title: fmt.Sprintf("**Reseat**, a cluster of %d nodes%s", n, title), Resumable: true,
			Only: []string{"C1", "C40"}, start: nodes(n, false, args)})
	}
	list = append(list, Subject{Name: "hop" + suffix, Title: "**Reseat**, each player at another node than the session" + title, Resumable: true,
		Only: []string{"H1", "H3", "H7"}, start: nodes(2, true, args)})
	if driver == "poll" { // each loop needs a processor
		return list
	}
	return append(list, Subject{Name: "single" + suffix, Title: "**Reseat**, GOMAXPROCS=1" + title, Resumable: true,
		Only: []string{"W1", "W2", "W3", "W5"}, start: with([]string{"GOMAXPROCS=1"})})
}

// withKey gives the gateway a token key.
func withKey(with func([]string, ...string) func(Place, netip.AddrPort) (*Proxy, error), key func() ([]byte, error)) func(Place, netip.AddrPort) (*Proxy, error) {
	return func(p Place, a netip.AddrPort) (*Proxy, error) {
		content, err := key()
		if err != nil {
			return nil, err
		}
		file := filepath.Join(p.Dir, "key")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return nil, err
		}
		return with(nil, "--token-key-file", file)(p, a)
	}
}

// secret returns a symmetric key, as the gateway makes one itself without a file.
func secret() ([]byte, error) { return []byte("a secret of the benchmark, 32 bytes or more\n"), nil }

func ed25519Key() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// Other returns another build of the gateway, for comparison.
func Other(name, binary string) Subject {
	return Subject{Name: name, Title: "**Reseat**, build " + name, Resumable: true, Other: true, start: func(p Place, a netip.AddrPort) (*Proxy, error) {
		p.Reseat = binary
		return reseat(p, a, nil, nil)
	}}
}

// drivers returns the values of --driver in the gateway's --help, except for the
// automatic choice.
func drivers(help string) []string {
	_, rest, ok := strings.Cut(help, "--driver ")
	if !ok {
		return []string{""}
	}
	choices := strings.Fields(rest)[0]
	return slices.DeleteFunc(strings.Split(choices, "|"), func(s string) bool { return s == "auto" || s == "uring" }) // both are poll
}

func direct(p Place, _ netip.AddrPort) (*Proxy, error) {
	return &Proxy{Addr: p.Game}, nil
}

func library(p Place, addr netip.AddrPort) (*Proxy, error) {
	return start(p, addr, 1, nil, p.Self, AsLibrary, addr.String(), p.Game.String())
}

func floor(p Place, addr netip.AddrPort) (*Proxy, error) {
	return start(p, addr, 1, nil, p.Self, AsFloor, addr.String(), p.Game.String())
}

// patience returns the flags that make a gateway wait as long for an answer as it does for
// any sign of life. They change nothing while clients have traffic.
func (p Place) patience() []string {
	if !p.Patient {
		return nil
	}
	return []string{"--answer-timeout", "30s"}
}

func reseat(p Place, addr netip.AddrPort, env, args []string) (*Proxy, error) {
	argv := slices.Concat([]string{p.Reseat, "--listen", addr.String(), "--admin", "off", "--log-level", "warn", "--upstream", "ws://" + p.Game.String()}, p.patience(), args, p.Leg.flags())
	return start(p, addr, 1, env, argv...)
}

func nginx(p Place, addr netip.AddrPort) (*Proxy, error) {
	file := filepath.Join(p.Dir, "nginx.conf")
	conf := fmt.Sprintf(nginxConf, p.Dir, p.Files, p.Files, p.Game, addr, p.Dir, p.Leg.nginx())
	if os.Geteuid() == 0 {
		conf = "user root;\n" + conf
	}
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	return start(p, addr, 2, nil, "nginx", "-p", p.Dir, "-e", "stderr", "-c", file)
}

const nginxConf = `daemon off;
worker_processes 1;
error_log stderr crit;
pid %s/nginx.pid;
worker_rlimit_nofile %d;
events { worker_connections %d; }
http {
	access_log off;
	upstream game { server %s; }
	server {
		listen %s backlog=4096%[7]s;
		client_body_temp_path %[6]s/body;
		proxy_temp_path %[6]s/proxy;
		fastcgi_temp_path %[6]s/fastcgi;
		uwsgi_temp_path %[6]s/uwsgi;
		scgi_temp_path %[6]s/scgi;
		location / {
			proxy_pass http://game;
			proxy_http_version 1.1;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection "upgrade";
			proxy_read_timeout 1h;
			proxy_send_timeout 1h;
		}
	}
}
`

func haproxy(p Place, addr netip.AddrPort) (*Proxy, error) {
	file := filepath.Join(p.Dir, "haproxy.cfg")
	conf := fmt.Sprintf(haproxyConf, p.Files/2-100, addr, p.Game)
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	return start(p, addr, 1, nil, "haproxy", "-db", "-q", "-f", file)
}

const haproxyConf = `global
	nbthread 1
	maxconn %d
defaults
	mode http
	timeout connect 10s
	timeout client 1h
	timeout server 1h
	timeout tunnel 1h
listen game
	bind %s backlog 4096
	server game %s
`
