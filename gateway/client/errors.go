package client

import (
	"errors"
	"fmt"
	"time"

	"reseat/gateway/wire"
)

// Errors that callers branch on.
var (
	// ErrClosed means that Close or CloseNow was called.
	ErrClosed = errors.New("the session was closed by its client")
	// ErrLost means that the session could not be resumed within the grace period.
	ErrLost = errors.New("the session was lost")
	// ErrNotReseat means that the server does not speak reseat.v1.
	ErrNotReseat = errors.New("the server does not speak " + wire.Subprotocol)
	// ErrTooBig means that a message exceeds the gateway's limit.
	ErrTooBig = errors.New("the message is too big")

	errCut     = fmt.Errorf("%w with CloseNow", ErrClosed)
	errDropped = errors.New("disconnected by Drop")
	errBroken  = errors.New("the gateway violated the protocol")
	errTimeout = errors.New("timeout")
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

// A HandshakeError is a handshake response other than 101: from
// the gateway about RFC 6455, Host or Origin, or from something in front of it.
type HandshakeError struct {
	// StatusCode is the HTTP status, and Body the first KiB of the response.
	StatusCode int
	Body       string
}

func (e *HandshakeError) Error() string {
	return fmt.Sprintf("the handshake was answered with %d: %.200q", e.StatusCode, e.Body)
}
