package client

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A story is what happens on a line, and what the silence rules make of it. Its steps are separated by commas;
// those that begin with a time happen then, counted from the start of the connection.
type story struct {
	name              string
	answer, heartbeat time.Duration
	steps             string
}

const sec = time.Second

var stories = []story{
	{"unanswered data is pinged, and then dead", 5 * sec, 15 * sec, "trip 50ms, 1s bytes, 3s data, next ping at 5.5s, 5.5s ping, next giveUp at 8s"}, // the next ping would be due too
	{"the clock starts at the last byte", 5 * sec, 15 * sec, "trip 50ms, 1s data, 3s bytes, acked in part, next ping at 5.5s, 5.5s ping, 7s bytes, next ping at 9.5s"},
	{"no ping without unanswered data", 5 * sec, 0, "next nothing, 1s data, acked, next nothing, 2s ping, acked, next ping at 4.5s, 3s pong, acked, next nothing"},
	{"death waits for four round trips after the first ping", 3 * sec, 60 * sec,
		"trip 2s, 0s data, 1.5s ping, next ping at 3s, 3s ping, next ping at 4.5s, 4.5s ping, 6s ping, 7.5s ping, next ping at 9s, 9s ping, next giveUp at 9.5s"},
	{"death waits for five seconds before a round trip is known", sec, 60 * sec,
		"0s data, next ping at 500ms, 500ms ping, next ping at 1s, 1s ping, 1.5s ping, 2s ping, 2.5s ping, 3s ping, 3.5s ping, 4s ping, next ping at 4.5s, 4.5s ping, next giveUp at 5s"},
	{"an idle line is noticed within heartbeat and answer time", 5 * sec, 15 * sec, "1s bytes, next ping at 18.5s, 18.5s ping, next giveUp at 21s, 21s why no answer for 5s"},
	{"without an answer time only the heartbeat counts", 0, 15 * sec, "0s data, next giveUp at 30s, 30s why nothing heard for 30s"},
	{"without either nothing counts", 0, 0, "0s data, next nothing"},
	{"only the heartbeat counts while it is closed", 5 * sec, 15 * sec, "1s bytes, 1s data, leaving, next giveUp at 31s"},
	{"the round trip is smoothed, and outlives a connection", 5 * sec, 15 * sec,
		"0s ping, 1s pong other, 80ms pong, 1h pong, trip is 80ms, 0s ping, 160ms pong, trip is 90ms, 0s ping, 10ms pong, trip is 80ms, 1s resumed, trip is 80ms"},
	{"times double for connections that died, until the line works", 5 * sec, time.Hour,
		"trip 50ms, 0s data, next ping at 2.5s, 2.5s ping, next giveUp at 5s, died, 0s resumed, 0s data, next ping at 5s, 5s ping, next giveUp at 10s, died, 0s resumed, 0s data, next ping at 10s, " +
			"died, 0s resumed, 0s data, next ping at 20s, died, 0s resumed, 0s bytes, 0s data, next ping at 20s, works, next ping at 2.5s"},
	{"an ack ends the doubling", 5 * sec, time.Hour, "died, 0s data, acked, deaths 0"},
	{"a pong ends the doubling", 5 * sec, time.Hour, "died, 0s data, 5s ping, 5s pong, deaths 0"},
	{"an ack of nothing does not: each hello is followed by one", 5 * sec, time.Hour, "died, acked, deaths 1"},
	{"clocks restart after a pause, of which nothing is learned", 5 * sec, 15 * sec,
		"trip 50ms, 1s bytes, 1s data, 3s ping, 20s paused, next ping at 22.5s, 20s pong, trip is 50ms"},
	{"a pong measures its own ping, though newer ones are under way", 5 * sec, 15 * sec,
		"0s ping, 3s ping, 6s ping, 8s pong 1, trip is 8s, unanswered 3, 20s pong 1, trip is 8s, 14s pong 3, unanswered nothing"},
	{"a pong that waited behind a large message measures nothing", 5 * sec, 15 * sec, "trip 50ms, 1s ping, clogged, 40s pong, trip is 50ms, unanswered nothing, 41s ping, 41.1s pong, trip is 56.25ms"},
	{"a slow handshake lengthens the first limit", 5 * sec, 30 * sec, "opened in 9s, opened in 8s, 0s data, 15s ping, next giveUp at 16s, trip 50ms, next giveUp at 15.2s"},
}

