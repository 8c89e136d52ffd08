package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/hop"
	"reseat/gateway/pipe"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens"
)

// This file passes a client that comes back to another node of a cluster on to the node that
// has its session. The one is called the front node, the other the owner. New sessions are
// never passed on.

const (
	// forwardTimeout is how long an owner may take to answer.
	forwardTimeout = 5 * time.Second
	// maxFirstAnswer is how much of an owner's answer is read at once.
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
func (g *Gateway) ownerOf(r *http.Request, c tokens.Claims) string {
	if g.cfg.Cluster == nil || len(c.Session) != cluster.IDLen+SessionIDLen {
		return ""
	}
	if _, ok := passed(r); ok {
		return ""
	}
	node := c.Owner
	if node == "" {
		node = c.Session[:cluster.IDLen]
	}
	if node != g.cfg.Cluster.ID() {
		return node
	}
	return g.moves.node(c.Session)
}

// resumeByCookieElsewhere is resumeElsewhere for a plain client. It reports false if the
// client gets a new session here.
func (g *Gateway) resumeByCookieElsewhere(w http.ResponseWriter, r *http.Request, rt *route, token string) bool {
	if g.cfg.Cluster == nil {
		return false
	}
	claims, err := g.keys.VerifyForOwner(token)
	if err != nil {
		return false
	}
	node := g.ownerOf(r, claims)
	if node == "" {
		return false
	}
	switch answer, verdict, _ := g.passOn(w, r, rt, node, claims.Session); answer {
	case passServed:
		return true
	case passGone, passNotThere:
		return false
	default:
		if g.forwardMoved(w, r) {
			return true
		}
		g.logNotForwarded(r, claims.Session, verdict)
		w.Header().Set("Retry-After", "1")
		g.refuseHTTP(w, r, http.StatusServiceUnavailable, "node_unreachable", "the node of this session does not answer")
		return true
	}
}

// A passAnswer is the result of passing a client on.
type passAnswer uint8

const (
	passServed      passAnswer = iota // the client has been served
	passNotThere                      // the owner cannot resume the session
	passGone                          // there is no such session any more
	passUnreachable                   // nobody knows
)

// passOn connects a client with the owner of its session, and returns when the connection
// has ended, or why it could not be made. other is the node that has the session now, if the owner knows
// one.
func (g *Gateway) passOn(w http.ResponseWriter, r *http.Request, rt *route, node, id string) (_ passAnswer, v cluster.Judgement, other string) {
	began := time.Now()
	var conn net.Conn
	var first []byte
	var err error
	var verdict cluster.Judgement
	away(r.Context(), func() {
		if conn, first, err = g.askOwner(r, node); err != nil {
			verdict = g.cfg.Cluster.Judge(r.Context(), node)
			verdict.Evidence = fmt.Sprintf("%s (%v)", verdict.Evidence, err)
		}
	})
	switch {
	case err != nil && g.sessionIsGone(rt, verdict):
		g.metrics.forwards.WithLabelValues("out", "gone").Inc()
		return passGone, verdict, ""
	case err != nil:
		g.metrics.forwards.WithLabelValues("out", "unreachable").Inc()
		return passUnreachable, verdict, ""
	case len(first) >= len(notHere) && string(first[:len(notHere)]) == notHere:
		conn.Close()
		g.metrics.forwards.WithLabelValues("out", "not_there").Inc()
		return passNotThere, verdict, movedFrom(first)
	}
	g.metrics.forwards.WithLabelValues("out", "ok").Inc()
	g.metrics.forward.Observe(time.Since(began).Seconds())
	g.log.Debug("resume.forwarded", "session", id, "node", node, "peer", g.clientAddr(r))
	g.relay(w, r, conn, first)
	return passServed, verdict, ""
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
func (g *Gateway) sessionIsGone(rt *route, v cluster.Judgement) bool {
	terms := &registry.Terms{Policy: g.cfg.Default}
	if rt != nil {
		terms = rt.terms
	}
	return v.EndsSessions(terms.LongestGrace())
}

// askOwner sends a client's request to a node, and returns the connection with the beginning
// of the answer.
func (g *Gateway) askOwner(r *http.Request, node string) (net.Conn, []byte, error) {
	ctx, cancel := context.WithTimeout(r.Context(), forwardTimeout)
	defer cancel()
	conn, err := g.cfg.Cluster.Dial(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	until, _ := ctx.Deadline()
	conn.SetDeadline(until)
	first := make([]byte, maxFirstAnswer)
	n := 0
	if _, err = conn.Write(g.describedRequest(r)); err == nil {
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
func (g *Gateway) describedRequest(r *http.Request) []byte {
	c := hop.Client{From: g.cfg.Cluster.ID(), Peer: g.clientAddr(r).String(), TLS: "none", Host: g.target(r).Host, HTTPS: g.secure(r)}
	if direct, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && direct.Addr().Unmap() == g.clientAddr(r) {
		c.Peer = netip.AddrPortFrom(g.clientAddr(r), direct.Port()).String()
	}
	if r.TLS != nil {
		c.TLS = tls.VersionName(r.TLS.Version) + ";" + r.TLS.ServerName
	}
	out := *r
	out.Header = r.Header.Clone()
	c.Set(out.Header)
	return requestHead(&out)
}

// relay copies bytes between the client of r and the owner of its session until one
// connection ends. first is what the owner has said already.
func (g *Gateway) relay(w http.ResponseWriter, r *http.Request, owner net.Conn, first []byte) {
	client, early, err := hijack(w)
	if err != nil {
		owner.Close()
		g.log.Debug("client.disconnected_early", "err", err)
		return
	}
	leaveGate(r.Context()) // an upgrade and a drain don't wait for it
	client.SetWriteDeadline(time.Now().Add(forwardTimeout))
	if _, err = client.Write(first); err == nil {
		_, err = owner.Write(early)
	}
	if err != nil || !g.relays.add(client, owner) {
		client.Close()
		owner.Close()
		return
	}
	client.SetWriteDeadline(time.Time{})
	pipe.Copy(client, owner)
	g.relays.remove(client)
}

// Forwarded counts the client connections that other nodes pass on to this one, and those that
// this one passes on.
func (g *Gateway) Forwarded() (in, out int) { return int(g.passedIn.Load()), g.relays.count() }

// Passed returns a channel that is closed once this node passes no client on to another.
func (g *Gateway) Passed() <-chan struct{} { return g.relays.done() }

// refuseElsewhere refuses a resume of another node's session.
func (g *Gateway) refuseElsewhere(w http.ResponseWriter, r *http.Request, refusal *session.Refusal, id string, v cluster.Judgement) {
	g.logNotForwarded(r, id, v)
	a, ok := g.answerResume(w, r, nil)
	if ok {
		g.refuseResume(a, refusal)
		name := wire.Name(refusal.Code)
		g.keepRefusal(r, http.StatusSwitchingProtocols, refusal.Code, name, v.Evidence, hint(name, ""))
	}
}

func (g *Gateway) logNotForwarded(r *http.Request, id string, v cluster.Judgement) {
	g.refusals.info("resume.not_forwarded", "session", id, "node", id[:cluster.IDLen], "why", v.Evidence, "path", requestPath(r), "peer", g.clientAddr(r))
}
