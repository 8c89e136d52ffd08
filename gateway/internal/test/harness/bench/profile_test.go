//go:build linux

package main

import (
	"slices"
	"testing"
)

func TestFunctionsAreGrouped(t *testing.T) {
	for _, c := range []struct{ dso, sym, want string }{
		{"[kernel.kallsyms]", "[k] tcp_sendmsg_locked", "kernel: TCP and IP, both directions"},
		{"[kernel.kallsyms]", "[k] ep_poll_callback", "kernel: epoll"},
		{"[kernel.kallsyms]", "[k] io_submit_sqes", "kernel: io_uring"},
		{"[kernel.kallsyms]", "[k] try_to_wake_up", "kernel: waiting and waking"},
		{"[kernel.kallsyms]", "[k] unheard_of", "kernel: the rest"},
		{"bench", "[.] reseat/gateway/internal/test/harness/bench/epoll.(*Loop).handle", "bytes relayed, nothing else"},
		{"reseat", "[.] reseat/gateway/frame.Remask", "gateway: frames, masking, replay"},
		{"reseat", "[.] reseat/gateway/session.(*Session).Out", "gateway: session core"},
		{"reseat", "[.] reseat/gateway/transport/epoll.(*Loop).run", "gateway: driver"},
		{"reseat", "[.] reseat/tokens.(*key).sign", "gateway: handshake, dial, tokens, records"},
		{"reseat", "[.] runtime.scanobject", "runtime: garbage collector"},
		{"reseat", "[.] runtime.mallocgc", "runtime: allocation"},
		{"reseat", "[.] runtime.schedule", "runtime: scheduler, poller, locks, clock"},
		{"nginx", "[.] 0x000000000003b1c2", "program: nginx, without names"},
		{"reseat", "[.] main.main", "program: the rest"},
	} {
		if got := groupOf(c.dso, c.sym); got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.sym, c.dso, got, c.want)
		}
	}
}

// Nothing is dropped: what fits no group has one.
func TestSharesAddUpToAll(t *testing.T) {
	got := sharesOf("# a comment\n\n    60.50%;[kernel.kallsyms];[k] tcp_ack\n    20.00%;[kernel.kallsyms];[k] unheard_of\n    10.50%;reseat;[.] main.main\n     9.00%;[kernel.kallsyms];[k] tcp_push\n")
	want := []share{{"kernel: TCP and IP, both directions", 69.5}, {"kernel: the rest", 20}, {"program: the rest", 10.5}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestEventThatCannotBeCountedIsSaid(t *testing.T) {
	got := countsOf("# started on\n\n1200;;raw_syscalls:sys_enter;300;100.00;;\n<not supported>;;cache-misses;0;100.00;;\n400;;syscalls:sys_enter_sendto;300;100.00;;\n")
	want := []share{{"sys_enter", 1200}, {"cache-misses", -1}, {"sendto", 400}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
