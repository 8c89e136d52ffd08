//go:build linux

// Command soak runs many sessions through a real gateway, with disconnects, resumes and
// ends of every kind, and checks that it releases everything: `make soak`. It fails if
// memory, goroutines or descriptors grow.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"text/tabwriter"
)

// A Config says how much to run.
type Config struct {
	Sessions int
	AtOnce   int
	Rounds   int // measurements, each when all is idle
	Driver   string
	Bin      string
	Dir      string
	Seed     uint64
}

// main exits with 1 if something grew, 2 if it could not run.
func main() {
	cfg := Config{Rounds: 20, AtOnce: 100}
	flag.IntVar(&cfg.Sessions, "sessions", 100_000, "that come and go")
	flag.StringVar(&cfg.Driver, "driver", "net", "the gateway's")
	flag.StringVar(&cfg.Bin, "bin", "bin/reseat", "the gateway's program")
	flag.Uint64Var(&cfg.Seed, "seed", 1, "of what each session does")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	dir, err := os.MkdirTemp("", "reseat-soak-")
	var r *run
	if err == nil {
		cfg.Dir = dir
		if cfg.Bin, err = filepath.Abs(cfg.Bin); err == nil {
			r, err = Run(ctx, cfg)
		}
	}
	stop()
	os.RemoveAll(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	if r.Print(os.Stdout); len(r.faults) > 0 {
		os.Exit(1)
	}
}

// Print writes a table, one line per measurement.
func (r *run) Print(w io.Writer) {
	fmt.Fprintf(w, "%d sessions, %d resumes, %d of them after the grace period, driver %s, seed %d\n\n", r.Sessions, r.resumes, r.late, r.Driver, r.Seed)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "sessions\tlive heap KiB\tresident KiB\tgoroutines\tdescriptors\tbuffer bytes\t")
	for _, s := range r.samples {
		fmt.Fprintf(t, "%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", s.sessions, s.heap/1024, s.resident/1024, s.goroutines, s.descriptors, s.buffers)
	}
	t.Flush()
	fmt.Fprintln(w)
	for _, k := range kinds {
		fmt.Fprintf(w, "%-36s %d\n", k.name, r.ends[k.name])
	}
	for _, f := range r.faults {
		fmt.Fprintln(w, "FAILED", f)
	}
}
