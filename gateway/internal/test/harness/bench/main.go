//go:build linux

// Command bench compares the gateway with other proxies, on this machine.
//
// Each proxy has a game server behind it and clients of its own, which check every byte of
// every message; a single fault fails the run. The subjects take turns, in slices of about
// a second where that is possible (see slices.go), else one after the other with everything
// started anew. A result is the median of the cycles or rounds, with its spread.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/proxy"
	"reseat/gateway/internal/test/harness/bench/report"
)

func main() {
	runtime.LockOSThread() // for the clients' loop; and children die with this thread
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 && args[0] == game.Program {
		return game.Serve()
	}
	if len(args) > 0 && args[0] == scaleProgram {
		return scaleLoad()
	}
	if len(args) > 0 && proxy.Programs[args[0]] != nil {
		return proxy.Programs[args[0]](args[1:])
	}
	f, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if f.scale {
		return scaling(ctx, f)
	}
	results, err := measure(ctx, f)
	if results == nil {
		return err
	}
	fmt.Print("\n", report.Text(results))
	if err == nil && f.out != "" {
		err = report.Write(results, f.out)
	}
	return err
}

// flags are the command line's flags.
type flags struct {
	only, subjects []string
	rounds         int
	short          bool
	binary, nats   string
	others         []proxy.Subject
	out            string
	scale          bool
	scaleFrom      int
}

func parse(args []string) (f flags, err error) {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	list := func(p *[]string) func(string) error {
		return func(s string) error { *p = strings.Split(s, ","); return nil }
	}
	set.Func("only", "these `workloads`, such as W1,W3 (default all)", list(&f.only))
	set.Func("subjects", "these `subjects`, such as direct,nginx,reseat@poll (default all)", list(&f.subjects))
	set.IntVar(&f.rounds, "rounds", 1, "how often everything is measured")
	set.BoolVar(&f.short, "short", false, "fewer workloads, and each for a shorter time")
	set.StringVar(&f.binary, "reseat", "bin/reseat", "the gateway's `binary`")
	set.StringVar(&f.nats, "nats", "bin/nats-server", "the NATS server's `binary`, for clusters")
	set.StringVar(&f.out, "out", "", "write performance.md and what belongs to it into this `directory`")
	set.BoolVar(&f.scale, "scale", false, "how proxies scale with processors; only that")
	set.IntVar(&f.scaleFrom, "scale-from", scaleMin, "how many processors -scale takes, at least")
	set.Func("also", "`name=binary`: another build of the gateway to measure besides", func(s string) error {
		name, binary, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want name=binary")
		}
		f.others = append(f.others, proxy.Other(name, binary))
		return nil
	})
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		set.SetOutput(os.Stdout)
		set.PrintDefaults()
		os.Exit(0)
	case err != nil:
		return f, err
	case set.NArg() > 0:
		return f, fmt.Errorf("what is %q?", set.Arg(0))
	}
	return f, nil
}

// wait is for how long in all a run waits for others on this machine, and repeats what they
// disturbed.
func (f flags) wait() time.Duration {
	if f.short {
		return 15 * time.Second
	}
	return 2 * time.Minute
}
