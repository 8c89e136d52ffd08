package sim

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// go test ./gateway/internal/test/sim                          the standard seeds
// go test ./gateway/internal/test/sim -sim.seeds 20000         many more
// go test ./gateway/internal/test/sim -sim.shrink              and a shorter story of each failure
// go test ./gateway/internal/test/sim -sim.stop                as far as the first that fails
// go test ./gateway/internal/test/sim -v -sim.seed 42          one, with its trace
//
// A failure prints its seed, what the seed drew, the last lines of its trace and
// how to play it again.
var (
	oneSeed   = flag.Uint64("sim.seed", 0, "play this seed alone, and print its trace")
	seedCount = flag.Int("sim.seeds", standardSeeds, "play so many seeds")
	firstSeed = flag.Uint64("sim.first", 1, "the first of them")
	stepCount = flag.Int("sim.steps", 4000, "steps of each seed")
	shrink    = flag.Bool("sim.shrink", false, "look for a shorter story of each failure")
	without   = flag.String("sim.without", "", "numbers of actions that never happen, with commas between")
	moveCount = flag.Int("sim.moves", 0, "of 1000 steps of -sim.seed so many freeze a session and restore it")
	stopFirst = flag.Bool("sim.stop", false, "stop at the first seed that fails")
)

// seedsABlock is how many seeds form a subtest, whose name identifies a test that
// hangs.
const seedsABlock = 100

func TestSimulation(t *testing.T) {
	if *oneSeed > 0 {
		if r := Run(Options{Seed: *oneSeed, Steps: *stepCount, Trace: os.Stdout, Moves: *moveCount, Without: actionNumbers(t, *without)}); r.Failure != "" {
			t.Fatal(r.Failure)
		}
		return
	}
	met := Coverage{}
	sessions, steps := 0, 0
	end := *firstSeed + uint64(*seedCount)
	for from := *firstSeed; from < end; from += seedsABlock {
		to := min(from+seedsABlock, end)
		t.Run(fmt.Sprintf("seeds=%d-%d", from, to-1), func(t *testing.T) {
			for seed := from; seed < to; seed++ {
				r := Run(Options{Seed: seed, Steps: *stepCount})
				met.Add(r.Coverage)
				sessions += r.Sessions
				steps += r.Steps
				if r.Failure != "" {
					t.Error(r.Failure)
					if *shrink {
						t.Log(describeShrunk(Shrink(Options{Seed: seed, Steps: *stepCount})))
					}
					if *stopFirst {
						return
					}
				}
			}
		})
		if *stopFirst && t.Failed() {
			return
		}
	}
	t.Logf("%d steps, %d sessions\n%v", steps, sessions, met)
	if missing := met.Missing(); *seedCount >= enoughSeeds && len(missing) > 0 {
		t.Errorf("never met: %q", missing)
	}
}

// actionNumbers parses a list of numbers.
func actionNumbers(t *testing.T, list string) (all []int) {
	t.Helper()
	for word := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || n >= len(actions) {
			t.Fatalf("-sim.without: want numbers from 0 to %d, got %q", len(actions)-1, word)
		}
		all = append(all, n)
	}
	return all
}

func TestSeedDeterminesTheTrace(t *testing.T) {
	sums := map[uint64]uint64{}
	for seed := uint64(1); seed <= 20; seed++ {
		first := Run(Options{Seed: seed, Steps: 2000})
		again := Run(Options{Seed: seed, Steps: 2000})
		if first.Sum != again.Sum || first.Steps != again.Steps {
			t.Errorf("seed %d: %d steps with sum %x, then %d with %x", seed, first.Steps, first.Sum, again.Steps, again.Sum)
		}
		if other, ok := sums[first.Sum]; ok {
			t.Errorf("seeds %d and %d have one trace", seed, other)
		}
		sums[first.Sum] = seed
	}
}

// A session that was frozen and restored goes on as one that was not: whatever an upgrade
// forgets shows as another byte, or at another moment.
func TestMovedSessionsDoTheSameToTheByte(t *testing.T) {
	moves, out, far := 0, 0, 0
	for seed := uint64(1); seed <= movedSeeds; seed++ {
		stayed := Run(Options{Seed: seed, Steps: *stepCount})
		moved := Run(Options{Seed: seed, Steps: *stepCount, Moves: 50})
		moves += moved.Moves
		out += moved.MovesOut
		far += moved.MovesFar
		switch {
		case moved.Failure != "":
			t.Errorf("%d moves: %s", moved.Moves, moved.Failure)
		case moved.Sum != stayed.Sum && !stayed.Scarce:
			t.Errorf("seed %d: %d moves change the run", seed, moved.Moves)
		}
		if t.Failed() && *stopFirst {
			return
		}
	}
	t.Logf("%d moves, %d during an outage, %d of durable sessions that have come from another node, or go to one", moves, out, far)
	if moves < 50*movedSeeds || out < movedSeeds/10 || far < movedSeeds {
		t.Errorf("only %d moves, %d during an outage, %d of durable sessions between nodes", moves, out, far)
	}
}

