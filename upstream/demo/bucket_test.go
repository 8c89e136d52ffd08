package demo

import (
	"testing"
	"time"
)

func TestBucketGivesItsBurstAndThenItsRate(t *testing.T) {
	now := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	b := newBucket(10, 3, now)
	for i := range 3 {
		if !b.take(now) {
			t.Fatalf("token %d of the burst was refused", i+1)
		}
	}
	if b.take(now) {
		t.Fatal("a token beyond the burst was given")
	}
	if b.take(now.Add(99 * time.Millisecond)) {
		t.Fatal("a token was given before its time")
	}
	if !b.take(now.Add(101 * time.Millisecond)) {
		t.Fatal("the next token was refused at its time")
	}
	for i := range 3 {
		if !b.take(now.Add(time.Hour)) {
			t.Fatalf("token %d after an hour was refused", i+1)
		}
	}
	if b.take(now.Add(time.Hour)) {
		t.Fatal("an hour filled the bucket beyond its burst")
	}
}
