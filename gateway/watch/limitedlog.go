package watch

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// A LimitedLog limits the rate of lines that clients can cause at will. The next line that
// is written has the number of lines left out. Its methods may be called from any goroutine.
type LimitedLog struct {
	log   *slog.Logger
	limit *rate.Limiter
	total interface{ Inc() } // of the lines left out
	left  atomic.Int64
}

func newLimitedLog(log *slog.Logger, every rate.Limit, atOnce int, total interface{ Inc() }) *LimitedLog {
	return &LimitedLog{log: log, limit: rate.NewLimiter(every, atOnce), total: total}
}

// Info writes a line, unless there are too many.
func (l *LimitedLog) Info(msg string, args ...any) { l.write(slog.LevelInfo, msg, args) }

// Warn writes a warning, unless there are too many.
func (l *LimitedLog) Warn(msg string, args ...any) { l.write(slog.LevelWarn, msg, args) }

func (l *LimitedLog) write(level slog.Level, msg string, args []any) {
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
