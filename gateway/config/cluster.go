package config

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"reseat/gateway/policy"
)

// Cluster are the settings --cluster* and --node-*. Without URLs there is no cluster.
type Cluster struct {
	URLs      []string // of NATS servers
	Name      string
	CredsFile string // not opened here, nor are the others
	CAFile    string
	Plaintext bool   // a URL was plaintext://, and is nats:// now
	NodeName  string // "": the host name
	Listen    string
	Advertise string // "": see the flag
	DeadAfter time.Duration
}

// Enabled reports whether this gateway is part of a cluster.
func (c *Cluster) Enabled() bool { return len(c.URLs) > 0 }

// encrypted reports whether the connections to NATS use TLS. One tls:// URL, or --cluster-ca, makes all of them do so.
func (c *Cluster) encrypted() bool {
	return c.CAFile != "" || slices.ContainsFunc(c.URLs, func(s string) bool { return strings.HasPrefix(s, "tls://") })
}

// elsewhere returns the HOST:PORT of a nats:// server on another machine, "" if there is none.
func (c *Cluster) elsewhere() string {
	for _, s := range c.URLs {
		if u, err := url.Parse(s); err == nil && u.Scheme == "nats" && !isLoopback(u.Host) {
			return u.Host
		}
	}
	return ""
}

// plaintext is the scheme that allows a connection without TLS to another machine.
const plaintext = "plaintext"

// natsURL accepts nats://, tls:// and plaintext:// with HOST[:PORT], with a user and password or a token.
func natsURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != plaintext || !isURLHost(u.Hostname()) && !isHost(u.Hostname()) || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", want("nats://HOST:4222 or tls://HOST:4222", s)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "4222")
	}
	return u.String(), nil
}

var clusterNames = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// clusterName accepts what may begin subjects and buckets of NATS.
func clusterName(s string) (string, error) {
	if !clusterNames.MatchString(s) {
		return "", want("1 to 32 letters, digits, _ and -", s)
	}
	return s, nil
}

// nodeName accepts a name for people.
func nodeName(s string) (string, error) {
	if v, err := identifier(s); err != nil || len(v) > 63 || strings.ContainsAny(v, "/?#") {
		return "", want("a name of 1 to 63 characters without blanks, /, ? and #", s)
	}
	return s, nil
}

// advertised accepts HOST:PORT of this node.
func advertised(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil || !isPort(port) || strings.Trim(port, "0") == "" || !isHost(host) || isEvery(host) {
		return "", want("HOST:PORT by which other nodes reach this one", s)
	}
	return s, nil
}

// checkCluster requires keys that all nodes share.
func (d *draft) checkCluster() error {
	c := &d.Cluster
	switch {
	case !c.Enabled():
		return nil
	case len(d.TokenKeyFiles) == 0:
		return d.fault("cluster", "requires --token-key-file: all nodes of a cluster share the key of the resume tokens")
	case !c.encrypted() && c.elsewhere() != "":
		return d.fault("cluster", "nats://%[1]s is on another machine: use tls://%[1]s, or plaintext://%[1]s if nobody else can read and write that network", c.elsewhere())
	case sameListener(d.Listen, c.Listen), d.Admin != "" && sameListener(d.Admin, c.Listen):
		return d.fault("node-listen", "want another port than --listen and --admin, got %q", c.Listen)
	}
	for i, s := range c.URLs {
		if rest, ok := strings.CutPrefix(s, plaintext); ok {
			c.URLs[i], c.Plaintext = "nats"+rest, true
		}
	}
	return nil
}

// Durable reports whether any route has durable sessions.
func (s *Settings) Durable() bool {
	return s.Gateway.Default.Durable || slices.ContainsFunc(s.Gateway.Routes, func(r policy.Route) bool { return r.Policy.Durable })
}
