//go:build linux

package transport_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkRelay relays messages of 128 bytes down and as many of 48 bytes up on 32
// sessions: one each way per operation, or 32 at once.
//
// The peers run in a process of their own, the same for all: cpu-ns/message is the
// relay's alone. Both share one processor, so that the benchmark measures work, and not
// how often a processor goes to sleep.
func BenchmarkRelay(b *testing.B) {
	for name, n := range map[string]int{"one": 1, "burst": 32} {
		for driver, kind := range kinds {
			b.Run(name+"/"+driver, func(b *testing.B) {
				d := newDriver(b, kind)
				trips(b, n, func() (client, game net.Conn) {
					r := newRig(b, d, zeroKey)
					return r.client, r.game
				})
			})
		}
	}
}

const (
	relayed = 32                      // sessions
	endsOf  = "RESEAT_BENCHMARK_ENDS" // messages at once; set in the process that runs the peers
)

// trips has another process send n messages each way, on each session that dial makes,
// for each operation.
func trips(b *testing.B, n int, dial func() (client, game net.Conn)) {
	defer pin(b)()
	ends := exec.Command(os.Args[0])
	ends.Env = append(os.Environ(), fmt.Sprintf("%s=%d", endsOf, n))
	ends.Stderr = os.Stderr
	for range relayed {
		client, game := dial()
		for _, c := range []net.Conn{client, game} {
			f, err := c.(*net.TCPConn).File()
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			ends.ExtraFiles = append(ends.ExtraFiles, f)
		}
	}
	orders, _ := ends.StdinPipe()
	done, _ := ends.StdoutPipe()
	if err := ends.Start(); err != nil {
		b.Fatal(err)
	}
	run := func(times int) {
		fmt.Fprintln(orders, times)
		if _, err := fmt.Fscanln(done, &times); err != nil {
			b.Fatal("the other process: ", err)
		}
	}
	run(10)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime()
	run(b.N)
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N*2*relayed*n), "cpu-ns/message")
	b.StopTimer()
	orders.Close()
	if err := ends.Wait(); err != nil {
		b.Fatal(err)
	}
}

// pin restricts all threads of this process, and those that they start, to one
// processor until undo is called.
func pin(b *testing.B) (undo func()) {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		b.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	each := func(set *unix.CPUSet) {
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			id, _ := strconv.Atoi(t.Name())
			unix.SchedSetaffinity(id, set)
		}
	}
	each(&one)
	return func() { each(&all) }
}

func init() {
	if os.Getenv(endsOf) != "" {
		beEnds()
		os.Exit(0)
	}
}

// beEnds runs that process. The clients' and game servers' connections alternate as
// files 3 and up; standard input says how often all peers send and receive.
func beEnds() {
	n, _ := strconv.Atoi(os.Getenv(endsOf))
	var clients, games [relayed]*os.File
	for i := range relayed {
		clients[i], games[i] = os.NewFile(uintptr(3+2*i), "client"), os.NewFile(uintptr(4+2*i), "game")
	}
	pass := func(from, to [relayed]*os.File, b []byte) {
		for _, f := range from {
			f.Write(b)
		}
		got := make([]byte, len(b))
		for _, f := range to {
			io.ReadFull(f, got)
		}
	}
	down := bytes.Repeat(numbered(nil, 1, 128, false), n)
	up := bytes.Repeat(numbered(nil, 1, 48, true), n)
	for {
		var times int
		if _, err := fmt.Scanln(&times); err != nil {
			return
		}
		for range times {
			pass(games, clients, down)
			pass(clients, games, up)
		}
		fmt.Println(times)
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
