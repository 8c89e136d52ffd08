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
func nodes(n int, hop bool, args []string) func(Place, netip.AddrPort) (*Proxy, error) {
	return func(p Place, first netip.AddrPort) (x *Proxy, err error) {
		key := filepath.Join(p.Dir, "token.key")
		if err := os.WriteFile(key, []byte("a secret of the benchmark, 32 bytes or more\n"), 0o600); err != nil {
			return nil, err
		}
		natsAddr := freeAddr()
		nats, err := start(p.in("nats"), natsAddr, 1, nil, p.NATS, "-a", "127.0.0.1", "-p", fmt.Sprint(natsAddr.Port()), "-js", "-sd", filepath.Join(p.Dir, "nats"))
		if err != nil {
			return nil, err
		}
		all := []*Proxy{nats}
		defer func() {
			if err != nil {
				for _, y := range all {
					y.Stop()
				}
			}
		}()
		var admins []netip.AddrPort
		games := []netip.AddrPort{p.Game}
		for len(games) < p.Games {
			games = append(games, netip.AddrPortFrom(games[len(games)-1].Addr().Next(), p.Game.Port()))
		}
		for i := range n {
			addr := first
			if i > 0 {
				addr = freeAddr()
			}
			admin := freeAddr()
			argv := append([]string{p.Reseat, "--listen", addr.String(), "--admin", admin.String(), "--log-level", "warn", "--upstream", "ws://" + games[i%len(games)].String(),
				"--token-key-file", key, "--cluster", "nats://" + natsAddr.String(), "--node-listen", "127.0.0.1:0"}, append(p.patience(), args...)...)
			y, err := start(p.in(fmt.Sprint("node", i)), addr, 1, nil, argv...)
			if err != nil {
				return nil, err
			}
			all, admins = append(all, y), append(admins, admin)
		}
		for _, a := range admins {
			if err := complete(a, n); err != nil {
				return nil, err
			}
		}
		x = all[1]
		x.Hop, x.more = hop, append(all[:1:1], all[2:]...)
		for _, y := range all[2:] {
			x.Others, x.PIDs = append(x.Others, y.Addr), append(x.PIDs, y.PIDs...)
		}
		return x, nil
	}
}

// in returns the place with a directory of its own in it.
func (p Place) in(name string) Place {
	p.Dir = filepath.Join(p.Dir, name)
	os.Mkdir(p.Dir, 0o700) // else the first file in it can't be made
	return p
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
