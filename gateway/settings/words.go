package settings

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"reseat/gateway/session"
)

// mostWords is the longest text of the operator's; a heartbeat of a game's is
// held back until all of it has come.
const mostWords = 4 << 10

// message takes a text message: UTF-8, not empty.
func message(s string) (string, error) {
	if s == "" || len(s) > mostWords || !utf8.ValidString(s) {
		return "", want("a text of 1 to 4096 bytes", s)
	}
	return s, nil
}

// keepaliveReply takes IN=>OUT, or the name of a preset.
func keepaliveReply(s string) (session.Reply, error) {
	if s == "engine.io" {
		return engineIO, nil
	}
	in, out, ok := strings.Cut(s, "=>")
	if !ok {
		return session.Reply{}, want("IN=>OUT or engine.io", s)
	}
	for _, text := range []string{in, out} {
		if _, err := message(text); err != nil {
			return session.Reply{}, want("IN=>OUT, each a text of 1 to 4096 bytes", s)
		}
	}
	return session.Reply{In: in, Out: out}, nil
}

// keepaliveSend takes DUR:MSG.
func keepaliveSend(s string) (session.Beat, error) {
	every, text, ok := strings.Cut(s, ":")
	if !ok {
		return session.Beat{}, want("DUR:MSG such as 25s:ping", s)
	}
	d, err := duration(leastHeartbeat, day)(every)
	if err != nil {
		return session.Beat{}, err
	}
	if _, err := message(text); err != nil {
		return session.Beat{}, want("DUR:MSG, with a text of 1 to 4096 bytes", s)
	}
	return session.Beat{Every: max(d, time.Millisecond), Text: text}, nil
}

// perSecond makes of a parser one of a rate, which may also be off.
func perSecond[T int | int64](parse parser[T]) parser[float64] {
	return func(s string) (float64, error) {
		if s == "off" {
			return 0, nil
		}
		v, err := parse(s)
		if err != nil {
			return 0, fmt.Errorf("%w; or off", err)
		}
		return float64(v), nil
	}
}

// orOff makes of a parser of durations, 0 among them, one that takes off for 0.
func orOff(parse parser[time.Duration]) parser[time.Duration] {
	return func(s string) (time.Duration, error) {
		if s == "off" {
			return 0, nil
		}
		d, err := parse(s)
		if err != nil {
			return 0, fmt.Errorf("%w; or off", err)
		}
		return d, nil
	}
}

// zeroOr makes of a parser one that takes 0 as well.
func zeroOr(parse parser[time.Duration]) parser[time.Duration] {
	return func(s string) (time.Duration, error) {
		if d, err := time.ParseDuration(s); err == nil && d == 0 {
			return 0, nil
		}
		d, err := parse(s)
		if err != nil {
			return 0, fmt.Errorf("%w; or 0", err)
		}
		return d, nil
	}
}

// telling takes off, size or prefix:N.
func telling(s string) (session.Telling, error) {
	const most = 1024
	switch s {
	case "off":
		return session.Telling{}, nil
	case "size":
		return session.Telling{On: true}, nil
	}
	if n, ok := strings.CutPrefix(s, "prefix:"); ok {
		if v, err := count(1, most)(n); err == nil {
			return session.Telling{On: true, Prefix: v}, nil
		}
	}
	return session.Telling{}, want("off, size or prefix:N with N from 1 to 1024", s)
}

// atLeastAMoment makes of a 0 the shortest time there is, where the gateway takes
// zero for its default.
func atLeastAMoment(parse parser[time.Duration]) parser[time.Duration] {
	return func(s string) (time.Duration, error) {
		d, err := parse(s)
		return max(d, time.Nanosecond), err
	}
}

// pointer makes of a parser one whose values can be absent.
func pointer[T any](parse parser[T]) parser[*T] {
	return func(s string) (*T, error) {
		v, err := parse(s)
		return &v, err
	}
}
