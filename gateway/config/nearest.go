package config

import (
	"fmt"
	"strings"
)

// unknown returns the error for a word that is not the name of a flag that keep accepts.
// kind names what was looked for; spell returns a flag's name in that place.
func unknown(word, kind string, spell func(string) string, keep func(*flag) bool) error {
	if instead, ok := gone[strings.TrimLeft(word, "-")]; ok {
		return fmt.Errorf("there is no such %s any more: %s", kind, instead)
	}
	near := nearest(strings.TrimLeft(word, "-"), flagNames(keep))
	if near == "" {
		return fmt.Errorf("unknown %s; --help lists them", kind)
	}
	return fmt.Errorf("unknown %s; the nearest is %s", kind, spell(near))
}

// gone are the flags of earlier versions, and what there is in place of each.
var gone = map[string]string{
	"client-header":      "--trusted-header names a header that no client may set, and a proxy can remove others",
	"cluster-plaintext":  "a NATS server on another machine without TLS is plaintext://HOST:4222 in --cluster",
	"compression-window": "--compression takes the window, as in --compression 4KiB",
	"grace-unconfirmed":  "a session whose client has said nothing yet is kept for 5s, or for --grace if that is shorter",
	"keepalive":          "--keepalive-send takes hint, auto and off",
	"node-ca":            gonePrivateCA,
	"node-cert":          gonePrivateCA,
	"node-key":           gonePrivateCA,
	"unsafe-paths":       "paths that servers interpret differently are refused with 400",
}

const gonePrivateCA = "nodes make their certificates of the keys of --token-key-file"

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
		most := max(1, len(name)/3)
		if len(s)-len(name) > most {
			continue
		}
		if d := distance(s, name); d < least && d <= most {
			best, least = name, d
		}
	}
	return best
}

// distance is the number of single letters to insert, remove or replace, or of neighbours
// to swap, to make b of a (optimal string alignment).
func distance(a, b string) int {
	wide := len(b) + 1
	d := make([]int, (len(a)+1)*wide) // d[i*wide+j] is that of a[:i] and b[:j]
	for i := range len(a) + 1 {
		for j := range wide {
			at := i*wide + j
			if i == 0 || j == 0 {
				d[at] = i + j
				continue
			}
			replaced := d[at-wide-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			d[at] = min(d[at-wide]+1, d[at-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[at] = min(d[at], d[at-2*wide-2]+1)
			}
		}
	}
	return d[len(d)-1]
}
