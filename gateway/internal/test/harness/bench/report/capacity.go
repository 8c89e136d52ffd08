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
	for _, d := range r.drivers() {
		f := func(w, figure string, of float64) string {
			s := r.spread(w, named("reseat", d), figure)
			if s.N == 0 || s.Median == 0 {
				return ""
			}
			return thousands(of / s.Median)
		}
		detached := ""
		if add, used := r.spread("W6det", named("reseat", d), "detached_kib"), r.spread("W6", named("reseat", d), "opened_kib"); add.N > 0 && used.N > 0 {
			detached = thousands(1 << 20 / (add.Median + used.Median))
		}
		t.rows = append(t.rows, []string{d + " driver", f("W6", "used_kib", 1<<20), detached,
			f("W1", "cpu_us", 1e6), f("W2", "cpu_us", 1e6), f("W4", "cpu_us", 1e6), f("W7", "resume_us", 1e6)})
	}
	return t
}

// A plan is what a million players need.
type plan struct {
	Driver                              string
	Messages, Cores, Processes, Each    string
	SessionsGiB, BuffersGiB, ProcessGiB string
	Files, CutCPU, Share                string
}

// million returns the plan with one driver.
func (r *Results) million(driver string) plan {
	cpu := r.spread("W2", named("reseat", driver), "cpu_us").Median
	used := r.spread("W6", named("reseat", driver), "used_kib").Median
	resume := r.spread("W7", named("reseat", driver), "resume_us").Median
	cores := math.Ceil(players * ratePlayer * cpu / 1e6 / coreLoad)
	processes := math.Ceil(cores / coresProcess)
	sessions, buffers := players*used/(1<<20), players*awayShare*awaySeconds*downPlayer*payload/2/float64(1<<30)
	each := players / processes
	return plan{
		Driver: driver, Messages: thousands(players * ratePlayer), Cores: thousands(cores), Processes: thousands(processes), Each: thousands(each),
		SessionsGiB: number(sessions), BuffersGiB: number(buffers), ProcessGiB: number((sessions + buffers) / processes),
		Files: thousands(each * filesSession), CutCPU: number(each * resume / 1e6), Share: fmt.Sprintf("%.0f %%", coreLoad*100),
	}
}

func named(subject, driver string) string {
	if driver == "" {
		return subject
	}
	return subject + "@" + driver
}

// thousands formats a large number with two digits, in groups of three.
func thousands(v float64) string {
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
