package program

import "testing"

const mib = 1 << 20

func TestWhatAStormLeavesIsCollectedOnceAllIsCalm(t *testing.T) {
	for name, c := range map[string]struct {
		looks []heap // the first one finds a collection that was there before
		want  []bool
	}{
		"nothing happens": {
			[]heap{{1, 100 * mib, 80 * mib, 80 * mib, 0, 0}, {1, 100 * mib, 80 * mib, 80 * mib, 0, 0}},
			[]bool{false, false},
		},
		"handshakes come, and stop": {
			[]heap{{1, 100 * mib, 80 * mib, 80 * mib, 0, 0}, {1, 112 * mib, 92 * mib, 80 * mib, 0, 0}, {1, 112*mib + 1, 92 * mib, 80 * mib, 0, 0}, {3, 112*mib + 2, 80 * mib, 80 * mib, 0, 0}},
			[]bool{false, false, true, false},
		},
		"they stop right after a collection": {
			[]heap{{1, 100 * mib, 80 * mib, 80 * mib, 0, 0}, {2, 120 * mib, 95 * mib, 82 * mib, 0, 0}, {2, 120 * mib, 95 * mib, 82 * mib, 0, 0}},
			[]bool{false, false, true},
		},
		"too little to be worth it": {
			[]heap{{1, 100 * mib, 80 * mib, 80 * mib, 0, 0}, {1, 109 * mib, 89 * mib, 80 * mib, 0, 0}, {1, 109 * mib, 89 * mib, 80 * mib, 0, 0}},
			[]bool{false, false, false},
		},
		"little, of a small heap": {
			[]heap{{1, 10 * mib, mib, mib, 0, 0}, {1, 15 * mib, 6 * mib, mib, 0, 0}, {1, 15 * mib, 6 * mib, mib, 0, 0}},
			[]bool{false, false, true},
		},
		"buffers are emptied, of memory older than the collection": {
			[]heap{{1, 100 * mib, 80 * mib, 80 * mib, 0, 30 * mib}, {1, 100 * mib, 80 * mib, 80 * mib, 0, 25 * mib}, {1, 100 * mib, 80 * mib, 80 * mib, 0, 0}},
			[]bool{false, false, true},
		},
		"what is free is kept from the system": {
			[]heap{{1, 100 * mib, 80 * mib, 80 * mib, 0, 0}, {1, 100 * mib, 80 * mib, 80 * mib, 12 * mib, 0}},
			[]bool{false, true},
		},
		"buffers are filled": {
			[]heap{{1, 100 * mib, 80 * mib, 80 * mib, 0, 0}, {1, 100 * mib, 80 * mib, 80 * mib, 0, 30 * mib}},
			[]bool{false, false},
		},
	} {
		var one tidier
		one.last = c.looks[0]
		for i, h := range c.looks {
			if got := one.look(h); got != c.want[i] {
				t.Errorf("%s: look %d: collected: %v", name, i, got)
			}
		}
	}
}
