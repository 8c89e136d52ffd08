package session

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"reseat/gateway/replay"
)

// notMoved names what Arrive sets anew or forgets, and why. "" as a reason: only where a client was attached.
var notMoved = map[string]string{
	"renewAt":          "its client has not been given a token here",
	"awaiting":         "no client waits here",
	"outage.since":     "the next upstream is dialled for a client",
	"outage.until":     "",
	"outage.back":      "",
	"first.heard":      "its connection stays with the older node",
	"first.took":       "",
	"first.answerBy":   "",
	"pace.messages.at": "the limit begins anew: its level is of no time of this clock",
	"pace.bytes.at":    "",
	"scan.progress":    "no message of the upstream is open",
	"incoming.since":   "given up",
	"incoming.began":   "",
	"incoming.grown":   "",
	"keepalives.due":   "there is no upstream to speak to",
	"keepalives.last":  "this node learns them again",
	"durable.owned":    "of the older node",
	"durable.asked":    "",
	"durable.endBy":    "",
	"durable.leaving":  "",
	"detached":         "attached",
	"graceEnd":         "attached",
}

// times calls f with the path and value of each Time of v.
func times(v reflect.Value, path string, f func(path string, t *Time)) {
	switch {
	case v.Type() == reflect.TypeFor[Time]():
		f(path, (*Time)(unsafe.Pointer(v.UnsafeAddr())))
	case path == "ending": // it has none
	case path == "cfg", path == "ring", path == "up", path == "writer", strings.HasSuffix(path, ".to"):
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			times(v.Field(i), strings.Trim(path+"."+v.Type().Field(i).Name, "."), f)
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		times(v.Elem(), path, f)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			times(v.Index(i), path, f)
		}
	}
}

// A moment that a hand-off forgets to move would be hours away, or long past.
func TestArriveMovesEveryMomentOrNamesReason(t *testing.T) {
	const ahead = -100 * time.Hour
	for _, attached := range []bool{true, false} {
		s := everyField(t)
		s.cfg.Store = replay.NewStore(1<<30, nil)
		s.ring = *replay.New(s.cfg.Store)
		s.state, s.up.released, s.durable.left, s.durable.epoch = Detached, true, true, 8
		if attached {
			s.state = Attached
		} else {
			s.att = nil
		}
		then := Time(400 * time.Hour)
		now := then.Add(ahead)
		n := Time(0)
		before := map[string][]Time{}
		times(reflect.ValueOf(s).Elem(), "", func(path string, at *Time) {
			n++
			*at = Time(200*time.Hour) + n
			before[path] = append(before[path], *at)
		})
		if s.att != nil {
			before["heard"][0] = max(before["heard"][0], s.att.heard)
		}
		if len(before) < 20 {
			t.Fatalf("%d moments: the walk over the types is broken", len(before))
		}
		if err := s.Arrive(now, then, 9); err != nil {
			t.Fatal(err)
		}
		after := map[string][]Time{}
		times(reflect.ValueOf(s).Elem(), "", func(path string, at *Time) { after[path] = append(after[path], *at) })
		for path, list := range before {
			why, known := notMoved[path]
			switch {
			case strings.HasPrefix(path, "att."), known && (why != "attached" || attached):
				for _, at := range after[path] {
					if at != 0 && (at < now || at > now.Add(time.Hour)) {
						t.Errorf("attached %v: %s is %v from now", attached, path, at.Sub(now))
					}
				}
				continue
			case len(after[path]) != len(list):
				t.Errorf("%s: %d moments, want %d", path, len(after[path]), len(list))
				continue
			}
			for i, at := range after[path] {
				if want := list[i].Add(ahead); at != want {
					t.Errorf("attached %v: %s is off by %v", attached, path, at.Sub(want))
				}
			}
		}
		for path := range notMoved {
			if before[path] == nil {
				t.Errorf("no moment is called %s", path)
			}
		}
	}
}
