package report

import (
	"fmt"
	"html"
	"math"
	"strings"
	"unicode/utf8"

	"reseat/gateway/internal/test/harness/bench/stat"
)

// A chart is groups of horizontal bars, each with its min and max.
type chart struct {
	title  string
	ratio  bool // values are ratios, shown with two decimals
	groups []group
	mark   float64 // a line at this value; zero: none
}

type group struct {
	title string
	bars  []stroke
}

type stroke struct {
	title string
	own   bool // it is the gateway's
	value stat.Spread
}

const (
	barsWidth  = 480
	valueWidth = 70
	charWidth  = 7 // of a label's characters, on average, in wide fonts
	labelGap   = 8
	barHeight  = 14
	barGap     = 4
	groupGap   = 26
)

// The colors have enough contrast on white and on black; text follows the reader's
// color scheme.
const chartStyle = `<style>
text{font:12px system-ui,sans-serif;fill:#24292f}
.title{font-size:14px;font-weight:600}
.group{font-weight:600}
.other{fill:#8c959f}.own{fill:#2f81f7}
.range{stroke:#57606a;stroke-width:1.5}
.mark{stroke:#cf222e;stroke-dasharray:4 3}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.other{fill:#6e7681}.range{stroke:#c9d1d9}.mark{stroke:#ff7b72}}
</style>`

// SVG draws the chart on no background of its own.
func (c chart) SVG() string {
	var b strings.Builder
	y := 24.0
	fmt.Fprintf(&b, `<text class="title" x="0" y="14">%s</text>`, html.EscapeString(c.title))
	b.WriteByte('\n')
	left := c.labelWidth()
	scale := barsWidth / c.highest()
	for _, g := range c.groups {
		y += groupGap
		fmt.Fprintf(&b, `<text class="group" x="0" y="%.0f">%s</text>`+"\n", y-8, html.EscapeString(g.title))
		top := y
		for _, s := range g.bars {
			s.draw(&b, left, y, scale, c.label(s.value.Median))
			y += barHeight + barGap
		}
		if c.mark > 0 {
			x := float64(left) + c.mark*scale
			fmt.Fprintf(&b, `<line class="mark" x1="%.1f" y1="%.0f" x2="%.1f" y2="%.0f"/>`+"\n", x, top-3, x, y-1)
		}
	}
	width := left + barsWidth + valueWidth
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img" aria-label="%s">`+"\n%s\n%s</svg>\n",
		width, y+6, width, y+6, html.EscapeString(c.title), chartStyle, b.String())
}

func (s stroke) draw(b *strings.Builder, left int, y, scale float64, label string) {
	class := "other"
	if s.own {
		class = "own"
	}
	x := func(v float64) float64 { return float64(left) + v*scale }
	fmt.Fprintf(b, `<text x="%d" y="%.0f" text-anchor="end">%s</text>`, left-labelGap, y+barHeight-3, html.EscapeString(s.title))
	fmt.Fprintf(b, `<rect class="%s" x="%d" y="%.0f" width="%.1f" height="%d" rx="2"/>`, class, left, y, s.value.Median*scale, barHeight)
	if s.value.High > s.value.Low {
		fmt.Fprintf(b, `<line class="range" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, x(s.value.Low), y+barHeight/2.0, x(s.value.High), y+barHeight/2.0)
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.0f">%s</text>`+"\n", x(math.Max(s.value.Median, s.value.High))+6, y+barHeight-3, html.EscapeString(label))
}

// labelWidth returns the width of the longest label.
func (c chart) labelWidth() int {
	most := 0
	for _, g := range c.groups {
		for _, s := range g.bars {
			most = max(most, utf8.RuneCountInString(s.title))
		}
	}
	return most*charWidth + labelGap
}

func (c chart) label(v float64) string {
	if c.ratio {
		return fmt.Sprintf("%.2f×", v)
	}
	return number(v)
}

func (c chart) highest() float64 {
	most := c.mark
	for _, g := range c.groups {
		for _, s := range g.bars {
			most = math.Max(most, s.value.High)
		}
	}
	return math.Max(most, 1e-9)
}
