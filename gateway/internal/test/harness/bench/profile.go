//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"reseat/gateway/internal/test/harness/bench/proxy"
)

// A profile run says where the proxies' processor time goes, by perf(1): system calls,
// wake-ups, and functions by group. It measures each subject three times: undisturbed,
// while perf counts, and while perf samples.

// profiled are the workloads, and what a unit of each is.
var profiled = map[string]string{"W1": "message", "W3": "message", "W7": "resume", "W8": "connection"}

// profileTime is for which a steady stream is looked at.
const profileTime = 3 * time.Second

// counted are the system calls that are counted by name; sys_enter counts all.
var counted = []string{
	"recvfrom", "read", "readv", "recvmsg", "sendto", "write", "writev", "sendmsg", "io_uring_enter", "epoll_wait", "epoll_pwait", "epoll_pwait2",
	"epoll_ctl", "accept4", "socket", "connect", "bind", "setsockopt", "getsockopt", "getsockname", "getpeername", "shutdown", "close", "fcntl", "ioctl",
	"futex", "nanosleep", "sched_yield", "tgkill", "madvise",
}

// A perf is one that runs while something is measured.
type perf struct {
	args []string
	cmd  *exec.Cmd
	said bytes.Buffer
}

// begin starts perf for processes, and waits until it looks.
func (p *perf) begin(pids []int) error {
	list := make([]string, len(pids))
	for i, pid := range pids {
		list[i] = strconv.Itoa(pid)
	}
	p.cmd = exec.Command("perf", append(p.args, "-p", strings.Join(list, ","))...)
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	if err := p.cmd.Start(); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	return nil
}

// end ends it.
func (p *perf) end() error {
	p.cmd.Process.Signal(syscall.SIGINT)
	if err := p.cmd.Wait(); err != nil {
		if ended := (*exec.ExitError)(nil); !errors.As(err, &ended) || !ended.Sys().(syscall.WaitStatus).Signaled() {
			return fmt.Errorf("perf %s: %w: %s", p.args[0], err, p.said.Bytes())
		}
	}
	return nil
}

// from is note, and lets perf begin, if it is wanted.
func (s *stage) from(r *reading) step {
	return func() error {
		if s.perf != nil {
			if err := s.perf.begin(s.proxy.PIDs); err != nil {
				return err
			}
		}
		return s.note(r)()
	}
}

// to is note, and lets perf end.
func (s *stage) to(r *reading) step {
	return func() error {
		err := s.note(r)()
		if s.perf != nil {
			err = errors.Join(err, s.perf.end())
		}
		return err
	}
}

// profileAll prints the profiles of all subjects.
func profileAll(ctx context.Context, f flags) error {
	if _, err := exec.LookPath("perf"); err != nil || os.Geteuid() != 0 {
		return errors.New("--profile takes perf(1), of linux-perf or linux-tools, and root")
	}
	files, err := raiseFiles()
	if err != nil {
		return err
	}
	help, err := exec.Command(f.binary, "--help").Output()
	if err != nil {
		return fmt.Errorf("%s --help: %w", f.binary, err)
	}
	if f.only == nil {
		f.only = slices.Sorted(maps.Keys(profiled))
	}
	list, subjects, _, err := plan(f, string(help), files)
	if err != nil {
		return err
	}
	r := runner{flags: f, own: files, files: min(files, usualFiles)}
	for _, w := range list {
		unit := profiled[w.name]
		if unit == "" {
			return fmt.Errorf("--profile knows %s", strings.Join(slices.Sorted(maps.Keys(profiled)), ", "))
		}
		switch w.name {
		case "W7":
			w.measured = cutAll
		case "W8":
		default:
			w.measured, w.measure = traffic, profileTime
		}
		w.slice = nil
		for _, s := range subjects {
			if err := ctx.Err(); err != nil || !w.takesPart(s) {
				continue
			}
			if err := r.profileOne(w, s, unit); err != nil {
				return fmt.Errorf("%s, %s: %w", w.name, s.Name, err)
			}
		}
	}
	return ctx.Err()
}

