package operate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// secured adds a certificate to a gateway's flags, and returns its clients' TLS
// configuration.
func secured(t *testing.T, flags []string) (with []string, trust *tls.Config) {
	t.Helper()
	cert, key := certificate(t)
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	trust = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	trust.RootCAs.AppendCertsFromPEM(text)
	return append(flags, "--tls-cert="+cert, "--tls-key="+key), trust
}

// halfHello is the header of a TLS record of 512 bytes, and of the ClientHello in it,
// RFC 8446 sections 5.1 and 4.
const halfHello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

// stranger dials from the attackers' address.
var stranger = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}

// An attack is what a stranger does with one connection to the TLS address. It ends
// when the gateway has closed the connection; its error is what the gateway did wrong.
type attack func(c net.Conn) error

// stalls are never finished: the gateway keeps the connections for five seconds.
var stalls = map[string]attack{
	"nothing":          func(c net.Conn) error { return closed(c) },
	"half a handshake": func(c net.Conn) error { io.WriteString(c, halfHello); return closed(c) },
	"a byte a second": func(c net.Conn) error {
		go func() {
			for i := range len(halfHello) {
				if _, err := io.WriteString(c, halfHello[i:i+1]); err != nil {
					return
				}
				<-time.After(time.Second)
			}
		}()
		return closed(c)
	},
}

// closed reads up to the end of a connection.
func closed(c net.Conn) error {
	c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the gateway keeps the connection")
	}
	return nil
}

// attack makes a number of strangers repeat each attack until enough, at least once.
func (g *gateway) attack(all *sync.WaitGroup, strangers int, enough *atomic.Bool) {
	for name, f := range stalls {
		for range strangers {
			all.Go(func() {
				for done := false; !done; done = enough.Load() {
					c, err := stranger.Dial("tcp", g.addr)
					if err == nil {
						err = f(c)
						c.Close()
					}
					if err != nil {
						g.t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
	}
}

// Thousands of strangers connect to the TLS address and send nothing, a little, or too
// slowly. They cost the players no message and no connection, prevent no new session and no
// resume, and leave nothing behind.
func TestAttacksOnTheTLSAddressCostPlayersNothing(t *testing.T) {
	ga := newGame(t, 200*time.Millisecond)
	// The players share two processors with thousands of strangers, and answer when they get one.
	flags, trust := secured(t, []string{"--upstream=" + ga.url(), "--answer-timeout=30s", "--heartbeat=30s"})
	playBesideStrangers(t, start(t, flags...), trust)
	for _, j := range ga.joined() {
		j.wantCount(t)
	}
}

// wantCount checks that a player has sent consecutive numbers.
func (j *join) wantCount(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, said := range j.heard {
		if said != fmt.Sprint(i+1) {
			t.Fatalf("the game heard %q as word %d of a player", said, i+1)
		}
	}
}

func playBesideStrangers(t *testing.T, g *gateway, trust *tls.Config) {
	join := func(from int) *player {
		return (&player{url: "wss://" + g.addr, from: fmt.Sprint("127.0.0.", from), tls: trust}).join(t)
	}
	var enough atomic.Bool
	var all, strangers sync.WaitGroup
	defer func() { // also if the test is given up: they use t
		enough.Store(true)
		all.Wait()
		strangers.Wait()
	}()
	for i := range 200 {
		p := join(10 + i/20)
		all.Go(func() { p.count(&enough) })
	}
	before := g.metric("process_open_fds", "")
	g.attack(&strangers, 700, &enough)
	eventually(t, "thousands stand there", func() bool { return g.metric("process_open_fds", "") > before+2000 })
	back := join(1)
	for range 3 {
		back.conn.CloseNow()
		back.next()
	}
	back.leave()
	enough.Store(true)
	all.Wait()
	strangers.Wait()
	if n := g.metric("reseat_sessions_detached_total", ""); n != 3 {
		t.Errorf("%v connections were lost, want the 3 that a player cut itself", n)
	}
	eventually(t, "the descriptors are back", func() bool { return g.metric("process_open_fds", "") <= before })
	eventually(t, "the goroutines have ended", func() bool { return g.metric("go_goroutines", "") < 1500 })
}

// leave ends the session, and waits for the gateway's answer.
func (p *player) leave() {
	p.tell("bye")
	for {
		if _, err := p.read(); err != nil {
			p.conn.CloseNow()
			return
		}
	}
}

// count reads and echoes the game server's count until enough.
func (p *player) count(enough *atomic.Bool) {
	for n := 1; !enough.Load(); n++ {
		if got := p.next(); got != fmt.Sprint(n) {
			p.t.Errorf("got %q, want %d", got, n)
			return
		}
		p.say(fmt.Sprint(n))
	}
	if p.resumes > 0 {
		p.t.Errorf("a player was cut %d times", p.resumes)
	}
}