func TestSilence(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			l := &line{T: t, story: s, start: time.Unix(1e9, 0)}
			l.attach(l.start, s.answer, s.heartbeat)
			for step := range strings.SplitSeq(s.steps, ", ") {
				l.step(step)
			}
		})
	}
}

// A line plays a story.
type line struct {
	*testing.T
	story
	silence
	start   time.Time
	leaving bool
}

func (l *line) step(text string) {
	verb, rest, _ := strings.Cut(text, " ")
	if d, err := time.ParseDuration(verb); err == nil {
		l.happens(l.start.Add(d), rest)
		return
	}
	switch verb {
	case "trip":
		if want, is := strings.CutPrefix(rest, "is "); is {
			l.check(text, l.roundTrip.String(), want)
			return
		}
		l.roundTrip = l.duration(rest)
	case "next":
		what := map[remedy]string{sendPing: "ping", giveUp: "giveUp"}
		if at, r := l.next(l.leaving); r == wait {
			l.check(text, "nothing", rest)
		} else {
			l.check(text, fmt.Sprint(what[r], " at ", at.Sub(l.start)), rest)
		}
	case "unanswered":
		l.check(text, l.asked, strings.TrimPrefix(rest, "nothing"))
	case "deaths":
		l.check(text, strconv.Itoa(l.deaths), rest)
	case "acked":
		l.settle(rest == "in part")
	case "opened":
		l.opened(l.duration(strings.TrimPrefix(rest, "in ")))
	case "died":
		l.died()
	case "works":
		l.works()
	case "clogged":
		l.clogged()
	case "leaving":
		l.leaving = true
	default:
		l.Fatalf("no step is called %q", text)
	}
}

// happens plays a step that has a time.
func (l *line) happens(at time.Time, text string) {
	verb, rest, _ := strings.Cut(text, " ")
	switch verb {
	case "data":
		l.data(at)
	case "bytes":
		l.bytes(at)
	case "ping":
		l.ping(at)
	case "pong":
		if rest == "" {
			rest = strconv.Itoa(l.pings)
		}
		l.pong(rest, at)
	case "resumed":
		l.attach(at, l.story.answer, l.story.heartbeat)
	case "paused":
		l.restart(at)
	case "why":
		l.check(text, l.why(at).Error(), rest)
	default:
		l.Fatalf("no step is called %q", text)
	}
}

func (l *line) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		l.Fatal(err)
	}
	return d
}

// check compares what a step wants; a time may be written in any way.
func (l *line) check(step, got, want string) {
	l.Helper()
	what, at, _ := strings.Cut(want, " at ")
	if d, err := time.ParseDuration(at); err == nil {
		want = fmt.Sprint(what, " at ", d)
	} else if d, err := time.ParseDuration(want); err == nil && want != "0" {
		want = d.String()
	}
	if got != want {
		l.Errorf("%s: got %s", step, got)
	}
}

func TestResumeTimeout(t *testing.T) {
	for _, c := range []struct {
		roundTrip, slowest time.Duration
		slow               int
		want               time.Duration
	}{
		{0, 0, 0, 4 * sec},
		{50 * time.Millisecond, 9 * sec, 0, 4 * sec}, // the first connect also had to reach the game server
		{1500 * time.Millisecond, 0, 0, 6 * sec},
		{0, 6 * sec, 0, 9 * sec},
		{50 * time.Millisecond, 0, 1, 8 * sec},
		{50 * time.Millisecond, 0, 9, 15 * sec},
		{time.Minute, 0, 0, 15 * sec},
	} {
		if got := resumeTimeout(c.roundTrip, c.slowest, c.slow); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestLatenessCountsByEitherClock(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		due, now time.Time
		want     time.Duration
	}{"late": {now, now.Add(3 * sec), 3 * sec}, "the machine was suspended": {now.Round(0), now.Add(3 * sec), 3 * sec}, "early": {now.Add(sec), now, -sec}} {
		if got := lateness(c.due, c.now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
