package main

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"
)

// A gzip encoder for files that are compressed once and served for long. It is slow
// (two seconds for the browser client) and 3 % better than compress/gzip, which
// takes the first good match: this one finds the cheapest of all sequences of
// literals and matches for given codes, derives new codes from it, and repeats, as
// zopfli does.

// rounds is how often tokens and codes are adapted to each other. More rounds make
// the browser client no smaller.
const rounds = 20

// Limits of RFC 1951 section 3.2.5.
const (
	minMatch, maxMatch = 3, 258
	maxDistance        = 32768
	endOfBlock         = 256
)

// token is a literal where length is 0, else a match.
type token struct {
	literal          byte
	length, distance int
}

// gzipped returns content as one gzip member (RFC 1952).
func gzipped(content []byte) []byte {
	out := &bitWriter{buf: []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255}}
	m := findMatches(content)
	blocks := split(m.parse(0, len(content)))
	from := 0
	for i, block := range blocks {
		to := from
		for _, t := range block {
			to += max(t.length, 1)
		}
		writeBlock(out, m.parse(from, to), i == len(blocks)-1)
		from = to
	}
	out.buf = binary.LittleEndian.AppendUint32(out.buf, crc32.ChecksumIEEE(content))
	return binary.LittleEndian.AppendUint32(out.buf, uint32(len(content)))
}

// matches has for each position the matches of every length there, of each distance
// symbol the nearest one. A longer distance may have the shorter code.
type matches struct {
	content []byte
	at      [][]token
}

func findMatches(content []byte) *matches {
	m := &matches{content, make([][]token, len(content))}
	seen := map[[minMatch]byte][]int{}
	for i := 0; i+minMatch <= len(content); i++ {
		var longest [30]int // of each distance symbol
		key := [minMatch]byte(content[i:])
		for _, j := range slices.Backward(seen[key]) {
			if i-j > maxDistance {
				break
			}
			length := minMatch
			for length < maxMatch && i+length < len(content) && content[i+length] == content[j+length] {
				length++
			}
			known := &longest[distanceSymbol(i-j).symbol]
			for l := max(*known+1, minMatch); l <= length; l++ {
				m.at[i] = append(m.at[i], token{length: l, distance: i - j})
			}
			*known = max(*known, length)
		}
		seen[key] = append(seen[key], i)
	}
	return m
}

// parse returns the tokens for content[from:to] in a block of their own.
func (m *matches) parse(from, to int) []token {
	var best []token
	least := math.Inf(1)
	lengths, distances := uniform(286), uniform(30)
	for round := range rounds {
		tokens := m.cheapest(from, to, lengths, distances)
		c := newCodes(tokens)
		if size := c.size(tokens); size < least {
			best, least = tokens, size
		}
		if round < rounds/2 {
			lengths, distances = entropy(c.lengthCounts), entropy(c.distanceCounts)
		} else { // a code has whole bits
			lengths, distances = whole(c.lengths), whole(c.distances)
		}
	}
	return best
}

// cheapest returns the tokens that cost least where a symbol costs that many bits.
func (m *matches) cheapest(from, to int, lengths, distances []float64) []token {
	cost := make([]float64, to-from+1)
	last := make([]token, to-from+1) // the token that ends there
	for i := 1; i < len(cost); i++ {
		cost[i] = math.Inf(1)
	}
	for i := from; i < to; i++ {
		at := i - from
		if c := cost[at] + lengths[m.content[i]]; c < cost[at+1] {
			cost[at+1], last[at+1] = c, token{literal: m.content[i]}
		}
		for _, t := range m.at[i] {
			if i+t.length > to {
				continue
			}
			l, d := lengthSymbol(t.length), distanceSymbol(t.distance)
			c := cost[at] + lengths[l.symbol] + float64(l.extra) + distances[d.symbol] + float64(d.extra)
			if c < cost[at+t.length] {
				cost[at+t.length], last[at+t.length] = c, t
			}
		}
	}
	var tokens []token
	for at := to - from; at > 0; at -= max(last[at].length, 1) {
		tokens = append(tokens, last[at])
	}
	slices.Reverse(tokens)
	return tokens
}

