package gateway

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Limits of the log lines that refused clients cause.
const (
	refusalsPerSecond = 20
	refusalsAtOnce    = 50
)

// A limitedLog limits the lines that clients can cause at will. The next line that is
// written says how many were left out.
type limitedLog struct {
	log   *slog.Logger
	limit *rate.Limiter
	total interface{ Inc() } // of the lines left out
	left  atomic.Int64
}

func (l *limitedLog) info(msg string, args ...any) { l.write(slog.LevelInfo, msg, args) }
func (l *limitedLog) warn(msg string, args ...any) { l.write(slog.LevelWarn, msg, args) }

func (l *limitedLog) write(level slog.Level, msg string, args []any) {
	if !l.limit.Allow() {
		l.left.Add(1)
		l.total.Inc()
		return
	}
	if n := l.left.Swap(0); n > 0 {
		args = append(args, "left_out_before", n)
	}
	l.log.Log(context.Background(), level, msg, args...)
}
