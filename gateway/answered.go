package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"net/http"

	"reseat/gateway/dial"
	"reseat/gateway/front"
	"reseat/gateway/upgrade"
)

// ResumeAnswered continues a resume whose client a predecessor has answered with 101.
func (g *Gateway) ResumeAnswered(c upgrade.LateConn) error {
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.Request)))
	if err != nil {
		c.Conn.Close()
		return fmt.Errorf("request: %w", err)
	}
	req.RemoteAddr = cmp.Or(c.Peer, c.Conn.RemoteAddr().String())
	if c.Secure {
		req.TLS = &tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true}
	}
	r := front.Read(req, g.cfg.TrustedProxies, g.table)
	a := dial.Arrival{Request: r, At: g.clock.Now(), Conn: c.Conn, Early: c.Early}
	if r.Offer.Resume {
		g.finishResume(&a)
		return nil
	}
	if r.Route != nil {
		if e, _, ok := g.sessionOfCookie(&a, cookieToken(r)); ok {
			g.finishByCookie(r, &a, e)
			return nil
		}
	}
	c.Conn.Close() // the client tries again
	return nil
}