// split cuts tokens into blocks, as long as codes of their own make up for the
// header that each needs.
func split(tokens []token) [][]token {
	const step = 64
	whole := newCodes(tokens).size(tokens)
	at, least := 0, whole
	for i := step; i < len(tokens); i += step {
		left, right := tokens[:i], tokens[i:]
		if size := newCodes(left).size(left) + newCodes(right).size(right); size < least {
			at, least = i, size
		}
	}
	if at == 0 {
		return [][]token{tokens}
	}
	return append(split(tokens[:at]), split(tokens[at:])...)
}

// field is a value of so many bits.
type field struct{ value, bits int }

// codes are the two Huffman codes of a block and its header.
type codes struct {
	lengthCounts, distanceCounts []int
	lengths, distances           []int // bits of each symbol
	header                       []field
}

func newCodes(tokens []token) *codes {
	c := &codes{lengthCounts: make([]int, 286), distanceCounts: make([]int, 30)}
	c.lengthCounts[endOfBlock]++
	for _, t := range tokens {
		if t.length == 0 {
			c.lengthCounts[t.literal]++
			continue
		}
		c.lengthCounts[lengthSymbol(t.length).symbol]++
		c.distanceCounts[distanceSymbol(t.distance).symbol]++
	}
	c.lengths, c.distances = huffman(c.lengthCounts, 15), huffman(c.distanceCounts, 15)
	c.makeHeader()
	return c
}

// size is how many bits the block takes.
func (c *codes) size(tokens []token) float64 {
	n := 3 + c.lengths[endOfBlock]
	for _, f := range c.header {
		n += f.bits
	}
	for _, t := range tokens {
		if t.length == 0 {
			n += c.lengths[t.literal]
			continue
		}
		l, d := lengthSymbol(t.length), distanceSymbol(t.distance)
		n += c.lengths[l.symbol] + l.extra + c.distances[d.symbol] + d.extra
	}
	return float64(n)
}

// makeHeader makes the header, the lengths of the codes (RFC 1951 section 3.2.7).
func (c *codes) makeHeader() {
	lengths, distances := c.lengths, c.distances
	for len(lengths) > 257 && lengths[len(lengths)-1] == 0 {
		lengths = lengths[:len(lengths)-1]
	}
	for len(distances) > 1 && distances[len(distances)-1] == 0 {
		distances = distances[:len(distances)-1]
	}
	var runs []symbol
	counts := make([]int, 19)
	add := func(name, extra, value int) {
		runs = append(runs, symbol{name, extra, value})
		counts[name]++
	}
	all := slices.Concat(lengths, distances)
	for i := 0; i < len(all); {
		n := 1
		for i+n < len(all) && all[i+n] == all[i] {
			n++
		}
		switch {
		case all[i] == 0 && n >= 11:
			n = min(n, 138)
			add(18, 7, n-11)
		case all[i] == 0 && n >= 3:
			add(17, 3, n-3)
		case all[i] != 0 && i > 0 && all[i] == all[i-1] && n >= 3:
			n = min(n, 6)
			add(16, 2, n-3)
		default:
			n = 1
			add(all[i], 0, 0)
		}
		i += n
	}
	code := huffman(counts, 7)
	order := []int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
	for len(order) > 4 && code[order[len(order)-1]] == 0 {
		order = order[:len(order)-1]
	}
	c.header = []field{{len(lengths) - 257, 5}, {len(distances) - 1, 5}, {len(order) - 4, 4}}
	for _, symbol := range order {
		c.header = append(c.header, field{code[symbol], 3})
	}
	words := canonical(code)
	for _, r := range runs {
		c.header = append(c.header, field{words[r.symbol], code[r.symbol]}, field{r.value, r.extra})
	}
}

