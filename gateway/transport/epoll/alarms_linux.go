package epoll

import (
	"container/heap"
	"math/bits"

	"reseat/gateway/session"
)

// alarms is a heap of the sessions that have a deadline, earliest first. A session
// knows its index, so that its deadline can be moved.
type alarms []*Session

// set schedules a call of s at the given time or somewhat later.
func (a *alarms) set(s *Session, now, at session.Time) {
	s.due, s.alarm = at, roundUp(now, at)
	if s.place < 0 {
		heap.Push(a, s)
	} else {
		heap.Fix(a, s.place)
	}
}

// pop removes and returns the first session.
func (a *alarms) pop() *Session { return heap.Pop(a).(*Session) }

// drop removes s, if it is present.
func (a *alarms) drop(s *Session) {
	if s.place >= 0 {
		heap.Remove(a, s.place)
	}
}

// roundUp moves at later by up to a thirtieth of the time until then, at least a
// millisecond: alarms of many sessions then fire together, and the loop wakes once for
// all of them.
func roundUp(now, at session.Time) session.Time {
	grain := session.Time(1) << max(bits.Len64(uint64(max(at-now, 0)))-6, 20)
	return (at + grain - 1) &^ (grain - 1)
}

// The methods of container/heap.

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].alarm < a[j].alarm }

func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

func (a *alarms) Push(x any) {
	s := x.(*Session)
	s.place = len(*a)
	*a = append(*a, s)
}

func (a *alarms) Pop() any {
	last := len(*a) - 1
	s := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	s.place = -1
	return s
}