// profileOne prints the profile of one subject.
func (r *runner) profileOne(w workload, s proxy.Subject, unit string) error {
	dir, err := os.MkdirTemp("", "profile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	run := func(p *perf) (units, us float64, err error) {
		st, err := r.open(w, s)
		if err != nil {
			return 0, 0, err
		}
		defer st.close()
		st.perf = p
		fig, err := w.measured(st)
		units, us = fig["messages"], fig["cpu_us"]
		switch unit {
		case "resume":
			units, us = float64(w.sessions), fig["resume_us"]
		case "connection":
			units, us = float64(w.sessions), fig["connection_us"]
		}
		return units, us, st.explain(err)
	}
	_, us, err := run(nil)
	if err != nil {
		return err
	}
	events := []string{"raw_syscalls:sys_enter", "io_uring:io_uring_submit_req", "context-switches", "page-faults", "cache-misses", "instructions"}
	for _, name := range counted {
		events = append(events, "syscalls:sys_enter_"+name)
	}
	counts := filepath.Join(dir, "stat")
	units, _, err := run(&perf{args: []string{"stat", "-x", ";", "-o", counts, "-e", strings.Join(events, ",")}})
	if err != nil {
		return err
	}
	stat, err := os.ReadFile(counts)
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	if _, _, err = run(&perf{args: []string{"record", "-F", "4000", "-o", data}}); err != nil {
		return err
	}
	samples, err := exec.Command("perf", "report", "-i", data, "--stdio", "--no-children", "-F", "overhead,dso,sym", "-t", ";").Output()
	if err != nil {
		return fmt.Errorf("perf report: %w", err)
	}
	fmt.Printf("\n%s, %s: %.2f µs a %s\n", w.name, s.Name, us, unit)
	for _, c := range countsOf(string(stat)) {
		if c.n < 0 {
			fmt.Printf("  %-28s not counted here\n", c.name)
		} else if c.n/units >= 0.005 {
			fmt.Printf("  %-28s %8.2f\n", c.name, c.n/units)
		}
	}
	for _, g := range sharesOf(string(samples)) {
		fmt.Printf("  %-40s %5.1f %%  %7.2f µs\n", g.name, g.n, g.n/100*us)
	}
	return nil
}

// A share is a count, or a percentage, with its name.
type share struct {
	name string
	n    float64
}

// countsOf reads the output of perf stat -x ';'. An event that the machine cannot count is -1.
func countsOf(stat string) (list []share) {
	for line := range strings.Lines(stat) {
		f := strings.Split(line, ";")
		if len(f) < 3 || strings.HasPrefix(line, "#") {
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(f[2], "syscalls:sys_enter_"), "raw_syscalls:")
		n, err := strconv.ParseFloat(f[0], 64)
		if err != nil {
			n = -1
		}
		list = append(list, share{name, n})
	}
	return list
}

// sharesOf adds up the output of perf report by group, the largest first.
func sharesOf(report string) (list []share) {
	sums := map[string]float64{}
	for line := range strings.Lines(report) {
		f := strings.SplitN(strings.TrimSpace(line), ";", 3)
		if len(f) < 3 || strings.HasPrefix(line, "#") {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(f[0]), "%"), 64)
		if err != nil {
			continue
		}
		sums[groupOf(strings.TrimSpace(f[1]), strings.TrimSpace(f[2]))] += n
	}
	for name, n := range sums {
		list = append(list, share{name, n})
	}
	slices.SortFunc(list, func(a, b share) int { return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name)) })
	return list
}

// kernelGroups and programGroups are the beginnings of functions: the first that fits decides.
var kernelGroups = []struct {
	group string
	names []string
}{
	{"kernel: TCP and IP, both directions", []string{"tcp_", "__tcp", "ip_", "__ip", "inet_", "__inet", "ipv4_", "nf_", "__nf", "dst_", "sk_", "__sk", "skb_", "__skb", "sock_", "__sock", "lock_sock", "release_sock", "napi", "net_rx", "__netif", "netif", "process_backlog", "__napi", "loopback", "dev_", "__dev", "validate_xmit", "eth_", "fib_", "raw_local", "bictcp", "cubictcp", "csum", "__copy_skb", "alloc_skb", "__alloc_skb", "kfree_skb", "consume_skb", "__kfree_skb", "enqueue_to", "sch_", "qdisc", "pfifo", "rt_", "neigh"}},
	{"kernel: copying", []string{"copy_", "_copy", "__copy", "rep_movs", "memcpy", "simple_copy", "check_heap", "__check_object", "memset", "clear_page"}},
	{"kernel: epoll", []string{"ep_", "__ep", "epoll", "do_epoll", "eventpoll", "__x64_sys_epoll", "reverse_path", "sys_epoll"}},
	{"kernel: io_uring", []string{"io_", "__io", "__do_sys_io_uring", "__x64_sys_io_uring"}},
	{"kernel: waiting and waking", []string{"schedule", "__schedule", "try_to_wake", "ttwu", "wake_", "__wake", "autoremove", "finish_task", "pick_", "enqueue_task", "dequeue_task", "update_", "set_next", "put_prev", "select_task", "select_idle", "sched_", "reweight", "dl_", "futex", "hrtimer", "__hrtimer", "timer", "mod_timer", "__mod_timer", "switch_", "__switch", "prepare_to_wait", "resched", "native_smp", "smp_call", "__smp", "flush_smp", "available_idle", "cpus_share", "psi_", "avg_vruntime", "place_entity", "rb_", "entity", "do_nanosleep", "ktime", "tick_", "pvclock", "read_tsc", "kvm_", "clockevents", "rcu_", "__rcu"}},
	{"kernel: sockets made and closed, descriptors", []string{"sys_close", "filp", "fput", "__fput", "alloc_file", "alloc_fd", "alloc_empty", "close_fd", "file_close", "d_", "__d_", "dentry", "inode", "new_inode", "iput", "evict", "init_file", "security_", "apparmor", "do_accept", "__sys_socket", "__sys_connect", "__sys_accept", "__sys_bind", "__sys_setsockopt", "__sys_getsockopt", "do_sock", "destroy_inode", "put_unused", "get_unused", "fd_install", "lockref", "mnt", "task_work"}},
	{"kernel: entering, leaving, interrupts", []string{"entry_", "do_syscall", "syscall_", "x64_sys_call", "__x64_sys", "__sys_", "fdget", "__fdget", "exit_to", "irqentry", "asm_", "sysvec", "common_interrupt", "pvm_", "error_", "do_softirq", "__do_softirq", "handle_softirqs", "irq_", "__irq", "__local_bh", "native_", "paravirt", "ret_from", "__get_user", "__put_user"}},
	{"kernel: memory", []string{"kmem", "kmalloc", "__kmalloc", "kfree", "__kfree", "slab", "__slab", "___slab", "page", "__page", "free_", "__free", "alloc_", "__alloc", "get_page", "rmqueue", "mm_", "handle_mm", "do_anonymous", "exc_page", "asm_exc_page", "do_user_addr", "unmap", "zap_", "folio", "charge_", "mem_cgroup", "__mem_cgroup", "obj_cgroup", "refill", "memcg", "vma", "mas_", "do_madvise", "__mod", "tlb", "flush_tlb", "clear_huge"}},
}

