// Package hop describes a client to the node that has its session, when the client has come
// to another node of the cluster: the headers of the request that is passed on.
package hop

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// The headers. A client's own are removed by Strip; nodes believe them on connections between
// nodes alone.
const (
	prefix  = "Reseat-Node-"
	count   = prefix + "Hop"     // 1: passed on once
	from    = prefix + "From"    // id of the node that passes on
	peer    = prefix + "Peer"    // the client's address, with a port where it is known
	secure  = prefix + "Tls"     // version and server name of the client's TLS, or none
	host    = prefix + "Host"    // the host that the client asked for
	proto   = prefix + "Proto"   // https or http, as the client sees it
	arrived = prefix + "Arrived" // microseconds since the request arrived
)

// A Client describes a client that one node passes on to another.
type Client struct {
	From  string // id of the node that the client has come to
	Peer  string // see the header
	TLS   string // the same
	Host  string
	HTTPS bool // the client speaks TLS, to the node or to a trusted proxy
	Age   time.Duration
}

// maxAge bounds Client.Age: a request that waited longer was given up.
const maxAge = time.Minute

// Passed reports whether another node has passed a request on, if it came from a node.
func Passed(h http.Header) bool { return len(h[count]) > 0 }

// Strip removes the headers of this package, and those of proxies that Client replaces.
func Strip(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, prefix) {
			delete(h, name)
		}
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port"} {
		delete(h, name)
	}
}

// Set sets the headers that describe c.
func (c Client) Set(h http.Header) {
	Strip(h)
	scheme := "http"
	if c.HTTPS {
		scheme = "https"
	}
	for name, value := range map[string]string{
		count: "1", from: c.From, peer: c.Peer, secure: c.TLS, host: c.Host, proto: scheme, arrived: strconv.FormatInt(max(c.Age, 0).Microseconds(), 10),
	} {
		h[name] = []string{value}
	}
}

// Read returns what Set has described, and removes it from h.
func Read(h http.Header) (c Client, err error) {
	one := func(name string) string {
		if v := h[name]; len(v) == 1 {
			return v[0]
		}
		err = errors.Join(err, fmt.Errorf("%s: want it once", name))
		return ""
	}
	c = Client{From: one(from), Peer: one(peer), TLS: one(secure), Host: one(host), HTTPS: one(proto) == "https"}
	hops, age := one(count), one(arrived)
	if err != nil {
		return Client{}, err
	}
	if hops != "1" {
		return Client{}, fmt.Errorf("%s: %q, want 1: nodes pass a connection on once", count, hops)
	}
	micros, err := strconv.ParseUint(age, 10, 63)
	if err != nil {
		return Client{}, fmt.Errorf("%s: %w", arrived, err)
	}
	c.Age = min(time.Duration(min(micros, uint64(maxAge/time.Microsecond)))*time.Microsecond, maxAge)
	if _, err := netip.ParseAddrPort(c.Peer); err != nil {
		if _, err := netip.ParseAddr(c.Peer); err != nil {
			return Client{}, fmt.Errorf("%s: %w", peer, err)
		}
	}
	Strip(h)
	return c, nil
}
