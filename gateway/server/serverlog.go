package server

import (
	"bytes"
	"log"
	"log/slog"

	"reseat/gateway/watch"
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
	return log.New(serverLines{watch.NewLimitedLog(to, serverLinesPerSecond, serverLinesAtOnce, nil)}, "", 0)
}

type serverLines struct{ to *watch.LimitedLog }

// Write implements io.Writer: it gets one line of a log.Logger, or a stack.
func (s serverLines) Write(line []byte) (int, error) {
	level, key := slog.LevelWarn, "http.server"
	switch {
	case bytes.Contains(line, []byte("panic serving")):
		level = slog.LevelError
	case bytes.Contains(line, []byte("TLS handshake error")):
		level, key = slog.LevelDebug, "tls.handshake_failed"
	case bytes.HasPrefix(line, []byte("http2: ")), bytes.Contains(line, []byte("URL query contains semicolon")):
		level = slog.LevelDebug
	}
	s.to.Log(level, key, "err", string(bytes.TrimSpace(line[:min(len(line), maxServerLine)])))
	return len(line), nil
}
