package epoll

import (
	"container/heap"
	"math/bits"

	"reseat/gateway/session"
)

// alarms are the sessions that want to be called at a moment, the first one
// first. A session knows its own place, so that it can be moved.
type alarms []*Session

// set makes s be called at the moment at, or somewhat later.
func (a *alarms) set(s *Session, now, at session.Time) {
	s.due, s.alarm = at, roundUp(now, at)
	if s.place < 0 {
		heap.Push(a, s)
	} else {
		heap.Fix(a, s.place)
	}
}

// pop takes the first one out.
func (a *alarms) pop() *Session { return heap.Pop(a).(*Session) }

// drop takes s out, if it is there.
func (a *alarms) drop(s *Session) {
	if s.place >= 0 {
		heap.Remove(a, s.place)
	}
}

// roundUp moves at later by a thirtieth of the time to it, or less, or by a
// millisecond: alarms of many sessions then ring together, and the loop is not
// woken for each.
func roundUp(now, at session.Time) session.Time {
	grain := session.Time(1) << max(bits.Len64(uint64(max(at-now, 0)))-6, 20)
	return (at + grain - 1) &^ (grain - 1)
}

// What container/heap wants.

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
