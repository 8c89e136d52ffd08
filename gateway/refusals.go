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

// A refusedStatus is an HTTP status that refuses a first handshake, and the close
// that says the same to a client that offers reseat.refusals (protocol section 2).
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

// upstreamRetry are the statuses of a game server's own refusal that say "later".
var upstreamRetry = map[int]bool{
	http.StatusTooManyRequests: true, http.StatusBadGateway: true, http.StatusServiceUnavailable: true, http.StatusGatewayTimeout: true,
}

// shownReasons are the reasons of a close, by the label that counts the refusal. A
// label that is not here is answered by HTTP.
var shownReasons = map[string]string{
	"duplicate": "duplicate", "no_route": "no route", "unsafe_path": "unsafe path", "draining": "draining",
	"max_sessions": "full", "max_sessions_per_ip": "too many sessions from this address", "buffer_total": "full", "descriptors": "full",
	"internal_error": "internal error",
}

// closing is the close that refuses a handshake with an HTTP status; false where
// that status must be answered by HTTP. after is the value of Retry-After.
func closing(status int, reason, after string) (wire.Closing, bool) {
	s, ok := refusedStatuses[status]
	seconds, _ := strconv.Atoi(after)
	return wire.Closing{Code: s.code, Reason: reason, Status: status, Retry: s.retry, RetryAfter: int64(seconds) * 1000}, ok
}

// closingUpstream is the close for an error of the upstream's.
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

// retryAfterOf reads Retry-After (RFC 9110 section 10.2.3): seconds or a date. What
// cannot be read, or lies in the past, is 0.
func retryAfterOf(value string, now time.Time) time.Duration {
	const most = 24 * time.Hour
	if n, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, most)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), most)
}

// sayRefusal answers a refused first handshake with 101 and c, if its client offers
// to read that. It says whether it did, and otherwise leaves w as it was.
func (g *Gateway) sayRefusal(w http.ResponseWriter, r *http.Request, c wire.Closing) bool {
	if !wire.ParseOffer(r.Header).Refusals {
		return false
	}
	conn, _, err := (&handshake.Answer{Protocol: wire.Subprotocol}).Switch(w, r)
	if err != nil {
		g.log.Debug("client.disconnected_early", "err", err)
		return true
	}
	g.farewell(conn, c)
	return true
}