func writeBlock(out *bitWriter, tokens []token, final bool) {
	c := newCodes(tokens)
	out.write(map[bool]int{true: 1}[final], 1)
	out.write(2, 2) // dynamic codes
	for _, f := range c.header {
		out.write(f.value, f.bits)
	}
	lengths, distances := canonical(c.lengths), canonical(c.distances)
	for _, t := range tokens {
		if t.length == 0 {
			out.write(lengths[t.literal], c.lengths[t.literal])
			continue
		}
		l, d := lengthSymbol(t.length), distanceSymbol(t.distance)
		out.write(lengths[l.symbol], c.lengths[l.symbol])
		out.write(l.value, l.extra)
		out.write(distances[d.symbol], c.distances[d.symbol])
		out.write(d.value, d.extra)
	}
	out.write(lengths[endOfBlock], c.lengths[endOfBlock])
}

// huffman returns the length of each symbol's code, 0 for those that do not occur,
// by the package-merge algorithm: the best ones that are not longer than limit.
func huffman(counts []int, limit int) []int {
	type coins struct {
		weight  int
		symbols []int
	}
	var leaves []coins
	for symbol, n := range counts {
		if n > 0 {
			leaves = append(leaves, coins{n, []int{symbol}})
		}
	}
	byWeight := func(a, b coins) int { return cmp.Compare(a.weight, b.weight) }
	slices.SortStableFunc(leaves, byWeight)
	lengths := make([]int, len(counts))
	if len(leaves) == 1 {
		lengths[leaves[0].symbols[0]] = 1
		return lengths
	}
	var row []coins
	for range limit {
		next := slices.Clone(leaves)
		for i := 0; i+1 < len(row); i += 2 {
			next = append(next, coins{row[i].weight + row[i+1].weight, slices.Concat(row[i].symbols, row[i+1].symbols)})
		}
		slices.SortStableFunc(next, byWeight)
		row = next
	}
	for _, c := range row[:max(2*len(leaves)-2, 0)] {
		for _, symbol := range c.symbols {
			lengths[symbol]++
		}
	}
	return lengths
}

// canonical returns the codes of those lengths (RFC 1951 section 3.2.2), with
// their first bit lowest.
func canonical(lengths []int) []int {
	words := make([]int, len(lengths))
	code := 0
	for length := 1; length <= 15; length++ {
		for symbol, l := range lengths {
			if l == length {
				words[symbol] = int(bits.Reverse16(uint16(code)) >> (16 - length))
				code++
			}
		}
		code <<= 1
	}
	return words
}

// entropy returns what each symbol would cost in a perfect code.
func entropy(counts []int) []float64 {
	total := 0
	for _, n := range counts {
		total += n
	}
	costs := make([]float64, len(counts))
	for i, n := range counts {
		costs[i] = math.Log2(float64(max(total, 1)) / max(float64(n), 0.5))
	}
	return costs
}

// whole returns what each symbol costs in a code of those lengths; one that has none yet costs
// as much as a rare one.
func whole(lengths []int) []float64 {
	costs := make([]float64, len(lengths))
	for i, n := range lengths {
		costs[i] = float64(n)
		if n == 0 {
			costs[i] = 13
		}
	}
	return costs
}

func uniform(n int) []float64 { return entropy(make([]int, n)) }

// symbol is a length or a distance as deflate writes it (RFC 1951 section 3.2.5).
type symbol struct{ symbol, extra, value int }

func lengthSymbol(length int) symbol {
	n := length - minMatch
	if length == maxMatch {
		return symbol{285, 0, 0}
	}
	extra := max(bits.Len(uint(n))-3, 0)
	return symbol{257 + extra<<2 + n>>extra, extra, n & (1<<extra - 1)}
}

func distanceSymbol(distance int) symbol {
	n := distance - 1
	extra := max(bits.Len(uint(n))-2, 0)
	return symbol{extra<<1 + n>>extra, extra, n & (1<<extra - 1)}
}

// bitWriter writes bits, the lowest first.
type bitWriter struct {
	buf  []byte
	free int // bits of the last byte
}

func (w *bitWriter) write(value, n int) {
	for i := range n {
		if w.free == 0 {
			w.buf, w.free = append(w.buf, 0), 8
		}
		w.buf[len(w.buf)-1] |= byte(value>>i&1) << (8 - w.free)
		w.free--
	}
}
