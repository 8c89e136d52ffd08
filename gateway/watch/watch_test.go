package watch

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"reseat/gateway/session"
)

func TestRoundTripsOmitUnmeasuredClients(t *testing.T) {
	var infos []session.Info
	if median, high := roundTrips(infos); median != 0 || high != 0 {
		t.Errorf("of none: %v, %v", median, high)
	}
	for i := range 100 {
		infos = append(infos, session.Info{},
			session.Info{State: session.Attached, RTT: time.Duration(100-i) * time.Millisecond},
			session.Info{State: session.Detached, RTT: time.Hour})
	}
	if median, high := roundTrips(infos); median != 51 || high != 96 {
		t.Errorf("of 1 to 100 ms: %v, %v", median, high)
	}
}

type tally int

func (n *tally) Inc() { *n++ }

// The number of omitted lines is logged once.
func TestOmittedLinesAreCountedOnce(t *testing.T) {
	var said bytes.Buffer
	var total tally
	l := &LimitedLog{log: slog.New(slog.NewTextHandler(&said, nil)), limit: rate.NewLimiter(0, 1), total: &total}
	for range 4 {
		l.Info("refused")
	}
	l.limit = rate.NewLimiter(rate.Inf, 1)
	l.Info("refused")
	l.Warn("refused")
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 3 || total != 3 || strings.Contains(lines[0]+lines[2], "left_out_before") || !strings.Contains(lines[1], "left_out_before=3") {
		t.Errorf("total %d, %q", total, lines)
	}
}
