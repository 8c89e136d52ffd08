package client

import (
	"errors"
	"fmt"
	"time"

	"reseat/gateway/wire"
)

// What a caller branches on.
var (
	// ErrClosed is the end by one's own Close or CloseNow.
	ErrClosed = errors.New("the session was closed by its client")
	// ErrLost says that no way back was found within the grace period.
	ErrLost = errors.New("the session was lost")
	// ErrNotReseat says that the server does not speak reseat.v1.
	ErrNotReseat = errors.New("the server does not speak " + wire.Subprotocol)
	// ErrTooBig says that a message is larger than the gateway takes.
	ErrTooBig = errors.New("the message is too big")

	errCut     = fmt.Errorf("%w, without a word", ErrClosed)
	errDropped = errors.New("dropped by its own client")
	errBroken  = errors.New("the gateway broke the protocol")
	errLate    = errors.New("no answer in time")
)

// A CloseError is the end of a session by the game server (FromServer), or by the
// gateway, whose codes are in docs/protocol.md.
type CloseError struct {
	Code       int
	Reason     string
	FromServer bool

	// Of a first handshake that was refused (protocol section 2): the HTTP status
	// that a client gets which cannot read refusals, whether a new Dial may succeed,
	// and after how long. Zero otherwise.
	Status     int
	Retry      bool
	RetryAfter time.Duration
}

func (e *CloseError) Error() string {
	who, name := "gateway", wire.Name(e.Code)
	if e.FromServer {
		who, name = "game server", ""
	}
	if name != "" {
		name = " " + name
	}
	if e.Status != 0 {
		return fmt.Sprintf("the gateway refused the session: %d%s %q, HTTP status %d", e.Code, name, e.Reason, e.Status)
	}
	return fmt.Sprintf("the %s ended the session: %d%s %q", who, e.Code, name, e.Reason)
}

// A HandshakeError is a handshake that was answered with something else than 101: by
// the gateway for RFC 6455, Host and Origin, or by something in front of it.
type HandshakeError struct {
	// StatusCode is that of HTTP, and Body the first kilobyte of what was said.
	StatusCode int
	Body       string
}

func (e *HandshakeError) Error() string {
	return fmt.Sprintf("the handshake was answered with %d: %.200q", e.StatusCode, e.Body)
}
