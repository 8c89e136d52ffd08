package stat

import (
	"math"
	"slices"
)

// many is from how many values on Of returns quartiles: of so many one is always odd.
const many = 8

// A Spread summarizes several rounds of one figure: its median, with the quartiles, or of
// fewer than eight values with the lowest and the highest.
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
	if n >= many {
		return Spread{Median: quantile(v, .5), Low: quantile(v, .25), High: quantile(v, .75), N: n}
	}
	return Spread{Median: (v[(n-1)/2] + v[n/2]) / 2, Low: v[0], High: v[n-1], N: n}
}

// quantile interpolates between sorted values.
func quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := min(int(at), len(sorted)-2)
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
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
