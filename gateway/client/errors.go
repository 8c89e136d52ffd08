package client

import (
	"errors"
	"fmt"

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
}

func (e *CloseError) Error() string {
	who, name := "gateway", wire.Name(e.Code)
	if e.FromServer {
		who, name = "game server", ""
	}
	if name != "" {
		name = " " + name
	}
	return fmt.Sprintf("the %s ended the session: %d%s %q", who, e.Code, name, e.Reason)
}

// A HandshakeError is a handshake that was answered with something else than 101.
type HandshakeError struct {
	// StatusCode is that of HTTP, and Body the first kilobyte of what was said.
	StatusCode int
	Body       string
}

func (e *HandshakeError) Error() string {
	return fmt.Sprintf("the handshake was answered with %d: %.200q", e.StatusCode, e.Body)
}
