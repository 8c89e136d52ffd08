// Package leaks finds goroutines that tests leave behind. It waits for those that are about to
// end for as long as a slow machine may take; goleak itself gives them less than half a second.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end.
const patience = time.Minute

// Main runs a package's tests, and exits. It is for TestMain.
func Main(m *testing.M) {
	status := m.Run()
	if status == 0 {
		if err := find(patience); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

// VerifyNone fails a test if there are goroutines which options don't exclude.
func VerifyNone(t *testing.T, options ...goleak.Option) {
	t.Helper()
	if err := find(patience, options...); err != nil {
		t.Error(err)
	}
}

func find(patience time.Duration, options ...goleak.Option) (err error) {
	for end := time.Now().Add(patience); ; {
		if err = goleak.Find(options...); err == nil || time.Now().After(end) {
			return err
		}
	}
}