var programGroups = []struct {
	group string
	names []string
}{
	{"bytes relayed, nothing else", []string{"reseat/gateway/internal/test/harness"}},
	{"gateway: frames, masking, replay", []string{"reseat/gateway/frame", "reseat/gateway/replay", "reseat/gateway/wire"}},
	{"gateway: session core", []string{"reseat/gateway/session"}},
	{"gateway: driver", []string{"reseat/gateway/transport"}},
	{"gateway: handshake, dial, tokens, records", []string{"reseat/", "net/http", "net/textproto", "net.", "net/url", "encoding/", "crypto/", "vendor/", "github.com/", "strings.", "strconv.", "bytes.", "bufio.", "fmt.", "log/", "sync.", "context.", "slices.", "maps.", "sort.", "time.", "unicode", "reflect.", "math/", "errors.", "io.", "golang.org/", "hash/", "internal/poll", "p256", "sha256", "indexbyte"}},
	{"runtime: garbage collector", []string{"runtime.gc", "runtime.scan", "runtime.(*gc", "runtime.mark", "runtime.grey", "runtime.find", "runtime.(*sweep", "runtime.(*mspan", "runtime.bgsweep", "runtime.wb", "runtime.tryDefer", "runtime.(*span", "internal/runtime/gc", "runtime.spanOf", "runtime.heapBits", "runtime.(*unwinder", "runtime.pcvalue", "runtime.step", "runtime.(*stkframe", "runtime.readvarint", "runtime.typePointers", "runtime.bulkBarrier", "runtime.drain", "runtime.trygetfull", "runtime.(*pageAlloc", "runtime.(*scav", "runtime.shade", "runtime.(*mheap"}},
	{"runtime: allocation", []string{"runtime.malloc", "runtime.new", "runtime.make", "runtime.grow", "runtime.nextFree", "runtime.(*mcache", "runtime.(*mcentral", "runtime.memclr", "runtime.deductAssist", "runtime.publicationBarrier"}},
	{"runtime: scheduler, poller, locks, clock", []string{"runtime.", "internal/runtime", "time.now", "gogo", "syscall.", "internal/"}},
}

// groupOf returns the group of a function: sym is as perf prints it, [k] or [.] and its name.
func groupOf(dso, sym string) string {
	name, kernel := strings.CutPrefix(sym, "[k] ")
	name = strings.TrimPrefix(name, "[.] ")
	groups := programGroups
	switch {
	case kernel:
		groups = kernelGroups
	case strings.HasPrefix(name, "0x"), strings.HasPrefix(dso, "nginx"), strings.HasPrefix(dso, "haproxy"), strings.HasPrefix(dso, "lib"):
		return "program: " + dso + ", without names"
	case dso == "[vdso]":
		return "runtime: scheduler, poller, locks, clock"
	}
	for _, g := range groups {
		for _, begin := range g.names {
			if strings.HasPrefix(name, begin) {
				return g.group
			}
		}
	}
	if kernel {
		return "kernel: the rest"
	}
	return "program: the rest"
}
