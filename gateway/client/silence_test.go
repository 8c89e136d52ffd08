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
	// The answer rule.
	{"unanswered data is pinged, and then dead", 5 * sec, 15 * sec, "trip 50ms, 1s hear, 3s data, next ping at 5.5s, 5.5s ping, next giveUp at 8s"}, // the next ping would be due too
	{"the clock starts at the last byte", 5 * sec, 15 * sec, "trip 50ms, 1s data, 3s bytes, acked in part, next ping at 5.5s, 5.5s ping, 7s bytes, next ping at 9.5s"},
	{"no ping without unanswered data", 5 * sec, 0, "next nothing, 1s data, acked, next nothing, 2s ping, acked, next ping at 4.5s, 3s pong, acked, next nothing"},
	{"death waits for four round trips after the first ping", 3 * sec, 60 * sec,
		"trip 2s, 0s data, 1.5s ping, next ping at 3s, 3s ping, next ping at 4.5s, 4.5s ping, 6s ping, 7.5s ping, next ping at 9s, 9s ping, next giveUp at 9.5s"},
	{"death waits for five seconds before a round trip is known", sec, 60 * sec,
		"0s data, next ping at 500ms, 500ms ping, next ping at 1s, 1s ping, 1.5s ping, 2s ping, 2.5s ping, 3s ping, 3.5s ping, 4s ping, next ping at 4.5s, 4.5s ping, next giveUp at 5s"},
	{"an idle line is noticed within heartbeat and answer time", 5 * sec, 15 * sec, "1s message, next ping at 18.5s, 18.5s ping, next giveUp at 21s, 21s why no answer for 5s"},
	{"without an answer time only the heartbeat counts", 0, 15 * sec, "0s data, next giveUp at 30s, 30s why nothing heard for 30s"},
	{"without either nothing counts", 0, 0, "0s data, next nothing"},
	{"only the heartbeat counts while it is closed", 5 * sec, 15 * sec, "0s messages 10 every 100ms, 1s data, leaving, next giveUp at 31s"},
	{"the round trip is smoothed, and outlives a connection", 5 * sec, 15 * sec,
		"0s ping, 1s pong other, 80ms pong, 1h pong, trip is 80ms, 0s ping, 160ms pong, trip is 90ms, 0s ping, 10ms pong, trip is 80ms, 1s resumed, trip is 80ms"},
	{"times double for connections that died, until the line works", 5 * sec, time.Hour,
		"trip 50ms, 0s data, next ping at 2.5s, 2.5s ping, next giveUp at 5s, died, 0s resumed, 0s data, next ping at 5s, 5s ping, next giveUp at 10s, died, 0s resumed, 0s data, next ping at 10s, " +
			"died, 0s resumed, 0s data, next ping at 20s, died, 0s resumed, 0s message, 0s data, next ping at 20s, works, next ping at 2.5s"}, // the message may be a repeat
	{"an ack ends the doubling", 5 * sec, time.Hour, "died, 0s data, acked, deaths 0"},
	{"a pong ends the doubling", 5 * sec, time.Hour, "died, 0s data, 5s ping, 5s pong, deaths 0"},
	{"an ack of nothing does not: each hello is followed by one", 5 * sec, time.Hour, "died, acked, deaths 1"},
	{"clocks restart after a pause, of which nothing is learned", 5 * sec, 15 * sec,
		"trip 50ms, 0s messages 10 every 100ms, 1s data, 3s ping, 20s paused, next ping at 22s, 20s pong, trip is 50ms, 20s ping, 20.05s hear, longest gap 100ms"},
	{"a pong measures its own ping, though newer ones are under way", 5 * sec, 15 * sec,
		"0s ping, 3s ping, 6s ping, 8s pong 1, trip is 8s, unanswered 3, 20s pong 1, trip is 8s, 14s pong 3, unanswered nothing"},
	{"a pong that waited behind a large message measures nothing", 5 * sec, 15 * sec, "trip 50ms, 1s ping, clogged, 40s pong, trip is 50ms, unanswered nothing, 41s ping, 41.1s pong, trip is 56.25ms"},
	{"a slow handshake lengthens the first limit", 5 * sec, 30 * sec, "opened in 9s, opened in 8s, 0s data, 15s ping, next giveUp at 16s, trip 50ms, next giveUp at 15.2s"},

	// Suspicion.
	{"a lively line is suspected", 0, 60 * sec,
		"0s messages 10 every 100ms, next ping at 3s, 3s ping, next suspect at 5s, trip 700ms, next suspect at 5.8s, trying, next giveUp at 2m1s"},
	{"not before two seconds", 0, 60 * sec, "0s messages 10 every 400ms, next ping at 6s"},
	{"not before four of its usual gaps", 0, 60 * sec, "0s messages 10 every 700ms, next ping at 9.8s"},
	{"nor of longer ones", 0, 60 * sec, "0s messages 10 every 2s, next ping at 28s"},
	{"two seconds confirm it while no handshake was slower", 0, 60 * sec, "opened in 100ms, 0s messages 10 every 100ms, 3s ping, next suspect at 5s"},
	{"a handshake stands in for an unknown round trip", 0, 60 * sec, "opened in 3s, 0s messages 10 every 100ms, 3s ping, next suspect at 6s"},
	{"a slow game server does not", 0, 60 * sec, "opened in 9s, 0s messages 10 every 100ms, 3s ping, next suspect at 7s"},
	{"the fastest handshake counts", 0, 60 * sec, "opened in 3s, opened in 200ms, opened in 4s, 0s messages 10 every 100ms, 3s ping, next suspect at 5s"},
	{"a round trip counts more than a handshake", 0, 60 * sec, "opened in 3s, trip 50ms, 0s messages 10 every 100ms, 3s ping, next suspect at 5s"},
	{"a line is lively once a few gaps are known", 0, 15 * sec, "100ms message, 200ms message, 300ms message, next giveUp at 30.3s, 400ms message, next ping at 2.4s"},
	{"a line without data is never suspected", 0, 15 * sec, "0s hears 19 every 1s, next giveUp at 49s"},
	{"a ping of the answer rule serves suspicion, and giving up takes precedence", 2 * sec, 60 * sec,
		"trip 3s, 0s messages 10 every 100ms, 1s data, next ping at 2s, 2s ping, next ping at 3s, 3s ping, 4s ping, 5s ping, 6s ping, 7s ping, 8s ping, 9s ping, 10s ping, 11s ping, 12s ping, " +
			"next ping at 13s, 13s ping, next giveUp at 14s"},
	{"a ping that only prompts confirms nothing: the silence after it is none yet", 0, 60 * sec, "0s messages 10 every 100ms, prompt, next ping at 3s, 3s ping, next suspect at 5s"},
	{"heartbeats are no gaps: a lobby may hear nothing else for minutes", 0, 15 * sec,
		"0s messages 1 every 100ms, 15.1s hear, 30.1s hear, 45.1s hear, 60.1s hear, 60.1s messages 5 every 100ms, next ping at 1m2.6s"},
	{"gaps are forgotten after a while", 0, time.Hour, "0s messages 3 every 3s, 9s messages 200 every 100ms, next ping at 41s, 29s messages 500 every 100ms, next ping at 1m21s"},
	{"gaps outlive a connection, but an outage is none", 0, time.Hour, "0s messages 10 every 1s, 30s resumed, 30s message, next ping at 34s"},
	{"silence that a pong ends is usual", 0, time.Hour, "0s messages 10 every 100ms, 3s ping, 3.05s hear, 3.05s pong, 36s hear, next giveUp at 2h0m36s, 41s messages 1 every 100ms, next ping at 49.3s"},
	{"a stall that data ends is not", 0, time.Hour,
		"trip 50ms, 0s messages 10 every 100ms, next ping at 3s, 3s ping, 4s messages 5 every 100ms, next ping at 6.5s, 6.5s ping, 7.5s messages 5 every 100ms, next ping at 10s"},
	{"data that comes before a pong could shows no stall", 0, time.Hour, "trip 400ms, 0s messages 10 every 100ms, 3s ping, 3.1s message, next ping at 11.5s"},
	{"a quiet line is not pinged again for half a minute", 0, time.Hour,
		"0s messages 10 every 100ms, 3s ping, 3s hear, 3s messages 10 every 100ms, next giveUp at 2h0m4s, 4s messages 25 every 1s, next ping at 37s"},
	{"silence without a ping is not learned", 0, time.Hour, "0s messages 10 every 100ms, 3s ping, 3s hear, 3s messages 10 every 100ms, 16s hear, 16s messages 18 every 1s, next ping at 42s"},
	{"attempts are further apart after each false alarm", 0, time.Hour,
		"0s messages 10 every 100ms, 3s ping, 5s attempt, next suspect at 9s, false alarm, next suspect at 13s, false alarm, next suspect at 21s, false alarm, next suspect at 37s, died, works, " +
			"next suspect at 9s, put off until 51s, next suspect at 51s"},
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
	start           time.Time
	trying, leaving bool
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
		what := map[remedy]string{sendPing: "ping", suspect: "suspect", giveUp: "giveUp"}
		if at, r := l.next(l.trying, l.leaving); r == wait {
			l.check(text, "nothing", rest)
		} else {
			l.check(text, fmt.Sprint(what[r], " at ", at.Sub(l.start)), rest)
		}
	case "unanswered":
		l.check(text, l.asked, strings.TrimPrefix(rest, "nothing"))
	case "deaths":
		l.check(text, strconv.Itoa(l.deaths), rest)
	case "longest":
		longest, _ := l.usual.longest(l.message)
		l.check(text, longest.String(), strings.TrimPrefix(rest, "gap "))
	case "acked":
		l.settle(rest == "in part")
	case "opened":
		l.opened(l.duration(strings.TrimPrefix(rest, "in ")))
	case "put":
		l.putOff(l.start.Add(l.duration(strings.TrimPrefix(rest, "off until "))))
	case "false":
		l.falseAlarm()
	case "died":
		l.died()
	case "works":
		l.works()
	case "clogged":
		l.clogged()
	case "prompt":
		l.prompt()
	case "trying":
		l.trying = true
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
	case "hear", "message":
		l.arrived(at, at, verb == "message")
	case "hears", "messages": // N every TIME, from then on
		n, every, _ := strings.Cut(rest, " every ")
		times, _ := strconv.Atoi(n)
		for i := range times {
			then := at.Add(time.Duration(i+1) * l.duration(every))
			l.arrived(then, then, verb == "messages")
		}
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
	case "attempt":
		l.attempt(at)
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
