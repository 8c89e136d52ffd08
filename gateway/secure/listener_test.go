package secure

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
)

func TestVersionsAndProtocols(t *testing.T) {
	for _, c := range []struct {
		what        string
		least, most uint16
		offer       []string
		version     uint16 // 0: refused
		agreed      string
	}{
		{"TLS 1.0", tls.VersionTLS10, tls.VersionTLS10, nil, 0, ""},
		{"TLS 1.1", tls.VersionTLS10, tls.VersionTLS11, []string{"http/1.1"}, 0, ""},
		{"TLS 1.2", tls.VersionTLS10, tls.VersionTLS12, []string{"http/1.1"}, tls.VersionTLS12, "http/1.1"},
		{"TLS 1.3", tls.VersionTLS12, tls.VersionTLS13, []string{"http/1.1"}, tls.VersionTLS13, "http/1.1"},
		{"both protocols", 0, 0, []string{"http/1.1", "h2"}, tls.VersionTLS13, "h2"},
		{"no ALPN", 0, 0, nil, tls.VersionTLS13, ""},
		{"another protocol", 0, 0, []string{"ftp"}, 0, ""},
		{"a challenge that nobody asked for", 0, 0, []string{"acme-tls/1"}, 0, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, pair, _ := openFor(t, "game.example")
				config := pair.Client(c.offer...)
				config.MinVersion, config.MaxVersion = c.least, c.most
				client, server, err := d.shake(config)
				if c.version == 0 {
					if err == nil {
						t.Fatalf("accepted: %+v", client.ConnectionState())
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer server.Close()
				if s := client.ConnectionState(); s.Version != c.version || s.NegotiatedProtocol != c.agreed {
					t.Errorf("got %s with %q", tls.VersionName(s.Version), s.NegotiatedProtocol)
				}
			})
		})
	}
}

func TestCiphersThatGoCallsInsecureAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, pair, _ := openFor(t, "game.example")
		for _, suite := range tls.InsecureCipherSuites() {
			config := pair.Client()
			config.MaxVersion, config.CipherSuites = tls.VersionTLS12, []uint16{suite.ID}
			if _, server, err := d.shake(config); err == nil {
				server.Close()
				t.Errorf("%s was accepted", suite.Name)
			}
		}
	})
}

func TestSlowTLSHandshakeTimesOutWithoutDelayingOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, pair, _ := openFor(t, "game.example")
		began := time.Now()
		slow := make([]*wstest.Conn, 5000)
		var trickling sync.WaitGroup
		defer trickling.Wait()
		for i := range slow {
			slow[i] = d.dial()
			switch beginning := []byte{22, 3, 1, 2, 0, 1, 0}; i % 3 { // of a ClientHello
			case 1:
				slow[i].Write(beginning)
			case 2:
				trickling.Go(func() { trickle(slow[i], beginning) })
			}
		}
		time.Sleep(4 * time.Second)
		d.must(pair.Client())
		for _, c := range slow {
			if n, err := c.Read(make([]byte, 1)); n > 0 || err != io.EOF {
				t.Fatalf("read %d, %v; want the end", n, err)
			}
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the slow ones were closed after %v, want 5s", took)
		}
	})
}

// trickle writes a byte a second.
func trickle(c *wstest.Conn, b []byte) {
	for i := range b {
		if _, err := c.Write(b[i : i+1]); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

func TestAcceptedConnectionHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, pair, _ := openFor(t, "game.example")
		client, server := d.must(pair.Client())
		time.Sleep(time.Minute)
		go client.Write([]byte("hello"))
		b := make([]byte, 5)
		if _, err := io.ReadFull(server, b); err != nil || string(b) != "hello" {
			t.Errorf("got %q, %v", b, err)
		}
	})
}

func TestPlainHTTPIsAnsweredWith400(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := openFor(t, "game.example")
		c := d.dial()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: game.example\r\n\r\n")
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || !strings.Contains(string(answer), "https://") {
			t.Errorf("answered %q, %v", answer, err)
		}
		c = d.dial()
		io.WriteString(c, "SSH-2.0-OpenSSH\r\n")
		if answer, _ := io.ReadAll(c); strings.Contains(string(answer), "HTTP") {
			t.Errorf("a client without HTTP got %q", answer)
		}
	})
}

func TestCloseClosesHandshakesAndUnacceptedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, pair, _ := openFor(t, "game.example")
		slow := d.dial()
		waiting := tls.Client(d.dial(), pair.Client())
		if err := waiting.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the listener's side is done too, and offers the connection to Accept
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
		if _, err := slow.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the handshake was not cancelled: %v", err)
		}
		if _, err := waiting.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the unaccepted connection was not closed: %v", err)
		}
	})
}

// A troubled listener fails a few times before it works.
type troubled struct {
	net.Listener
	errs chan error
}

func (l *troubled) Accept() (net.Conn, error) {
	select {
	case err := <-l.errs:
		return nil, err
	default:
		return l.Listener.Accept()
	}
}

func TestListenerErrorsReachTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair := testcert.New(t, "game.example")
		cert, key := pair.Write(t.TempDir())
		certs, err := Open(Config{CertFile: cert, KeyFile: key})
		if err != nil {
			t.Fatal(err)
		}
		inner, errs := wstest.NewListener(64<<10), make(chan error, 2)
		errs <- errors.New("no descriptor left")
		errs <- errors.New("still none")
		l := certs.Listen(&troubled{inner, errs})
		defer l.Close()
		for _, want := range []string{"no descriptor left", "still none"} {
			if c, err := l.Accept(); err == nil || err.Error() != want {
				t.Fatalf("Accept: %v, %v; want %s", c, err, want)
			}
		}
		d := &door{Listener: l, t: t, inner: inner}
		d.must(pair.Client())
	})
}

func TestPanicInOneHandshakeDoesNotAffectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, pair, _ := openFor(t, "game.example")
		good := d.config.GetCertificate
		d.config.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if h.ServerName == "evil.example" {
				panic("a bug")
			}
			return good(h)
		}
		evil := pair.Client()
		evil.ServerName = "evil.example"
		if _, _, err := d.shake(evil); err == nil {
			t.Fatal("the handshake succeeded")
		}
		d.must(pair.Client())
		synctest.Wait()
		if n := d.log.count("tls.panic", "a bug"); n != 1 {
			t.Errorf("%d log lines, want 1", n)
		}
	})
}
