package owner

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/front"
	"reseat/gateway/handshake"
	"reseat/gateway/hop"
	"reseat/gateway/link"
	"reseat/gateway/pipe"
	"reseat/gateway/registry"
	"reseat/tokens"
)

// This file passes a client that comes back to another node of a cluster on to the node that
// has its session. The one is called the front node, the other the owner. New sessions are
// never passed on.

const (
	// forwardTimeout limits the answer of an owner.
	forwardTimeout = 5 * time.Second
	// maxFirstAnswer bounds the first read of an owner's answer, in bytes.
	maxFirstAnswer = 4 << 10
)

// notHere begins the answer of an owner that cannot resume a plain client: the front node is
// to serve it then.
const notHere = "HTTP/1.1 421"

// MovedHeader says in that answer which node has the session now, and in the control API's answer
// of a node that does not have it.
const MovedHeader = "Reseat-Node-Moved"

// ownerOf returns the node that a token leads to, "" if that is this one, or if nobody else is
// to be asked.
func (o *Owner) ownerOf(r *front.Request, c tokens.Claims) string {
	if o.Cluster == nil || len(c.Session) != cluster.IDLen+registry.SessionIDLen {
		return ""
	}
	if r.From != nil {
		return ""
	}
	node := c.Owner
	if node == "" {
		node = c.Session[:cluster.IDLen]
	}
	if node != o.Cluster.ID() {
		return node
	}
	return o.recipients.node(c.Session)
}

// passOn connects a client with a node that has its session, and returns when the connection
// has ended, or why it could not be made. other is the node that has the session now, if that node
// knows one.
func (o *Owner) passOn(s *search, node string) (_ Answer, other string) {
	r, id := s.r, s.claims.Session
	began := time.Now()
	var conn net.Conn
	var first []byte
	var err error
	s.v = cluster.Judgement{}
	r.Visit.Away(func() {
		if conn, first, err = o.askOwner(r, node); err != nil {
			s.v = o.Cluster.Judge(r.Context(), node)
			s.v.Evidence = fmt.Sprintf("%s (%v)", s.v.Evidence, err)
		}
	})
	forwards := o.Watch.Metrics.Forwards
	switch {
	case err != nil:
		label := "unreachable"
		if o.sessionIsGone(r.Route, s.v) {
			label = "gone"
		}
		forwards.WithLabelValues("out", label).Inc()
		if s.lost() {
			return Lost, ""
		}
		return Unreachable, ""
	case len(first) >= len(notHere) && string(first[:len(notHere)]) == notHere:
		conn.Close()
		forwards.WithLabelValues("out", "not_there").Inc()
		return NotThere, movedFrom(first)
	}
	forwards.WithLabelValues("out", "ok").Inc()
	o.Watch.Metrics.Forward.Observe(time.Since(began).Seconds())
	o.Log.Debug("resume.forwarded", "session", id, "node", node, "peer", r.Addr)
	o.relay(s.w, r, conn, first)
	return Served, ""
}

// movedFrom reads MovedHeader in the beginning of an answer.
func movedFrom(answer []byte) string {
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	return resp.Header.Get(MovedHeader)
}

// sessionIsGone reports whether a node's session of this route cannot live any more.
func (o *Owner) sessionIsGone(rt *front.Route, v cluster.Judgement) bool {
	terms := &registry.Terms{Policy: o.Default}
	if rt != nil {
		terms = rt.Terms
	}
	return v.EndsSessions(terms.LongestGrace())
}

// askOwner sends a client's request to a node, and returns the connection with the beginning
// of the answer.
func (o *Owner) askOwner(r *front.Request, node string) (net.Conn, []byte, error) {
	ctx, cancel := context.WithTimeout(r.Context(), forwardTimeout)
	defer cancel()
	conn, first, err := o.ask(ctx, r, node)
	if errors.Is(err, link.ErrRefused) { // it is being upgraded: its successor listens
		conn, first, err = o.ask(ctx, r, node)
	}
	return conn, first, err
}

func (o *Owner) ask(ctx context.Context, r *front.Request, node string) (net.Conn, []byte, error) {
	conn, err := o.Cluster.Dial(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	until, _ := ctx.Deadline()
	conn.SetDeadline(until)
	first := make([]byte, maxFirstAnswer)
	n := 0
	if _, err = conn.Write(o.describedRequest(r)); err == nil {
		n, err = io.ReadAtLeast(conn, first, len(notHere))
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	conn.SetDeadline(time.Time{})
	return conn, first[:n], nil
}

// describedRequest is r as the owner gets it.
func (o *Owner) describedRequest(r *front.Request) []byte {
	c := hop.Client{From: o.Cluster.ID(), Peer: r.Addr.String(), TLS: "none", Host: r.Target.Host, HTTPS: r.Secure}
	if direct, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && direct.Addr().Unmap() == r.Addr {
		c.Peer = netip.AddrPortFrom(r.Addr, direct.Port()).String()
	}
	if r.TLS != nil {
		c.TLS = tls.VersionName(r.TLS.Version) + ";" + r.TLS.ServerName
	}
	out := *r.Request
	out.Header = r.Header.Clone()
	c.Set(out.Header)
	return front.Head(&out)
}

// relay copies bytes between the client of r and the owner of its session until one
// connection ends. first is what the owner has already sent.
func (o *Owner) relay(w http.ResponseWriter, r *front.Request, owner net.Conn, first []byte) {
	client, early, err := handshake.Hijack(w)
	if err != nil {
		owner.Close()
		o.Log.Debug("client.disconnected_early", "err", err)
		return
	}
	r.Visit.Leave() // an upgrade and a drain don't wait for it
	client.SetWriteDeadline(time.Now().Add(forwardTimeout))
	if _, err = client.Write(first); err == nil {
		_, err = owner.Write(early)
	}
	client.SetWriteDeadline(time.Time{})
	if err == nil && o.relays.add(owner, nil) {
		if o.Driver.Relay(client, owner, func() { o.relays.remove(owner) }) {
			return
		}
		defer o.relays.remove(owner)
		if o.relays.add(owner, client) {
			pipe.Copy(client, owner)
			return
		}
	}
	client.Close()
	owner.Close()
}

// Forwarded counts the client connections that other nodes pass on to this one, and those that
// this one passes on.
func (o *Owner) Forwarded() (in, out int) { return int(o.passedIn.Load()), o.relays.count() }

// Passed returns a channel that is closed once this node passes no client on to another.
func (o *Owner) Passed() <-chan struct{} { return o.relays.done() }