// A driver that violates its contract with the core is detected within a few seeds: the
// same checks would detect that mistake in the core.
func TestBrokenDriverIsDetected(t *testing.T) {
	for fault, name := range map[Fault]string{
		NoRetain: "Retain is never called", Overreport: "one byte too many is reported as written",
		Underreport: "one byte too few is reported as written", Corrupt: "a byte changes on its way",
		NoTick: "Tick is never called", NoAwait: "Await is never called", NoForgo: "Forgo is never called",
		Misdirect: "events of an old upstream are reported for the current one", Unasked: "an upstream is given to a session that has one",
	} {
		found := 0
		for seed := uint64(1); seed <= 30 && found == 0; seed++ {
			if r := Run(Options{Seed: seed, Steps: 4000, Fault: fault}); r.Failure != "" {
				t.Logf("%s: step %d of seed %d", name, r.Steps, seed)
				found++
			}
		}
		if found == 0 {
			t.Errorf("%s, and no invariant is broken", name)
		}
	}
}

// Shrinking keeps a failure a failure: with fewer steps and fewer kinds of actions, and
// repeatable.
func TestFailureIsShrunk(t *testing.T) {
	for seed := uint64(1); seed <= 30; seed++ {
		o := Options{Seed: seed, Steps: 4000, Fault: Overreport}
		long := Run(o)
		if long.Failure == "" || long.Steps < 50 {
			continue
		}
		short, r := Shrink(o)
		if again := Run(short); r.Failure == "" || again.Failure == "" || again.Steps != r.Steps || again.Sum != r.Sum {
			t.Errorf("seed %d: shrunk it says %.80q, and again %.80q", seed, r.Failure, again.Failure)
		}
		if r.Steps >= long.Steps || len(short.Without) == 0 {
			t.Errorf("seed %d: from %d steps to %d, %d of %d actions left out", seed, long.Steps, r.Steps, len(short.Without), len(actions))
		}
		t.Logf("from %d steps to %d, %d of %d actions left out", long.Steps, r.Steps, len(short.Without), len(actions))
		return
	}
	t.Error("no seed fails, or all at once")
}

// The simulation's frames are its own; these are the examples of RFC 6455, section 5.7.
func TestFramesMatchTheRFC(t *testing.T) {
	key := [4]byte{0x37, 0xfa, 0x21, 0x3d}
	if got, want := appendFrame(nil, 0x81, &key, []byte("Hello")), "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"; string(got) != want {
		t.Errorf("masked: % x, want % x", got, want)
	}
	for size, want := range map[int]string{0: "\x82\x00", 125: "\x82\x7d", 126: "\x82\x7e\x00\x7e", 256: "\x82\x7e\x01\x00", 65536: "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"} {
		got := appendFrame(nil, 0x82, nil, make([]byte, size))
		if string(got[:len(want)]) != want || len(got) != len(want)+size {
			t.Errorf("%d bytes: header % x, want % x", size, got[:len(want)], want)
		}
		h, ok, bad := parseHead(got)
		if !ok || bad != "" || h.size != size || h.length != len(want) || !h.fin || h.op != opBinary {
			t.Errorf("%d bytes: read as %+v, %v, %q", size, h, ok, bad)
		}
	}
}

// A stream that is split anywhere gives the same messages.
func TestDecoderAcceptsAnySplit(t *testing.T) {
	key := [4]byte{1, 2, 3, 4}
	var stream []byte
	stream = appendFrame(stream, opText, &key, []byte("one "))
	stream = appendFrame(stream, 0x80|opPing, &key, []byte("p"))
	stream = appendFrame(stream, opMore, &key, nil)
	stream = appendFrame(stream, 0x80|opMore, &key, []byte("message"))
	stream = appendFrame(stream, 0x80|opBinary, &key, make([]byte, 300))
	for size := 1; size <= len(stream); size++ {
		d := decoder{masked: true}
		got := ""
		for at := 0; at < len(stream); at += size {
			d.feed(stream[at:min(at+size, len(stream))])
			for a, ok, bad := d.next(); ok || bad != ""; a, ok, bad = d.next() {
				if bad != "" {
					t.Fatal(bad)
				}
				got += fmt.Sprintf("%d:%d ", a.op, len(a.p))
			}
		}
		if want := "9:1 1:11 2:300 "; got != want || d.torn() {
			t.Fatalf("in pieces of %d: %q, want %q", size, got, want)
		}
	}
}

// A message can be checked wherever it appears, and any change is detected.
func TestEveryChangeOfAMessageIsDetected(t *testing.T) {
	f := flow{seed: 7, texts: 16, sizes: sizes{medium: 300}, limit: 300}
	for n := uint64(1); n < 200; n++ {
		m := f.message(n)
		p := m.append(nil)
		if !m.equal(p) || m.equal(append(p, 0)) {
			t.Fatalf("message %d of %d bytes does not know itself", n, m.size)
		}
		for i := range p {
			p[i] ^= 1
			if m.equal(p) {
				t.Fatalf("message %d of %d bytes with byte %d changed passes", n, m.size, i)
			}
			p[i] ^= 1
		}
	}
}
