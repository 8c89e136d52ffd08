package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"reseat/gateway/front"
	"reseat/gateway/handshake"
	"reseat/gateway/listen"
	"reseat/gateway/registry"
	"reseat/gateway/transport"
	"reseat/gateway/transport/rawconn"
	"reseat/gateway/watch"
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

// ifRead returns c if the client offers to read refusals, else the zero Closing: HTTP
// answers.
func ifRead(r *front.Request, c wire.Closing) wire.Closing {
	if !r.Offer.Refusals {
		return wire.Closing{}
	}
	return c
}

// A refuser refuses handshakes and resumes: by an HTTP answer, or by a close.
type refuser struct {
	watch *watch.Watch
	conns *listen.ConnTracker
	log   *slog.Logger
}

// byClose answers a refused first handshake with 101 and the close c. If that is
// zero, it reports false and has not written to w.
func (f refuser) byClose(w http.ResponseWriter, r *front.Request, c wire.Closing) bool {
	if c.Code == 0 {
		return false
	}
	conn, _, err := (&handshake.Answer{Protocol: wire.Subprotocol}).Switch(w, r.Request)
	if err != nil {
		f.log.Debug("client.disconnected_early", "err", err)
		return true
	}
	r.Visit.Leave()
	f.sendClose(conn, c)
	return true
}

// sendClose sends the close c to a client that is attached to no session, and waits a while
// for its Close frame. It tracks the connection meanwhile, as an idle one.
func (f refuser) sendClose(conn net.Conn, c wire.Closing) {
	below := rawconn.Lowest(conn)
	f.conns.Track(below)
	defer f.conns.Forget(below)
	transport.Farewell(conn, wire.AppendClosing(nil, c))
}

// refusedBody limits the wait for the rest of a refused request's body.
const refusedBody = time.Second

// http refuses a handshake: by an HTTP answer, or by a close if the client reads
// refusals that way (protocol section 2). It counts and logs the refusal, with more
// added to the log line, and has the connection closed after an HTTP answer, so that
// nothing that follows is taken for another request.
func (f refuser) http(w http.ResponseWriter, r *front.Request, status int, label, text string, more ...any) {
	c, ok := closing(status, shownReasons[label], w.Header().Get("Retry-After"))
	if !ok || c.Reason == "" {
		c = wire.Closing{}
	}
	c = ifRead(r, c)
	f.watch.Refused(r, status, c.Code, label, more...)
	if f.byClose(w, r, c) {
		return
	}
	limitRefused(w)
	w.Header().Set("Connection", "close")
	if status == http.StatusUpgradeRequired {
		upstream.RequireUpgrade(w.Header())
	}
	http.Error(w, text, status)
}

// limitRefused sets deadlines for a refused request. net/http reads the rest of the body
// before it closes the connection; without a deadline, a body that never arrives would
// hold the connection forever.
func limitRefused(w http.ResponseWriter) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedBody))
	answerWithin(w, upstream.WriteTimeout)
}

// answerWithin sets the client's deadline for taking an immediate answer. Every answer
// needs one of its own: net/http keeps the deadline of the answer before.
func answerWithin(w http.ResponseWriter, d time.Duration) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// retryAfter is the Retry-After, in seconds, of a request refused for lack of capacity.
const retryAfter = "5"

func (f refuser) busy(w http.ResponseWriter, r *front.Request, label, text string) {
	w.Header().Set("Retry-After", retryAfter)
	f.http(w, r, http.StatusServiceUnavailable, label, text)
}

// exhausted refuses a new session because descriptors ran out.
func (f refuser) exhausted(w http.ResponseWriter, r *front.Request) {
	f.watch.DescriptorsExhausted()
	f.busy(w, r, "descriptors", "no more sessions now")
}

func (f refuser) upstream(w http.ResponseWriter, r *front.Request, e *registry.Record, err error) {
	f.watch.UpstreamFailed(r, e, err)
	if listen.NoDescriptor(err) { // not the upstream's fault
		f.exhausted(w, r)
		return
	}
	verdict := closingUpstream(err)
	c := ifRead(r, verdict)
	f.watch.UpstreamRefused(r, verdict.Status, c.Code, err)
	if f.byClose(w, r, c) {
		upstream.Discard(err)
		return
	}
	w.Header().Set("Connection", "close")
	answerWithin(w, e.Terms().DialTimeout+upstream.WriteTimeout) // the body may still be arriving
	upstream.WriteError(w, err)
}
