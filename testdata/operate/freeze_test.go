package operate

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	frozen   = flag.Int("frozen", 500, "how many sessions an upgrade moves; more than 2000 without -race")
	upgrades = flag.Int("upgrades", 5, "how many upgrades follow one another")
)

// Upgrades in a row move all sessions, and their players go on as if nothing had happened.
// The log says how long the sessions stood still, by the gateway's own account.
func TestUpgradesMoveAllSessions(t *testing.T) {
	for i, driver := range []string{"net", "poll"} {
		from := fmt.Sprint("127.0.0.", 2+i) // not the ports that the other driver's players have just left
		t.Run(driver, func(t *testing.T) {
			enoughDescriptors(t, 2**frozen+200)
			g := start(t, "--driver="+driver, "--upstream="+newGame(t, 0).url())
			players := make([]*player, *frozen)
			var all sync.WaitGroup
			for w := range 16 {
				all.Go(func() {
					for i := w; i < len(players); i += 16 {
						p := &player{t: t, url: g.url(), from: from}
						if err := p.connect(); err != nil {
							t.Errorf("player %d: %v", i, err)
							return
						}
						players[i] = p
						t.Cleanup(func() { p.conn.CloseNow() })
					}
				})
			}
			all.Wait()
			if t.Failed() {
				t.FailNow()
			}
			pid := g.cmd.Process.Pid
			t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
			var took []time.Duration
			for n := range *upgrades {
				syscall.Kill(pid, syscall.SIGUSR2)
				pid = int(g.says("upgrade.begun")["pid"].(float64))
				for done := false; !done || len(took) == n; { // two processes write, in either order
					line := g.says("upgrade.committed", "upgrade.done")
					if line["msg"] == "upgrade.done" {
						done = true
						continue
					}
					if line["sessions"] != float64(*frozen) {
						t.Fatalf("%v sessions moved, want %d", line["sessions"], *frozen)
					}
					if d, ok := line["frozen"].(string); ok { // the new process says it
						one, err := time.ParseDuration(d)
						if err != nil {
							t.Fatal(err)
						}
						took = append(took, one)
					}
				}
				for i := n; i < len(players); i += max(len(players)/50, 1) {
					text := fmt.Sprint("upgrade ", n)
					players[i].say(text)
					if got, err := players[i].read(); got != text || err != nil {
						t.Fatalf("player %d: %q, %v, want %q on the same connection", i, got, err, text)
					}
				}
			}
			slices.Sort(took)
			t.Logf("%d sessions, %s: frozen for %v [%v-%v] in %d upgrades", *frozen, driver,
				took[len(took)/2].Round(time.Millisecond), took[0].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), len(took))
		})
	}
}
