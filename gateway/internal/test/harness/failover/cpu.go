//go:build linux

package failover

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// cpuOf returns the CPU time that a process has used, 0 if it is not there.
func cpuOf(pid int) time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(after)
	if len(f) < 13 {
		return 0
	}
	var user, system int64
	fmt.Sscan(f[11], &user)
	fmt.Sscan(f[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// cpu returns the CPU time of all parties so far, by name.
func (s *stage) cpu() map[string]time.Duration {
	all := map[string]time.Duration{"clients": cpuOf(os.Getpid()), "game": cpuOf(s.game.Process.Pid)}
	for _, n := range s.nodes {
		all["gateways"] += cpuOf(n.PID)
	}
	for _, n := range s.servers {
		all["NATS"] += cpuOf(n.PID())
	}
	return all
}
