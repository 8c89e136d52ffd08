package registry

import "testing"

// RFC 6455 section 5.3: fresh for every frame.
func TestMaskingKeysDiffer(t *testing.T) {
	seen := map[[4]byte]int{}
	for range 1000 {
		seen[MaskingKey()]++
	}
	if len(seen) < 990 { // of 2^32 keys, one repeats in 1,000 once in 8,600 runs
		t.Errorf("%d keys in 1,000", len(seen))
	}
	for i := range 4 {
		values := map[byte]bool{}
		for k := range seen {
			values[k[i]] = true
		}
		if len(values) < 200 {
			t.Errorf("byte %d of the keys takes %d values", i, len(values))
		}
	}
}
