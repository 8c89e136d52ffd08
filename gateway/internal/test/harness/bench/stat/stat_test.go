package stat

import (
	"math"
	"slices"
	"testing"
)

func TestQuantilesAreWithinTheirPrecision(t *testing.T) {
	var odd, h Hist
	for i := int64(1); i <= 100_000; i++ {
		to := &h
		if i%2 == 1 {
			to = &odd
		}
		to.Record(i * 1000)
	}
	h.Add(&odd)
	for p, want := range map[float64]float64{.5: 50e6, .99: 99e6, .999: 99.9e6, 1: 100e6} {
		if got := float64(h.Quantile(p)); math.Abs(got-want) > want/60 {
			t.Errorf("quantile %v is %v, want %v", p, got, want)
		}
	}
	if q := h.Quantiles(); q.N != 100_000 {
		t.Errorf("%+v", q)
	}
	if h.Reset(); h.Quantiles() != (Quantiles{}) {
		t.Errorf("after a reset: %+v", h.Quantiles())
	}
}

func TestEveryValueHasItsBucket(t *testing.T) {
	for _, v := range []int64{0, 1, 63, 64, 127, 128, 129, 255, 256, 1000, 1 << 20, 1<<20 + 1, 1 << 40, math.MaxInt64} {
		if got := middle(bucket(v)); math.Abs(float64(got-v)) > float64(v)/64 {
			t.Errorf("%d is reported as %d", v, got)
		}
	}
	last := -1
	for v := range int64(1 << 14) {
		b := bucket(v)
		if b != last && b != last+1 {
			t.Fatalf("bucket %d behind bucket %d", b, last)
		}
		last = b
	}
}

// One of many values is always odd: quartiles don't show it.
func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3, 1}},
		{[]float64{5, 1, 3}, Spread{3, 1, 5, 3}},
		{[]float64{4, 1, 2, 9}, Spread{3, 1, 9, 4}},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8}, Spread{4.5, 2.75, 6.25, 8}},
		{[]float64{100, 2, 3, 4, 5, 6, 7, 8, 1}, Spread{5, 3, 7, 9}},
	} {
		given := slices.Clone(tt.values)
		if got := Of(tt.values); got != tt.want || !slices.Equal(given, tt.values) {
			t.Errorf("%v: %+v, want %+v; the values are now %v", given, got, tt.want, tt.values)
		}
	}
}

// Ratios are taken within a round, because the machine changes between rounds.
func TestRatiosAreTakenRoundByRound(t *testing.T) {
	got := Ratios(map[int]float64{1: 10, 2: 30, 3: 8}, map[int]float64{1: 5, 2: 10, 4: 1, 3: 0})
	if slices.Sort(got); !slices.Equal(got, []float64{2, 3}) {
		t.Errorf("%v, want 2 and 3", got)
	}
}
