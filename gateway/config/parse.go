package config

import (
	"crypto/x509"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/tokens/keyfile"
)

// A parser parses and checks one value. Its error says what it accepts, and what it got;
// the caller names the setting.
type parser[T any] func(string) (T, error)

// want returns the error of a parser: what it accepts, and what it got.
func want(what, got string) error { return fmt.Errorf("want %s, got %s", what, quote(got)) }

// quote returns any text as one quoted line, shortened if it is long.
func quote(s string) string { return strconv.Quote(shorten(s)) }

// printable is quote without the quotation marks, for names.
func printable(s string) string { return strings.Trim(quote(s), `"`) }

func shorten(s string) string {
	const high = 100
	if len(s) <= high {
		return s
	}
	return strings.ToValidUTF8(s[:high], "") + "..."
}

const day = 24 * time.Hour

// duration accepts Go's syntax with a unit, from low to high. 0 needs no unit and is
// accepted only if low is 0. Anything between 0 and a millisecond is refused, since the
// protocol counts in milliseconds.
func duration(low, high time.Duration) parser[time.Duration] {
	return func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		switch {
		case err != nil:
			return 0, want("a duration such as 45s", s)
		case d == 0 && low == 0:
			return 0, nil
		case d < max(low, time.Millisecond) || d > high:
			return 0, want(spanText(low, high), s)
		}
		return d, nil
	}
}

func spanText(low, high time.Duration) string {
	zero := ""
	if low == 0 {
		zero, low = "0 or ", time.Millisecond
	}
	return fmt.Sprintf("%sa duration from %s to %s", zero, registry.FormatDuration(low), registry.FormatDuration(high))
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// units are the units of a size, largest first.
var units = []struct {
	name  string
	bytes int64
}{{"GiB", gib}, {"MiB", mib}, {"KiB", kib}, {"", 1}}

var sizeSyntax = regexp.MustCompile(`^([0-9]{1,20}(?:\.[0-9]{1,20})?)(|KiB|MiB|GiB)$`)

// size accepts a number of bytes from low to high: a whole number, or KiB, MiB or GiB,
// with a fraction if that gives whole bytes.
func size(low, high int64) parser[int64] {
	return func(s string) (int64, error) {
		m := sizeSyntax.FindStringSubmatch(s)
		if m == nil {
			return 0, want("a size such as 65536, 64KiB, 1MiB or 2GiB", s)
		}
		n, _ := new(big.Rat).SetString(m[1])
		for _, u := range units {
			if u.name == m[2] {
				n.Mul(n, new(big.Rat).SetInt64(u.bytes))
			}
		}
		if !n.IsInt() {
			return 0, want("a whole number of bytes", s)
		}
		if v := n.Num(); v.IsInt64() && v.Int64() >= low && v.Int64() <= high {
			return v.Int64(), nil
		}
		return 0, want(fmt.Sprintf("a size from %s to %s", formatSize(low), formatSize(high)), s)
	}
}

// formatSize formats n bytes in the largest unit that gives a whole number, such that
// size parses it back.
func formatSize(n int64) string {
	for _, u := range units {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

var countSyntax = regexp.MustCompile(`^[0-9]{1,10}$`)

// count accepts a whole number from low to high.
func count(low, high int) parser[int] {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if !countSyntax.MatchString(s) || err != nil || n < low || n > high {
			return 0, want(fmt.Sprintf("a whole number from %d to %d", low, high), s)
		}
		return n, nil
	}
}

// or accepts what parse does, and a word for zero.
func or[T any](word string, parse parser[T]) parser[T] {
	return func(s string) (v T, err error) {
		if s == word {
			return v, nil
		}
		if v, err = parse(s); err != nil {
			return v, fmt.Errorf("%w; or %s", err, word)
		}
		return v, nil
	}
}

// choices are a few words, and what each means.
type choices[T any] []struct {
	word  string
	value T
}

// parse accepts one of the words.
func (c choices[T]) parse(s string) (value T, err error) {
	words := make([]string, len(c))
	for i, one := range c {
		if words[i] = one.word; s == one.word {
			return one.value, nil
		}
	}
	last := len(words) - 1
	return value, want(strings.Join(words[:last], ", ")+" or "+words[last], s)
}

// either returns a parser of two words, the second of which is true.
func either(no, yes string) parser[bool] { return choices[bool]{{no, false}, {yes, true}}.parse }

// boolean accepts the values of a flag that needs none.
var boolean = choices[bool]{{"true", true}, {"false", false}, {"on", true}, {"off", false}, {"1", true}, {"0", false}}.parse

// compression accepts off, on, no-window, and what the window may be.
func compression(s string) (policy.Compression, error) {
	window, err := choices[int]{{"off", -1}, {"on", 4 * kib}, {"no-window", 0}, {"1KiB", kib}, {"2KiB", 2 * kib}, {"4KiB", 4 * kib}, {"8KiB", 8 * kib}, {"16KiB", 16 * kib}, {"32KiB", 32 * kib}}.parse(s)
	if err != nil || window < 0 {
		return policy.Compression{}, err
	}
	return policy.Compression{On: true, Window: window}, nil
}

// identifier accepts 1 to 255 printable characters without blanks.
func identifier(s string) (string, error) {
	odd := func(r rune) bool { return r <= ' ' || !strconv.IsPrint(r) }
	if s == "" || len(s) > 255 || strings.ContainsFunc(s, odd) {
		return "", want("a name of 1 to 255 characters without blanks", s)
	}
	return s, nil
}

// headerName accepts the name of a header that a trusted proxy may set.
func headerName(s string) (string, error) {
	if !httpguts.ValidHeaderFieldName(s) || len(s) > 255 || strings.HasPrefix(strings.ToLower(s), "reseat") {
		return "", want("the name of a header such as X-Real-IP", s)
	}
	return http.CanonicalHeaderKey(s), nil
}

// fileName accepts the name of a file, which is not opened here.
func fileName(s string) (string, error) {
	if s == "" || strings.ContainsRune(s, 0) {
		return "", want("the name of a file", s)
	}
	return s, nil
}

// maxSocketPath is the max length of a Unix socket's path: unix(7), with a zero at the end.
const maxSocketPath = 107

// socketPath accepts the path of a Unix socket.
func socketPath(s string) (string, error) {
	if len(s) > maxSocketPath {
		return "", want(fmt.Sprintf("a path of at most %d bytes, as Unix sockets have (this one has %d)", maxSocketPath, len(s)), s)
	}
	return fileName(s)
}

// verbatim accepts anything: the check follows when all settings are known.
func verbatim(s string) (string, error) { return s, nil }

// authorities reads a file of PEM certificates.
func authorities(file string) (*x509.CertPool, error) {
	const what = "a file of PEM certificates"
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", want(what, file), keyfile.WithoutPath(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%w: no certificate in it", want(what, file))
	}
	return pool, nil
}
