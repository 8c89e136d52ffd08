//go:build linux

package proxy

import (
	"bufio"
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
	each, err := Times(pids)
	for _, d := range each {
		sum += d
	}
	return sum, err
}

// Times returns the processor time of each.
func Times(pids []int) (each []time.Duration, err error) {
	for _, pid := range pids {
		var ts unix.Timespec
		// clock_getcpuclockid(3): the clock of another process.
		clock := int32(^pid<<3 | 2)
		if err := unix.ClockGettime(clock, &ts); err != nil {
			return nil, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		each = append(each, time.Duration(ts.Nano()))
	}
	return each, nil
}

// A Memory is the memory of processes, in bytes.
type Memory struct {
	RSS int64 // resident
	PSS int64 // resident, with shared memory divided among its users
}

// MemoryOf adds up the processes' memory.
func MemoryOf(pids []int) (m Memory, err error) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return m, err
		}
		m.RSS += field(b, "Rss:") << 10
		m.PSS += field(b, "Pss:") << 10
	}
	return m, nil
}

// field returns the number after a name in a file such as /proc/PID/status.
func field(file []byte, name string) int64 {
	s := bufio.NewScanner(bytes.NewReader(file))
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) >= 2 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
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
