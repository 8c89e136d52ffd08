package watch

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// A LimitedLog limits the rate of lines that clients can cause at will. The next line that
// is written has the number of lines left out. Its methods may be called from any goroutine.
type LimitedLog struct {
	log   *slog.Logger
	limit *rate.Limiter
	total prometheus.Counter // of the lines left out; may be nil
	left  atomic.Int64
}

// NewLimitedLog returns one that writes so many lines at once, and then so many a second. total counts the others; it may
// be nil.
func NewLimitedLog(log *slog.Logger, perSecond rate.Limit, atOnce int, total prometheus.Counter) *LimitedLog {
	return &LimitedLog{log: log, limit: rate.NewLimiter(perSecond, atOnce), total: total}
}

// Info writes a line, unless there are too many.
func (l *LimitedLog) Info(msg string, args ...any) { l.Log(slog.LevelInfo, msg, args...) }

// Warn writes a warning, unless there are too many.
func (l *LimitedLog) Warn(msg string, args ...any) { l.Log(slog.LevelWarn, msg, args...) }

// Log writes a line of that level, unless there are too many, or it would not be written anyway.
func (l *LimitedLog) Log(level slog.Level, msg string, args ...any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	if !l.limit.Allow() {
		l.left.Add(1)
		if l.total != nil {
			l.total.Inc()
		}
		return
	}
	if n := l.left.Swap(0); n > 0 {
		args = append(args, "left_out_before", n)
	}
	l.log.Log(context.Background(), level, msg, args...)
}
