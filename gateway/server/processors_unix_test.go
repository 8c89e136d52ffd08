//go:build unix

package server

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestProcessorsAreAsManyAsTheLoadNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		all   int
		loads []float64 // processors used within half a second
		want  []int
	}{
		"idle":                          {2, []float64{0, 0, 0}, []int{2, 1, 1}},
		"steady":                        {2, []float64{0.5, 0.5, 0.9, 0.9}, []int{2, 1, 1, 1}},
		"too much for fewer":            {2, []float64{0.85, 0.85, 0.85, 0.85}, []int{2, 2, 2, 2}},
		"short peaks count":             {2, []float64{0.1, 0.85, 0.1, 0.85}, []int{2, 2, 2, 2}},
		"a burst gets all at once":      {8, []float64{0, 0, 1, 2, 0, 0}, []int{8, 1, 8, 8, 3, 3}},
		"after a burst":                 {8, []float64{0, 0, 1, 0, 0}, []int{8, 1, 8, 8, 1}},
		"many":                          {16, []float64{3, 3, 3.7, 3.9}, []int{16, 4, 4, 16}},
		"never more than there are":     {2, []float64{1.8, 1.8, 2, 2}, []int{2, 2, 2, 2}},
		"no more because less was used": {8, []float64{0.5, 0.5, 0.8, 0.8}, []int{8, 1, 1, 1}},
	} {
		f := fitter{all: c.all, using: c.all}
		for i, load := range c.loads {
			if got := f.look(loadWindow/2, load); got != c.want[i] {
				t.Errorf("%s: after %v processors of load, look %d: %d processors, want %d", name, load, i, got, c.want[i])
			}
		}
	}
}

// In the bubble a second passes at once, so that the process uses no processor time in it.
func TestIdleProcessUsesOneProcessor(t *testing.T) {
	was := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(was)
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	for _, c := range []struct {
		environ       []string
		during, after int
	}{
		{[]string{"GOGC=25"}, 1, all},
		{[]string{"GOGC=25", "GOMAXPROCS=4"}, 4, 4}, // the operator's choice
	} {
		runtime.GOMAXPROCS(4)
		synctest.Test(t, func(t *testing.T) {
			undo := fitProcessors(c.environ)
			time.Sleep(loadWindow + idleEvery)
			synctest.Wait()
			if got := runtime.GOMAXPROCS(0); got != c.during {
				t.Errorf("%v: %d processors, want %d", c.environ, got, c.during)
			}
			undo()
			if got := runtime.GOMAXPROCS(0); got != c.after {
				t.Errorf("%v: %d processors afterwards, want %d", c.environ, got, c.after)
			}
		})
	}
}
