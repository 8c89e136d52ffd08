package server

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Limits of net/http's own log lines: panics in a handler, no descriptor to accept with.
const (
	serverLinesPerSecond = 1
	serverLinesAtOnce    = 10
	maxServerLine        = 8 << 10 // a stack
)

// serverLog is the ErrorLog of an http.Server: it logs warnings, and errors if a handler
// panicked. Protocol errors of clients are logged at debug level. All lines are rate
// limited, since clients can cause most of them.
func serverLog(to *slog.Logger) *log.Logger {
	return log.New(&serverLines{log: to, limit: rate.NewLimiter(serverLinesPerSecond, serverLinesAtOnce)}, "", 0)
}

type serverLines struct {
	log   *slog.Logger
	limit *rate.Limiter
	left  atomic.Int64
}

// Write implements io.Writer: it gets one line of a log.Logger, or a stack.
func (s *serverLines) Write(line []byte) (int, error) {
	level, key := slog.LevelWarn, "http.server"
	switch {
	case bytes.Contains(line, []byte("panic serving")):
		level = slog.LevelError
	case bytes.Contains(line, []byte("TLS handshake error")):
		level, key = slog.LevelDebug, "tls.handshake_failed"
	case bytes.HasPrefix(line, []byte("http2: ")), bytes.Contains(line, []byte("URL query contains semicolon")):
		level = slog.LevelDebug
	}
	if !s.log.Enabled(context.Background(), level) {
		return len(line), nil
	}
	if !s.limit.Allow() {
		s.left.Add(1)
		return len(line), nil
	}
	args := []any{"err", string(bytes.TrimSpace(line[:min(len(line), maxServerLine)]))}
	if n := s.left.Swap(0); n > 0 {
		args = append(args, "left_out_before", n)
	}
	s.log.Log(context.Background(), level, key, args...)
	return len(line), nil
}
