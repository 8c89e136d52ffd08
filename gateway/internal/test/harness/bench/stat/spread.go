package stat

import (
	"math"
	"slices"
)

// A Spread summarizes several rounds of one figure.
type Spread struct {
	Median, Low, High float64
	N                 int
}

// Of summarizes values. For an even number the median is the mean of the middle two;
// for none everything is zero.
func Of(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := slices.Clone(values)
	slices.Sort(v)
	n := len(v)
	return Spread{Median: (v[(n-1)/2] + v[n/2]) / 2, Low: v[0], High: v[n-1], N: n}
}

// Ratios divides a by b, round by round, and omits rounds that lack either.
func Ratios(a, b map[int]float64) []float64 {
	var list []float64
	for round, x := range a {
		if y, ok := b[round]; ok && y != 0 && !math.IsNaN(x/y) {
			list = append(list, x/y)
		}
	}
	return list
}
