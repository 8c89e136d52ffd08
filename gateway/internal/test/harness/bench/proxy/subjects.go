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
	start     starter
}

type starter func(Place, netip.AddrPort) (*Proxy, error)

// Base returns its name without the driver.
func (s Subject) Base() string {
	name, _, _ := strings.Cut(s.Name, "@")
	return name
}

// Start starts it.
func (s Subject) Start(p Place) (*Proxy, error) { return s.start(p, freeAddr()) }

// The subjects that others are compared with.
const (
	Direct = "direct"
	NGINX  = "nginx"
	Reseat = "reseat"
)

// Subjects returns all subjects.
func Subjects() []Subject {
	self := func(program string) starter {
		return func(p Place, addr netip.AddrPort) (*Proxy, error) {
			return start(p, addr, 1, p.Self, program, addr.String(), p.Game.String())
		}
	}
	list := []Subject{
		{Name: Direct, Title: "no proxy", start: func(p Place, _ netip.AddrPort) (*Proxy, error) { return &Proxy{Addrs: []netip.AddrPort{p.Game}}, nil }},
		{Name: NGINX, Title: "nginx", start: nginx},
		{Name: "haproxy", Title: "HAProxy", start: haproxy},
		{Name: "library", Title: "two legs", start: self("serve-library")},
	}
	for _, driver := range []string{"net", "poll"} {
		flags := []string{"--driver", driver}
		for _, s := range []Subject{
			{Name: Reseat, Resumable: true, start: gateway(flags)},
			{Name: "plain", Title: ", plain clients", start: gateway(flags)},
			{Name: "eddsa", Title: ", Ed25519 tokens", Resumable: true, Only: []string{"W7", "W8"}, start: withEd25519(flags)},
			{Name: "nodes3", Title: ", a cluster of 3 nodes", Resumable: true, Only: []string{"C1"}, start: nodes(3, false, flags)},
			{Name: "nodes5", Title: ", a cluster of 5 nodes", Resumable: true, Only: []string{"C1"}, start: nodes(5, false, flags)},
			{Name: "hop", Title: ", each player at another node", Resumable: true, Only: []string{"H1", "H7"}, start: nodes(2, true, flags)},
		} {
			s.Name, s.Title = s.Name+"@"+driver, "**Reseat**"+s.Title+", "+driver
			list = append(list, s)
		}
	}
	return list
}

// Other returns another build of the gateway, for comparison. If the name begins with hop, it is a cluster like that
// subject's, else one gateway; what follows @ is the driver.
func Other(name, binary string) Subject {
	flags, start := []string(nil), gateway
	if _, driver, ok := strings.Cut(name, "@"); ok {
		flags = []string{"--driver", driver}
	}
	if strings.HasPrefix(name, "hop") {
		start = func(flags []string) starter { return nodes(2, true, flags) }
	}
	return Subject{Name: name, Title: "**Reseat**, build " + name, Resumable: true, Other: true, start: func(p Place, a netip.AddrPort) (*Proxy, error) {
		p.Reseat = binary
		return start(flags)(p, a)
	}}
}

// run starts a gateway. It waits as long for an answer as it does for any sign of life, where
// clients have pauses: that changes nothing while they have traffic.
func (p Place) run(addr netip.AddrPort, args ...string) (*Proxy, error) {
	argv := slices.Concat([]string{p.Reseat, "--listen", addr.String(), "--log-level", "warn", "--upstream", "ws://" + p.Game.String()}, args, p.Leg.flags())
	if p.Patient {
		argv = append(argv, "--answer-timeout", "30s")
	}
	return start(p, addr, 1, argv...)
}

func gateway(flags []string) starter {
	return func(p Place, addr netip.AddrPort) (*Proxy, error) {
		return p.run(addr, append([]string{"--admin", "off"}, flags...)...)
	}
}

// withEd25519 gives the gateway a key of that kind. Its own one is symmetric.
func withEd25519(flags []string) starter {
	return func(p Place, addr netip.AddrPort) (*Proxy, error) {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(p.Dir, "key")
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
			return nil, err
		}
		return gateway(append(flags, "--token-key-file", file))(p, addr)
	}
}

func nginx(p Place, addr netip.AddrPort) (*Proxy, error) {
	return p.runNGINX(addr, fmt.Sprintf(nginxConf, p.Dir, p.Files, p.Game, addr, p.Leg.nginx()), 1)
}

// runNGINX starts nginx with so many workers.
func (p Place) runNGINX(addr netip.AddrPort, conf string, workers int) (*Proxy, error) {
	if os.Geteuid() == 0 {
		conf = "user root;\n" + conf
	}
	file := filepath.Join(p.Dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	return start(p, addr, workers+1, "nginx", "-p", p.Dir, "-e", "stderr", "-c", file)
}

const nginxConf = `daemon off;
worker_processes 1;
error_log stderr crit;
pid %[1]s/nginx.pid;
worker_rlimit_nofile %[2]d;
events { worker_connections %[2]d; }
http {
	access_log off;
	upstream game { server %[3]s; }
	server {
		listen %[4]s backlog=4096%[5]s;
		client_body_temp_path %[1]s/body;
		proxy_temp_path %[1]s/proxy;
		fastcgi_temp_path %[1]s/fastcgi;
		uwsgi_temp_path %[1]s/uwsgi;
		scgi_temp_path %[1]s/scgi;
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
	if err := os.WriteFile(file, fmt.Appendf(nil, haproxyConf, p.Files/2-100, addr, p.Game), 0o600); err != nil {
		return nil, err
	}
	return start(p, addr, 1, "haproxy", "-db", "-q", "-f", file)
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
