package leaks

import (
	"testing"
	"time"
)

func TestGoroutineThatStaysIsFound(t *testing.T) {
	stay := make(chan struct{})
	go func() { <-stay }()
	if err := find(0); err == nil {
		t.Error("a goroutine that stays was not found")
	}
	time.AfterFunc(time.Second, func() { close(stay) }) // longer than goleak waits
	VerifyNone(t)
}
