//go:build linux

// Command chaos breaks the connections of a real gateway and counts its messages: `make
// chaos`. Clients, game servers and all counting code share nothing with the gateway.
// The sessions have the endings of ending.go, some of which have their own route: hard
// disconnects, plain clients with a cookie, buffers that overflow. Every third
// connection offers compression; TLS is a run of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"reseat/gateway/internal/test/harness/process"
)

func main() {
	os.Exit(command(os.Args[1:]))
}

// full is what the promise is tested against, with the product's default heartbeat and
// answer timeout; short is for the tests.
func full() Config {
	return Config{Sessions: 500, Cuts: 13, Messages: 1200, Spread: 100 * time.Second, Rivalries: 40, Grace: time.Minute, Expiry: 30 * time.Second,
		Heartbeat: 15 * time.Second, Answer: 5 * time.Second, Late: time.Second, Hold: 12 * time.Second, Stall: 2 * time.Second, StallEvery: 700, Rotate: 15 * time.Second, Drain: 3 * time.Second, Limit: 15 * time.Minute}
}

func short() Config {
	return Config{Sessions: 52, Cuts: 8, Messages: 300, Spread: 8 * time.Second, Rivalries: 6, Grace: time.Minute, Expiry: 12 * time.Second,
		Heartbeat: 3 * time.Second, Answer: time.Second, Late: time.Second, Hold: 5 * time.Second, Stall: time.Second, StallEvery: 300, Rotate: 8 * time.Second, Drain: 3 * time.Second, Limit: 110 * time.Second}
}

// together is for a cluster: sessions come and go for the given time.
func together(d time.Duration) Config {
	return Config{Sessions: 40, Cuts: 4, Messages: 250, Spread: 9 * time.Second, Grace: time.Minute, Expiry: 30 * time.Second,
		Heartbeat: 5 * time.Second, Answer: 2 * time.Second, Late: time.Second, Hold: 4 * time.Second, Stall: time.Second, StallEvery: 400,
		Cluster: d, Servers: 3, Tick: 500, Round: 20 * time.Second, Drain: 25 * time.Second, Limit: d + 2*time.Minute}
}

// command returns the exit status: 1 for a failed run, 2 for one that could not run.
func command(args []string) int {
	fs := flag.NewFlagSet("chaos", flag.ExitOnError)
	isShort := fs.Bool("short", false, "a run of less than a minute")
	seed := fs.Uint64("seed", uint64(time.Now().UnixNano())%1_000_000, "of all that is random")
	driver := fs.String("driver", "net", "the gateway's")
	moves := fs.Bool("moves", false, "with four event loops, between which sessions move at each turn")
	secure := fs.Bool("tls", false, "TLS on the client address")
	links := fs.Bool("links", false, "in a network namespace whose link goes down (takes root)")
	bin := fs.String("bin", "", "the gateway's program; built with the race detector where there is none")
	upgrade := fs.Duration("upgrade", 0, "between two upgrades of the gateway to a new process; 0: none")
	cluster := fs.Duration("cluster", 0, "a cluster of three gateways and three NATS servers, for this long; 0: one gateway")
	nats := fs.String("nats", "", "the NATS server's program; built where there is none")
	counting := fs.String("counting", "", "the counting game's program; built where there is none")
	failover := fs.Int("failover", 0, "only measure how long so many sessions of a gateway that is killed, or drained, take to go on at others")
	verbose := fs.Bool("v", false, "say what happens to the cluster")
	only := fs.String("only", "", "the one ending of all sessions, as the table calls it")
	fs.Parse(args)
	cfg := full()
	if *isShort {
		cfg = short()
	}
	if *cluster > 0 || *failover > 0 {
		cfg = together(*cluster)
	}
	if *failover > 0 {
		*only = countingGame.String()
		cfg.Cluster, cfg.Round, cfg.Servers, cfg.Tick, cfg.Drain = time.Hour, 0, 1, 2000, time.Minute
	}
	cfg.NATS, cfg.Counting, cfg.Verbose = *nats, *counting, *verbose
	if *only != "" && endingOf(*only) < 0 {
		fmt.Fprintf(os.Stderr, "chaos: -only: %q is none of %v\n", *only, rules)
		return 2
	}
	if *only != "" && endingOf(*only).isDurable() && cfg.Cluster == 0 {
		fmt.Fprintf(os.Stderr, "chaos: -only: %q takes -cluster\n", *only)
		return 2
	}
	cfg.Only, cfg.Upgrade = *only, *upgrade
	if cfg.Moves = *moves; cfg.Moves {
		*driver = "poll"
		os.Setenv("MOVES_SEED", fmt.Sprint(*seed)) // for the gateway
	}
	cfg.Seed, cfg.Driver, cfg.TLS, cfg.Links, cfg.Bin = *seed, *driver, *secure, *links, *bin
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return perform(ctx, cfg, *failover)
}

func perform(ctx context.Context, cfg Config, failover int) int {
	dir, err := os.MkdirTemp("", "reseat-chaos-")
	if err == nil {
		cfg.Dir = dir
		name := "reseat-race"
		if cfg.Moves {
			name, cfg.Bin = "reseat-moves", ""
		}
		cfg.Bin, err = process.Program(cfg.Bin, name)
	}
	if err == nil && cfg.Cluster > 0 {
		cfg.NATS, err = process.Program(cfg.NATS, "nats-server")
	}
	if err == nil && cfg.Only == countingGame.String() {
		cfg.Counting, err = process.Program(cfg.Counting, "counting")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	if failover > 0 {
		for _, how := range []string{"killed", "drained"} {
			cfg.Dir = filepath.Join(dir, how)
			if err := errors.Join(os.Mkdir(cfg.Dir, 0o700), failovers(ctx, cfg, failover, how == "drained", os.Stdout)); err != nil {
				fmt.Printf("FAILED %v\n\nthe logs: %s\n", err, dir)
				return 1
			}
		}
		os.RemoveAll(dir)
		return 0
	}
	rep, err := Run(ctx, cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	rep.Print(os.Stdout)
	if rep.Bad() {
		fmt.Println("\nthe logs: " + dir)
		return 1
	}
	os.RemoveAll(dir)
	return 0
}
