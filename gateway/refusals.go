package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"reseat/gateway/handshake"
	"reseat/gateway/wire"
	"reseat/upstream"
)

// A refusedStatus is how an HTTP status that refuses a first handshake is written as a
// close, for a client that offers reseat.refusals (protocol section 2).
type refusedStatus struct {
	code  int
	retry bool // a new handshake may succeed later
}

var refusedStatuses = map[int]refusedStatus{
	http.StatusBadRequest:          {wire.CodeRefused, false},
	http.StatusUnauthorized:        {wire.CodeRefused, false},
	http.StatusNotFound:            {wire.CodeRefused, false},
	http.StatusConflict:            {wire.CodeRefused, false},
	http.StatusTooManyRequests:     {wire.CodeTooFast, true},
	http.StatusInternalServerError: {wire.CodeInternalError, false},
	http.StatusBadGateway:          {wire.CodeUpstreamLost, true},
	http.StatusServiceUnavailable:  {wire.CodeDraining, true},
	http.StatusGatewayTimeout:      {wire.CodeUpstreamLost, true},
	http.StatusLoopDetected:        {wire.CodeRefused, false},
}

// upstreamRetry are the statuses of a game server's refusal that allow a retry.
var upstreamRetry = map[int]bool{
	http.StatusTooManyRequests: true, http.StatusBadGateway: true, http.StatusServiceUnavailable: true, http.StatusGatewayTimeout: true,
}

// shownReasons are the close reasons, by the label that counts the refusal. A refusal
// whose label is missing here is answered by HTTP.
var shownReasons = map[string]string{
	"duplicate": "duplicate", "no_route": "no route", "unsafe_path": "unsafe path", "draining": "draining",
	"max_sessions": "full", "max_sessions_per_ip": "too many sessions from this address", "buffer_total": "full", "descriptors": "full",
	"internal_error": "internal error",
}

// closing returns the close for an HTTP status; false if that status must be answered by
// HTTP. after is the value of Retry-After.
func closing(status int, reason, after string) (wire.Closing, bool) {
	s, ok := refusedStatuses[status]
	seconds, _ := strconv.Atoi(after)
	return wire.Closing{Code: s.code, Reason: reason, Status: status, Retry: s.retry, RetryAfter: int64(seconds) * 1000}, ok
}

// closingUpstream returns the close for an error of the upstream.
func closingUpstream(err error) wire.Closing {
	var refusal *upstream.Refusal
	if errors.As(err, &refusal) {
		after := retryAfterOf(refusal.Header.Get("Retry-After"), time.Now())
		return wire.Closing{
			Code: wire.CodeRefused, Reason: fmt.Sprintf("upstream: %d", refusal.Status), Status: refusal.Status,
			Retry: upstreamRetry[refusal.Status], RetryAfter: after.Milliseconds(),
		}
	}
	status := upstream.Status(err)
	c, _ := closing(status, "upstream: "+map[bool]string{true: "not in time", false: "unreachable"}[status == http.StatusGatewayTimeout], "")
	c.Code, c.Status, c.Retry = cmp.Or(c.Code, wire.CodeUpstreamLost), status, true
	return c
}

// retryAfterOf parses Retry-After (RFC 9110 section 10.2.3): seconds or a date. It
// returns 0 for a value that is malformed or in the past.
func retryAfterOf(value string, now time.Time) time.Duration {
	const maxDelay = 24 * time.Hour
	if n, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxDelay)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxDelay)
}

// refuseByClose answers a refused first handshake with 101 and the close c, if the client
// offers to read refusals. Otherwise it reports false and has not written to w.
func (g *Gateway) refuseByClose(w http.ResponseWriter, r *http.Request, c wire.Closing) bool {
	if !wire.ParseOffer(r.Header).Refusals {
		return false
	}
	conn, _, err := (&handshake.Answer{Protocol: wire.Subprotocol}).Switch(w, r)
	if err != nil {
		g.log.Debug("client.disconnected_early", "err", err)
		return true
	}
	g.sendClose(conn, c)
	return true
}
