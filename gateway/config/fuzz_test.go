package config

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

// FuzzParse parses arbitrary routes and sizes. Nothing may panic; a refusal must be a
// UsageError of one printable line; an accepted size must survive formatting and parsing,
// and an accepted route must be complete.
func FuzzParse(f *testing.F) {
	for _, c := range goodValues {
		for value := range c.values {
			f.Add("/game/*=ws://game:9000;"+c.flag+"="+value, "1MiB")
		}
	}
	for flag, values := range badValues {
		for _, v := range values {
			f.Add("/game/*=ws://game:9000;"+flag+"="+v, "64KiB")
		}
	}
	for _, v := range badValues["route"] {
		f.Add(v, "1.5MiB")
	}
	for _, v := range badValues["buffer-bytes"] {
		f.Add("/{id:[0-9]{1,3}}/*=https://game/x?y=z", v)
	}
	f.Fuzz(func(t *testing.T, route, size string) {
		if strings.Contains(route, "upstream-ca") {
			return // would read a file that the bytes name
		}
		s, err := Parse([]string{"--route", route, "--buffer-bytes=" + size}, nil)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkTaken(t, s)
	})
}

func checkRefusal(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrHelp) || errors.Is(err, ErrVersion) {
		return
	}
	var usage *UsageError
	if !errors.As(err, &usage) {
		t.Fatalf("%T %v, want a *UsageError", err, err)
	}
	if strings.ContainsFunc(err.Error(), func(r rune) bool { return !strconv.IsPrint(r) }) {
		t.Fatalf("%q is not one printable line", err)
	}
}

func checkTaken(t *testing.T, s *Settings) {
	t.Helper()
	n := s.Gateway.Default.BufferBytes
	if again, err := size(1, maxBuffer)(formatSize(n)); err != nil || again != n {
		t.Fatalf("%d is written %q, which reads as %d, %v", n, formatSize(n), again, err)
	}
	for _, r := range s.Gateway.Routes {
		p := r.Policy
		if r.Pattern[0] != '/' || r.Upstream.URL == nil || r.Upstream.URL.Host == "" {
			t.Fatalf("route %+v is not whole", r)
		}
		if p.Grace < 0 || p.Heartbeat < minHeartbeat || p.DialTimeout <= 0 || p.MaxMessage < 1 || p.BufferMessages < 1 {
			t.Fatalf("policy %+v is out of bounds", p)
		}
	}
}
