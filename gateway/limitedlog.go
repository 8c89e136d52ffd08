package gateway

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// What refused strangers may write into the log.
const (
	refusalsPerSecond = 20
	refusalsAtOnce    = 50
)

// A limitedLog logs what a stranger can bring about as often as he likes, and
// leaves out what comes too fast; the next line says how much that was.
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
