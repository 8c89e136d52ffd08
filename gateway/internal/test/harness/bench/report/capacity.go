package report

import (
	"fmt"
	"math"
)

// The million players of the worked example: what each does, and how much headroom it
// leaves.
const (
	players      = 1_000_000
	ratePlayer   = 12.5 // messages per second, both ways, as in W2
	awayShare    = 0.02 // of the players, at any time
	awaySeconds  = 30   // the grace period: no client is detached for longer
	payload      = 128  // bytes of a message to a client
	downPlayer   = 10   // of them per second
	coreLoad     = 0.5  // max share of a core for relaying
	coresProcess = 4    // per gateway
	filesSession = 2    // descriptors
)

// capacityTable shows what fits on a machine like this one, for each driver.
func (r *Results) capacityTable() table {
	t := table{head: []string{"", "sessions a GiB, idle", "detached ones with 32 KiB each", "messages/s a core, W1", "messages/s a core, W2", "messages/s a core, as fast as they are taken (W4)", "resumes/s a core"}}
	for _, d := range drivers {
		cost := func(w, figure string) float64 { return r.spread(w, "reseat@"+d, figure).Median }
		row := []string{d}
		for _, n := range []float64{1 << 20 / cost("W6", "used_kib"), 1 << 20 / (cost("W6", "opened_kib") + cost("W6det", "detached_kib")),
			1e6 / cost("W1", "cpu_us"), 1e6 / cost("W2", "cpu_us"), 1e6 / cost("W4", "cpu_us"), 1e6 / cost("W7", "resume_us")} {
			row = append(row, thousands(n))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// A plan is what a million players need.
type plan struct {
	Messages, Cores, Processes, Each    string
	SessionsGiB, BuffersGiB, ProcessGiB string
	Files, CutCPU, Share                string
}

// million returns the plan with one driver.
func (r *Results) million(driver string) plan {
	cost := func(w, figure string) float64 { return r.spread(w, "reseat@"+driver, figure).Median }
	cores := math.Ceil(players * ratePlayer * cost("W2", "cpu_us") / 1e6 / coreLoad)
	processes := math.Ceil(cores / coresProcess)
	sessions, buffers := players*cost("W6", "used_kib")/(1<<20), players*awayShare*awaySeconds*downPlayer*payload/2/float64(1<<30)
	each := players / processes
	return plan{
		Messages: thousands(players * ratePlayer), Cores: thousands(cores), Processes: thousands(processes), Each: thousands(each),
		SessionsGiB: number(sessions), BuffersGiB: number(buffers), ProcessGiB: number((sessions + buffers) / processes),
		Files: thousands(each * filesSession), CutCPU: number(each * cost("W7", "resume_us") / 1e6), Share: fmt.Sprintf("%.0f %%", coreLoad*100),
	}
}

// thousands formats a large number with two digits, in groups of three; "" if it is unknown.
func thousands(v float64) string {
	if math.IsInf(v, 0) {
		return ""
	}
	if v >= 100 {
		p := math.Pow(10, math.Floor(math.Log10(v))-1)
		v = math.Round(v/p) * p
	}
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
