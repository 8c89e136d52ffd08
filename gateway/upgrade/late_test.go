package upgrade

import (
	"testing"
	"testing/synctest"
)

// A session that a predecessor still has is awaited until it comes, or will not come.
func TestResumeWaitsForLateSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Late
		l.expect([]string{"a", "b"})
		if l.next("c") != nil {
			t.Error("a session that nobody has is awaited")
		}
		for _, end := range []func(){func() { l.arrived("a") }, l.none} {
			c := l.next("b")
			synctest.Wait()
			select {
			case <-c:
				t.Fatal("it came at once")
			default:
			}
			end()
			<-c
		}
		if l.next("a") != nil || l.next("b") != nil {
			t.Error("they are still awaited")
		}
	})
}
