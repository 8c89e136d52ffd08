package stat

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestQuantilesAreWithinTheirPrecision(t *testing.T) {
	var h Hist
	for i := int64(1); i <= 100_000; i++ {
		h.Record(i * 1000)
	}
	for p, want := range map[float64]float64{.5: 50e6, .99: 99e6, .999: 99.9e6, 1: 100e6} {
		if got := float64(h.Quantile(p)); math.Abs(got-want) > want/60 {
			t.Errorf("quantile %v is %v, want %v", p, got, want)
		}
	}
	if h.Max() != 100*time.Millisecond || h.N() != 100_000 {
		t.Errorf("max %v of %d", h.Max(), h.N())
	}
}

func TestEveryValueHasItsBucket(t *testing.T) {
	for _, v := range []int64{0, 1, 63, 64, 127, 128, 129, 255, 256, 1000, 1 << 20, 1<<20 + 1, 1 << 40, math.MaxInt64} {
		got := middle(bucket(v))
		if diff := math.Abs(float64(got - v)); diff > float64(v)/64 {
			t.Errorf("%d is reported as %d", v, got)
		}
	}
	last := -1
	for v := int64(0); v < 1<<14; v++ {
		b := bucket(v)
		if b != last && b != last+1 {
			t.Fatalf("bucket %d behind bucket %d", b, last)
		}
		last = b
	}
}

func TestEmptyAndNegativeAreZero(t *testing.T) {
	var h Hist
	if h.Quantile(.99) != 0 || h.Quantiles() != (Quantiles{}) {
		t.Error("nothing was recorded")
	}
	h.Record(-5)
	if h.N() != 1 || h.Max() != 0 {
		t.Error("a negative duration")
	}
	h.Record(5)
	if h.Reset(); h.N() != 0 || h.Max() != 0 {
		t.Error("not forgotten")
	}
}

func TestSlowMessageShowsInTheTail(t *testing.T) {
	var h Hist
	for range 999 {
		h.Record(1000)
	}
	h.Record(50_000_000)
	q := h.Quantiles()
	if q.P50 > 1.02 || q.P99 > 1.02 || q.Max != 50_000 {
		t.Errorf("%+v", q)
	}
	if got := h.Quantile(.9995); got < 49*time.Millisecond {
		t.Errorf("p99.95 is %v", got)
	}
}

func TestAddedHistogramCountsAsIfRecordedHere(t *testing.T) {
	var a, b, both Hist
	for i := int64(1); i < 1000; i++ {
		h := &a
		if i%3 == 0 {
			h = &b
		}
		h.Record(i * 1000)
		both.Record(i * 1000)
	}
	a.Add(&b)
	if a != both {
		t.Errorf("%+v, want %+v", a.Quantiles(), both.Quantiles())
	}
}

// One of many values is always odd: quartiles don't show it.
func TestSpreadOfManyValuesIsTheirQuartiles(t *testing.T) {
	got := Of([]float64{1, 2, 3, 4, 5, 6, 7, 8, 100})
	if want := (Spread{5, 3, 7, 9}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := Of([]float64{1, 2, 3, 4, 5, 6, 7, 8}); got.Low != 2.75 || got.High != 6.25 || got.Median != 4.5 {
		t.Errorf("%+v", got)
	}
}

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3, 1}},
		{[]float64{5, 1, 3}, Spread{3, 1, 5, 3}},
		{[]float64{4, 1, 2, 9}, Spread{3, 1, 9, 4}},
	} {
		given := slices.Clone(tt.values)
		if got := Of(tt.values); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.values, got, tt.want)
		}
		if !slices.Equal(given, tt.values) {
			t.Errorf("%v has become %v", given, tt.values)
		}
	}
}

// Ratios are taken within a round, because the machine changes between rounds.
func TestRatiosAreTakenRoundByRound(t *testing.T) {
	a := map[int]float64{1: 10, 2: 30, 3: 8}
	b := map[int]float64{1: 5, 2: 10, 4: 1, 3: 0}
	got := Ratios(a, b)
	slices.Sort(got)
	if !slices.Equal(got, []float64{2, 3}) {
		t.Errorf("%v", got)
	}
}
