package server

import "testing"

const mib = 1 << 20

func TestGarbageOfBurstIsCollectedWhenIdle(t *testing.T) {
	for name, c := range map[string]struct {
		looks []heap // the first is right after a collection
		want  []bool
	}{
		"nothing happens": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {100 * mib, 80 * mib, 0, 0}},
			[]bool{false, false},
		},
		"handshakes stop": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {112 * mib, 80 * mib, 0, 0}, {112*mib + 1, 80 * mib, 0, 0}, {112*mib + 2, 80 * mib, 0, 0}},
			[]bool{false, false, true, false},
		},
		"buffers in use during a collection are pooled later": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {136 * mib, 116 * mib, 0, 0}, {136 * mib, 116 * mib, 0, 0}, {136 * mib, 80 * mib, 0, 0}},
			[]bool{false, false, true, false},
		},
		"too little to be worth it": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {109 * mib, 80 * mib, 0, 0}, {109 * mib, 80 * mib, 0, 0}},
			[]bool{false, false, false},
		},
		"little, of a small heap": {
			[]heap{{10 * mib, mib, 0, 0}, {15 * mib, mib, 0, 0}, {15 * mib, mib, 0, 0}},
			[]bool{false, false, true},
		},
		"little by little": {
			[]heap{{100 * mib, 4 * mib, 0, 0}, {100*mib + mib*9/10, 4 * mib, 0, 0}, {101*mib + mib*8/10, 4 * mib, 0, 0}, {102*mib + mib*7/10, 4 * mib, 0, 0}, {103*mib + mib*6/10, 4 * mib, 0, 0}, {104*mib + mib*5/10, 4 * mib, 0, 0}},
			[]bool{false, false, false, false, false, true},
		},
		"old buffers are emptied": {
			[]heap{{100 * mib, 80 * mib, 0, 30 * mib}, {100 * mib, 80 * mib, 0, 25 * mib}, {100 * mib, 80 * mib, 0, 0}},
			[]bool{false, false, true},
		},
		"free memory is not returned": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {100 * mib, 80 * mib, 12 * mib, 0}},
			[]bool{false, true},
		},
		"buffers are filled": {
			[]heap{{100 * mib, 80 * mib, 0, 0}, {100 * mib, 80 * mib, 0, 30 * mib}},
			[]bool{false, false},
		},
	} {
		var one tidier
		one.last, one.tidy = c.looks[0], c.looks[0]
		for i, h := range c.looks {
			if got := one.look(h); got != c.want[i] {
				t.Errorf("%s: look %d: collected: %v", name, i, got)
			}
		}
	}
}
