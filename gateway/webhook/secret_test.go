package webhook

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// loadSecret loads a file of one secret.
func loadSecret(t *testing.T) (s *Secrets, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "secret")
	write(t, file, newSecret('a'))
	s, err := LoadSecrets(file)
	if err != nil {
		t.Fatal(err)
	}
	return s, file
}

// signers counts the signatures of a post at that time.
func signers(t *testing.T, s *Secrets, now time.Time) int {
	t.Helper()
	header, err := s.sign("id", now, []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(header))
}

func TestEachRemovedSecretSignsForItsOwnDay(t *testing.T) {
	s, file := loadSecret(t)
	start := time.Unix(1_000_000, 0)
	reload := func(after time.Duration, secrets ...string) {
		t.Helper()
		write(t, file, secrets...)
		if err := s.Reload(start.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(after time.Duration, n int) {
		t.Helper()
		if got := signers(t, s, start.Add(after)); got != n {
			t.Errorf("after %v: %d signatures, want %d", after, got, n)
		}
	}
	reload(0, newSecret('b'))
	reload(6*time.Hour, newSecret('c')) // the first one still has 18 hours
	want(6*time.Hour, 3)
	want(24*time.Hour-1, 3)
	want(24*time.Hour, 2)
	want(30*time.Hour, 1)
	reload(7*time.Hour, newSecret('a')) // one that comes back signs once
	want(7*time.Hour, 3)
}

func TestRemovedSecretsAreBounded(t *testing.T) {
	s, file := loadSecret(t)
	now := time.Unix(1_000_000, 0)
	for i := range maxOld {
		write(t, file, newSecret(byte('b'+i)))
		if err := s.Reload(now); err != nil {
			t.Fatal(i, err)
		}
	}
	before := signers(t, s, now)
	write(t, file, newSecret('!'))
	if err := s.Reload(now); err == nil || signers(t, s, now) != before {
		t.Errorf("error %v, %d signatures, want a refusal and %d", err, signers(t, s, now), before)
	}
	if err := s.Reload(now.Add(retiredTime)); err != nil || signers(t, s, now.Add(retiredTime)) != 2 {
		t.Errorf("a day later: %v, %d signatures, want 2", err, signers(t, s, now.Add(retiredTime)))
	}
}
