package config

import "fmt"

// unknown returns the error for a word that is not the name of a flag that keep accepts.
// kind names what was looked for; spell returns a flag's name in that place.
func unknown(word, kind string, spell func(string) string, keep func(*flag) bool) error {
	near := nearest(word, flagNames(keep))
	if near == "" {
		return fmt.Errorf("unknown %s; --help lists them", kind)
	}
	return fmt.Errorf("unknown %s; the nearest is %s", kind, spell(near))
}

// flagNames returns the names of the rows that keep accepts.
func flagNames(keep func(*flag) bool) []string {
	var names []string
	for i := range table {
		if keep(&table[i]) {
			names = append(names, table[i].name)
		}
	}
	return names
}

// nearest returns the name closest to s, or "" if none is close enough to be
// a typing error: a third of its letters.
func nearest(s string, names []string) string {
	best, least := "", len(s)
	for _, name := range names {
		if d := distance(s, name); d < least && d <= max(1, len(name)/3) {
			best, least = name, d
		}
	}
	return best
}

// distance is the number of single letters to insert, remove or replace to
// make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
