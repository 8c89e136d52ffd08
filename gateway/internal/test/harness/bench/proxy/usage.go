//go:build linux

package proxy

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the processor time of processes, user and kernel, of all their threads,
// including ended ones. The kernel counts it in nanoseconds.
func CPU(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		var ts unix.Timespec
		// clock_getcpuclockid(3): the clock of another process.
		clock := int32(^pid<<3 | 2)
		if err := unix.ClockGettime(clock, &ts); err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		sum += time.Duration(ts.Nano())
	}
	return sum, nil
}

// Memory returns the resident memory of processes, in bytes.
func Memory(pids []int) (sum int64, err error) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, err
		}
		var kib int64
		_, rss, _ := strings.Cut(string(b), "Rss:")
		if _, err := fmt.Sscan(rss, &kib); err != nil {
			return 0, fmt.Errorf("resident memory of process %d: %w", pid, err)
		}
		sum += kib << 10
	}
	return sum, nil
}

// A Machine is the total usage of all processors since the machine started.
type Machine struct {
	Busy   time.Duration // by processes and interrupts
	Stolen time.Duration // by other machines on the same hardware
}

const hertz = 100 // of /proc/stat, on all our architectures

// MachineNow reads /proc/stat. It counts in hundredths of a second.
func MachineNow() (m Machine, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, err
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := strings.Fields(string(line))
	if len(f) < 9 || f[0] != "cpu" {
		return m, fmt.Errorf("/proc/stat begins with %q", line)
	}
	ticks := func(i int) time.Duration {
		n, _ := strconv.ParseInt(f[i], 10, 64)
		return time.Duration(n) * time.Second / hertz
	}
	// user, nice, system, idle, iowait, irq, softirq, steal
	m.Busy = ticks(1) + ticks(2) + ticks(3) + ticks(6) + ticks(7)
	m.Stolen = ticks(8)
	return m, nil
}
