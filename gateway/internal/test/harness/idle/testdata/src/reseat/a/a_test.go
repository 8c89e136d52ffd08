package a

import (
	"testing"
	"testing/synctest"
)

func TestAsserts(t *testing.T) { // want TestAsserts:"may fail"
	if len(t.Name()) == 0 {
		t.Error("no name")
	}
}

func TestAssertsInASubtest(t *testing.T) { // want TestAssertsInASubtest:"may fail"
	t.Run("x", func(t *testing.T) { want(t, true) })
}

func TestAssertsByAMethod(t *testing.T) { // want TestAssertsByAMethod:"may fail"
	rig{t}.want(true)
}

func TestAssertsByAFunctionThatItHandsOn(t *testing.T) { // want TestAssertsByAFunctionThatItHandsOn:"may fail"
	each(want, t)
}

func TestChecksNothing(t *testing.T) { // want "TestChecksNothing cannot fail"
	for range 3 {
		continue
	}
}

func TestOnlyLogs(t *testing.T) { // want "TestOnlyLogs cannot fail"
	t.Helper()
	t.Log("fine")
}

func TestOnlyRunsABubble(t *testing.T) { // want "TestOnlyRunsABubble cannot fail"
	synctest.Test(t, func(t *testing.T) { harmless(t) })
}

func TestPanics(t *testing.T) { // want TestPanics:"may fail"
	parse([]byte(t.Name()))
}

type rig struct{ t *testing.T }

func (r rig) want(ok bool) { want(r.t, ok) } // want want:"may fail"

func want(t *testing.T, ok bool) { // want want:"may fail"
	t.Helper()
	if !ok {
		t.Fatal("not so")
	}
}

func each(f func(*testing.T, bool), t *testing.T) { f(t, true) } // want each:"may fail"

func harmless(t *testing.T) { t.Log("never fails") }

func parse(data []byte) { // want parse:"may fail"
	if len(data) > 1<<20 {
		panic("too long")
	}
}
