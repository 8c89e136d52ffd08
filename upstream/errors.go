package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// A Kind classifies an error of an upstream.
type Kind int

const (
	// Unreachable: no connection, or no TLS on it.
	Unreachable Kind = iota
	// Timeout: no connection, or no response, in time.
	Timeout
	// BadAnswer: the response is not one that RFC 6455 allows.
	BadAnswer
	// Canceled: the context ended for another reason than its deadline: the client
	// no longer waits.
	Canceled
)

// String is a fixed word, fit for a metric label.
func (k Kind) String() string {
	switch k {
	case Unreachable:
		return "unreachable"
	case Timeout:
		return "timeout"
	case BadAnswer:
		return "bad_answer"
	case Canceled:
		return "canceled"
	}
	return fmt.Sprintf("kind %d", int(k))
}

// An Error says why there is no connection to an upstream. Its text contains the
// upstream's address and the reason, never a path, a query, a header, or bytes
// that the upstream sent.
type Error struct {
	Kind Kind
	Addr string // host and port
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("upstream %s: %v", e.Addr, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Status returns the HTTP status for the client after an error of Dial: 504 for a
// Timeout, a Refusal's own status, else 502.
func Status(err error) int {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal.Status
	}
	if kindOf(err) == Timeout {
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// WriteError responds to the client for an error of Dial: a Refusal as WriteRefusal
// does, anything else by its Status and one line of text.
func WriteError(w http.ResponseWriter, err error) {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		WriteRefusal(w, refusal)
		return
	}
	http.Error(w, clientText(kindOf(err)), Status(err))
}

// Discard closes the connection that an error of Dial may hold. Call it if the error is
// not passed to WriteError.
func Discard(err error) {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		refusal.Body.Close()
	}
}

// clientText is the text for a client, which must not see addresses.
func clientText(k Kind) string {
	switch k {
	case Timeout:
		return "the game server did not answer in time"
	case BadAnswer:
		return "the game server's answer is not valid"
	default:
		return "the game server cannot be reached"
	}
}

// kindOf returns the kind of an error of this package or net.
func kindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	if isTimeout(err) {
		return Timeout
	}
	return Unreachable
}

func isTimeout(err error) bool {
	var nerr net.Error
	return errors.As(err, &nerr) && nerr.Timeout()
}

// Late returns the error of a dial that never began because ctx had ended.
func (t *Target) Late(ctx context.Context) error {
	return t.classify(ctx, Unreachable, context.Cause(ctx))
}

// classify returns the Error for err. If ctx has ended, that is the reason whatever err
// says, because the connection was closed for it.
func (t *Target) classify(ctx context.Context, kind Kind, err error) *Error {
	e := &Error{Kind: kind, Addr: t.Address(), Err: err}
	var op *net.OpError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Kind, e.Err = Timeout, errNotInTime
	case ctx.Err() != nil:
		e.Kind, e.Err = Canceled, context.Cause(ctx)
	case isTimeout(err):
		e.Kind, e.Err = Timeout, errNotInTime
	case errors.As(err, &op):
		e.Err = op.Err // its own text would repeat the address
	}
	return e
}

var errNotInTime = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
