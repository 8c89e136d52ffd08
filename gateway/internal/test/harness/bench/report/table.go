package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"reseat/gateway/internal/test/harness/bench/stat"
)

// A table has a row for each subject with a value in it.
type table struct {
	head []string
	rows [][]string
}

// A column is a figure of a workload, as a table shows it.
type column struct {
	title    string
	workload string
	figures  []string // one, or several separated by a slash
	versus   string   // a subject to divide by; empty: none
	of       string   // only of this subject, and divided by versus with the same driver; empty: of all
	scale    float64  // to multiply by; zero: 1
	spread   bool     // with min and max
}

// build fills a table. It omits columns of workloads that were not measured.
func (r *Results) build(columns ...column) table {
	t := table{head: []string{""}}
	var present []column
	for _, c := range columns {
		if r.has(c.workload) {
			present = append(present, c)
			t.head = append(t.head, c.title)
		}
	}
	for _, s := range r.Subjects {
		row, any := []string{s.Title}, false
		for _, c := range present {
			cell := r.cell(c, s.Name)
			any = any || cell != ""
			row = append(row, cell)
		}
		if any {
			t.rows = append(t.rows, row)
		}
	}
	return t
}

func (r *Results) cell(c column, subject string) string {
	var parts []string
	versus := c.versus
	if c.of != "" {
		base, driver, _ := strings.Cut(subject, "@")
		if base != c.of {
			return ""
		}
		versus += "@" + driver
	}
	for _, f := range c.figures {
		var s stat.Spread
		switch {
		case versus != "":
			s = r.ratio(c.workload, subject, f, versus)
		case c.spread:
			s = r.spread(c.workload, subject, f)
		default:
			s = r.shown(c.workload, subject, f)
		}
		if s.N == 0 {
			return ""
		}
		parts = append(parts, show(s, c))
	}
	return strings.Join(parts, " / ")
}

func show(s stat.Spread, c column) string {
	k := c.scale
	if k == 0 {
		k = 1
	}
	text := number
	if c.versus != "" {
		text = func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	}
	if !c.spread {
		return text(s.Median * k)
	}
	return fmt.Sprintf("%s [%s–%s]", text(s.Median*k), text(s.Low*k), text(s.High*k))
}

// number formats a value with three digits, or all before the decimal point.
func number(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return strconv.FormatFloat(v, 'f', min(max(digits, 0), 3), 64)
}

// String returns the table in Markdown; "" if it has no rows.
func (t table) String() string {
	if len(t.rows) == 0 || len(t.head) == 1 {
		return ""
	}
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(t.head)
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = "---"
	}
	line(rule)
	for _, r := range t.rows {
		line(r)
	}
	return b.String()
}
