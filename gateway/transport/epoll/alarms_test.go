//go:build linux

package epoll

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"reseat/gateway/session"
)

func TestAlarmsFireInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var due alarms
		sessions := make([]*Session, 40)
		for i := range sessions {
			sessions[i] = &Session{place: -1}
		}
		for range 200 {
			s := sessions[random.IntN(len(sessions))]
			if random.IntN(4) == 0 {
				due.drop(s)
			} else {
				due.set(s, 0, session.Time(random.Int64N(int64(time.Minute))))
			}
		}
		var want, got []session.Time
		for _, s := range sessions {
			if s.place >= 0 {
				want = append(want, s.alarm)
			}
		}
		for len(due) > 0 {
			s := due.pop()
			got = append(got, s.alarm)
			if s.place >= 0 {
				t.Fatal("a session without an alarm still has an index")
			}
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("fired at %v, want %v", got, want)
		}
	}
}

func TestAlarmIsNeverEarlyAndBarelyLate(t *testing.T) {
	const now = session.Time(time.Hour)
	for wait := time.Duration(-5); wait < 24*time.Hour; wait = wait*21/20 + 7 {
		at := now.Add(wait)
		late := roundUp(now, at).Sub(at)
		if late < 0 || late > max(wait/32, 1050*time.Microsecond) {
			t.Errorf("an alarm in %v fires %v late", wait, late)
		}
	}
}

func TestAlarmsOfManySessionsFireTogether(t *testing.T) {
	const now = session.Time(time.Hour)
	moments := map[session.Time]bool{}
	for i := range 1000 {
		moments[roundUp(now, now.Add(900*time.Millisecond+time.Duration(i)*100*time.Microsecond))] = true
	}
	if len(moments) > 10 {
		t.Errorf("a thousand alarms within a tenth of a second fire at %d times", len(moments))
	}
}
