//go:build linux

package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// nodes starts a cluster with one NATS server. The processes are those of the nodes: NATS is not
// on the way of a message.
func nodes(n int, hop bool, flags []string) starter {
	return func(p Place, _ netip.AddrPort) (_ *Proxy, err error) {
		x := &Proxy{Hop: hop}
		defer func() {
			if err != nil {
				x.Stop()
			}
		}()
		key, engine := filepath.Join(p.Dir, "token.key"), freeAddr()
		if err := os.WriteFile(key, []byte("a secret of the benchmark, 32 bytes or more\n"), 0o600); err != nil {
			return nil, err
		}
		nats, err := start(p.in("nats"), engine, 1, p.NATS, "-a", "127.0.0.1", "-p", fmt.Sprint(engine.Port()), "-js", "-sd", filepath.Join(p.Dir, "nats"))
		if err != nil {
			return nil, err
		}
		x.more = append(x.more, nats)
		var admins []netip.AddrPort
		for i := range n {
			addr, admin := freeAddr(), freeAddr()
			node, err := p.in(fmt.Sprint("node", i)).run(addr, append([]string{"--admin", admin.String(), "--token-key-file", key, "--cluster", "nats://" + engine.String(), "--node-listen", "127.0.0.1:0"}, flags...)...)
			if err != nil {
				return nil, err
			}
			x.more, admins = append(x.more, node), append(admins, admin)
			x.Addrs, x.PIDs = append(x.Addrs, addr), append(x.PIDs, node.PIDs...)
		}
		x.log = x.more[1].log
		for _, a := range admins {
			if err := complete(a, n); err != nil {
				return nil, err
			}
		}
		return x, nil
	}
}

// complete waits until a node knows all.
func complete(admin netip.AddrPort, n int) error {
	for end := time.Now().Add(startLimit); ; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get(fmt.Sprintf("http://%s/api/v1/nodes", admin))
		if err != nil {
			return err
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		if bytes.Count(b, []byte(`"state":"up"`)) == n {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not %d nodes: %s", n, b)
		}
	}
}
