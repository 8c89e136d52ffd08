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
	"time"
)

func main() {
	os.Exit(command(os.Args[1:]))
}

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

// command returns the exit status: 1 if something grew, 2 if it could not run.
func command(args []string) int {
	fs := flag.NewFlagSet("soak", flag.ExitOnError)
	cfg := Config{Rounds: 20}
	fs.IntVar(&cfg.Sessions, "sessions", 100_000, "that come and go")
	fs.IntVar(&cfg.AtOnce, "at-once", 100, "sessions at a time")
	fs.StringVar(&cfg.Driver, "driver", "net", "the gateway's")
	fs.StringVar(&cfg.Bin, "bin", "bin/reseat", "the gateway's program")
	fs.Uint64Var(&cfg.Seed, "seed", 1, "of what each session does")
	fs.Parse(args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "reseat-soak-")
	if err == nil {
		defer os.RemoveAll(dir)
		cfg.Dir = dir
		cfg.Bin, err = filepath.Abs(cfg.Bin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 2
	}
	rep, err := Run(ctx, cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 2
	}
	rep.Print(os.Stdout)
	if len(rep.Faults) > 0 {
		return 1
	}
	return 0
}

// A Report is what was measured.
type Report struct {
	Config
	Took    time.Duration
	Ends    map[string]int
	Resumes int
	Samples []sample
	Faults  []string
}

// Print writes a table, one line per measurement.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%d sessions, %d resumes, driver %s, %s\n\n", r.Sessions, r.Resumes, r.Driver, r.Took.Round(time.Second))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "sessions\tlive heap KiB\tresident KiB\tgoroutines\tdescriptors\tbuffer bytes\t")
	for _, s := range r.Samples {
		fmt.Fprintf(t, "%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", s.sessions, s.heap/1024, s.resident/1024, s.goroutines, s.descriptors, s.buffers)
	}
	t.Flush()
	fmt.Fprintln(w)
	for _, k := range kinds {
		fmt.Fprintf(w, "%-36s %d\n", k.name, r.Ends[k.name])
	}
	for _, f := range r.Faults {
		fmt.Fprintln(w, "FAILED", f)
	}
}
