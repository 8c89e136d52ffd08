// Package faults makes the connections of one client fail, for --dev and --demo: a relay stands
// between the client's socket and the gateway. Without one of the two nothing of it runs.
package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Direction is that of the bytes that a fault affects. Both is the zero value.
type Direction int

// The directions: to the gateway, and to the client.
const (
	Both Direction = iota
	Up
	Down
)

var directions = map[string]Direction{"": Both, "both": Both, "up": Up, "down": Down}

// The names of single faults. All others are presets.
const (
	Silence = "silence" // nothing passes on the connections that there are; new ones work, as on another network
	Offline = "offline" // nothing passes, and no connection can be made
	// Airplane is Offline, and the client's system has dropped its connections: the page learns that at
	// once, the gateway does not.
	Airplane = "airplane"
	Slow     = "slow"    // latency, jitter and rate
	Reset    = "reset"   // TCP RST to both ends
	Close    = "close"   // Close 1001, as from a proxy that restarts
	Restart  = "restart" // of the game server, where the gateway has started it
	// Node is the loss of this node for the client alone: its connections are reset, and new ones refused,
	// as by a machine that is gone. Another node of the cluster takes it to its session, which goes on here.
	Node = "node"
)

// The limits of a fault.
const (
	MaxFor     = 10 * time.Minute
	maxLatency = 10 * time.Second
	minRate    = 128 // bytes a second: less would be silence
	maxRate    = 1 << 30
)

// defaultFor is how long a fault lasts that has a duration and says none.
var defaultFor = map[string]time.Duration{Silence: 8 * time.Second, Offline: 10 * time.Second, Airplane: 10 * time.Second, Slow: 30 * time.Second, Node: 30 * time.Second}

// A Fault is one fault or a preset, by its name.
type Fault struct {
	Name      string
	For       time.Duration
	Direction Direction
	// Latency is added to each chunk in each affected direction, plus or minus Jitter. Nothing
	// overtakes. Rate is in bytes a second; zero is no limit.
	Latency, Jitter time.Duration
	Rate            int64
}

// A step is a fault of a preset, and when it begins.
type step struct {
	at time.Duration
	Fault
}

const s = time.Second

// presets are the faults that people know by name.
var presets = map[string][]step{
	// No signal for 12 s. What was sent arrives behind the tunnel, if the connection still lives.
	"tunnel": {{0, Fault{Name: Offline, For: 12 * s}}},
	// The phone leaves the Wi-Fi: its connection goes silent for good, and a new one takes another,
	// slower way.
	"wifi-to-lte": {
		{0, Fault{Name: Silence, For: time.Minute}},
		{0, Fault{Name: Slow, For: 20 * s, Latency: 60 * time.Millisecond, Jitter: 40 * time.Millisecond, Rate: 512 << 10}},
	},
	// The lid is closed for 20 s; the network has forgotten the connection meanwhile.
	"laptop-sleep": {{0, Fault{Name: Offline, For: 20 * s}}, {20*s - 100*time.Millisecond, Fault{Name: Reset}}},
	// A full access point: slow, with pauses, and once it drops the connection.
	"hotel-wifi": {
		{0, Fault{Name: Slow, For: 40 * s, Latency: 250 * time.Millisecond, Jitter: 200 * time.Millisecond, Rate: 32 << 10}},
		{8 * s, Fault{Name: Silence, For: 3 * s}},
		{20 * s, Fault{Name: Reset}},
		{30 * s, Fault{Name: Silence, For: 2 * s, Direction: Down}},
	},
	// The signal fades, is gone for 8 s, and comes back.
	"elevator": {
		{0, Fault{Name: Slow, For: 14 * s, Latency: 400 * time.Millisecond, Jitter: 300 * time.Millisecond, Rate: 8 << 10}},
		{3 * s, Fault{Name: Offline, For: 8 * s}},
	},
}

// Names are all faults, the single ones first.
func Names() []string {
	return append([]string{Silence, Offline, Airplane, Slow, Reset, Close, Restart, Node}, slices.Sorted(maps.Keys(presets))...)
}

// Lasts is the time until the last of its effects is over.
func (f Fault) Lasts() (d time.Duration) {
	for _, p := range f.steps() {
		d = max(d, p.at+p.For)
	}
	return d
}

func (f Fault) steps() []step {
	if p := presets[f.Name]; p != nil {
		return p
	}
	return []step{{0, f}}
}

// Parse reads a fault from JSON, such as {"fault": "silence", "for": "8s", "direction": "up"} or
// {"fault": "tunnel"}.
func Parse(text []byte) (Fault, error) {
	var in struct {
		Fault, For, Direction, Latency, Jitter string
		Rate                                   *int64
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&in)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("more than one value")
		}
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) && kind.Field != "" {
		return Fault{}, fmt.Errorf("%s: want %v, got %s", strings.ToLower(kind.Field), kind.Type, kind.Value)
	}
	if err != nil {
		return Fault{}, fmt.Errorf(`want {"fault", "for", "direction", "latency", "jitter", "rate"}: %s`, strings.TrimPrefix(err.Error(), "json: "))
	}
	f := Fault{Name: in.Fault}
	if !slices.Contains(Names(), f.Name) {
		return f, fmt.Errorf("fault: want one of %s, got %.40q", strings.Join(Names(), ", "), in.Fault)
	}
	var known bool
	if f.Direction, known = directions[in.Direction]; !known {
		return f, fmt.Errorf("direction: want up, down or both, got %.40q", in.Direction)
	}
	if f.For, err = duration("for", in.For, MaxFor); err != nil {
		return f, err
	}
	if f.Latency, err = duration("latency", in.Latency, maxLatency); err != nil {
		return f, err
	}
	if f.Jitter, err = duration("jitter", in.Jitter, maxLatency); err != nil {
		return f, err
	}
	if in.Rate != nil {
		f.Rate = *in.Rate
		if f.Rate < minRate || f.Rate > maxRate {
			return f, fmt.Errorf("rate: want %d to %d bytes a second, got %d", minRate, maxRate, f.Rate)
		}
	}
	return f.complete()
}

// complete refuses what f has no use for, and sets what it lacks.
func (f Fault) complete() (Fault, error) {
	shaped := f.Latency > 0 || f.Jitter > 0 || f.Rate > 0
	switch _, lasting := defaultFor[f.Name]; {
	case !lasting && f.For > 0:
		return f, fmt.Errorf("for: %s has no duration to choose", f.Name)
	case f.Direction != Both && f.Name != Silence && f.Name != Slow:
		return f, fmt.Errorf("direction: %s has none", f.Name)
	case shaped && f.Name != Slow:
		return f, fmt.Errorf("latency, jitter, rate: only for %s", Slow)
	case f.Name == Slow && !shaped:
		f.Latency, f.Jitter, f.Rate = 300*time.Millisecond, 100*time.Millisecond, 32<<10
	}
	if f.For == 0 {
		f.For = defaultFor[f.Name]
	}
	return f, nil
}

// duration parses a duration, "" as zero.
func duration(name, text string, most time.Duration) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return 0, fmt.Errorf(`%s: want a duration from 0 to %v, such as "1.5s", got %.40q`, name, most, text)
	}
	return d, nil
}
