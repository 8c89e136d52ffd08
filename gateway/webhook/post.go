package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"reseat/gateway/events"
)

const (
	// attemptTimeout bounds one post, the whole response
	// included (Standard Webhooks, "Request timeouts": 15 to 30 s).
	attemptTimeout = 15 * time.Second
	// maxAnswer bounds the part of a response body that is read and discarded
	// in order to reuse the connection.
	maxAnswer = 16 << 10
	// maxRetryAfter bounds the delay that a receiver can ask for.
	maxRetryAfter  = time.Hour
	connectTimeout = 5 * time.Second
)

// A verdict is the result of an attempt.
type verdict int

const (
	delivered verdict = iota // 2xx
	failed                   // no response, or one that a retry may improve
	refused                  // a response about this very event
	gone                     // 410: the receiver wants no events
)

// An attempt is the result of one post of one event.
type attempt struct {
	line    *line
	verdict verdict
	// retryAfter is the delay that the receiver asked for, or 0.
	retryAfter time.Duration
	err        error // of all verdicts but delivered
}

// A body is the JSON of a post: the data of the event stream, with the time also
// under the name that Standard Webhooks gives it.
type body struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	events.Event
}

// A poster makes the requests.
type poster struct {
	target    *url.URL
	transport http.RoundTripper
	secrets   *Secrets
}

// newTransport ignores the proxy settings of the environment. Like every
// RoundTripper it follows no redirect.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectTimeout,
		MaxIdleConnsPerHost:    maxInFlight,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// post makes one attempt.
func (p *poster) post(ctx context.Context, l *line, it *item) attempt {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req, err := p.request(ctx, it)
	if err != nil {
		return attempt{line: l, verdict: failed, err: err}
	}
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return attempt{line: l, verdict: failed, err: failure(ctx, err)}
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	resp.Body.Close()
	a := attempt{line: l, verdict: judge(resp.StatusCode)}
	if a.verdict != delivered {
		a.err = fmt.Errorf("answered %d", resp.StatusCode)
		a.retryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	}
	return a
}

func (p *poster) request(ctx context.Context, it *item) (*http.Request, error) {
	text, err := json.Marshal(body{it.Type, it.Time, it.Event})
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	now := time.Now()
	signature, err := p.secrets.sign(it.id, now, text)
	if err != nil {
		return nil, err
	}
	bare := *p.target
	bare.User = nil
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, bare.String(), bytes.NewReader(text))
	if err != nil {
		return nil, errors.New("no request can be made of the URL")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "reseat")
	req.Header.Set(standardwebhooks.HeaderWebhookID, it.id)
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	if u := p.target.User; u != nil {
		password, _ := u.Password()
		req.SetBasicAuth(u.Username(), password)
	}
	return req, nil
}

// judge maps a status to a verdict. Statuses about the body concern this event only;
// any other failure may be a receiver that is being deployed, overloaded or
// misconfigured, and is temporary.
func judge(status int) verdict {
	switch status {
	case http.StatusGone:
		return gone
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return refused
	}
	if status >= 200 && status < 300 {
		return delivered
	}
	return failed
}

// retryAfter reads the header: seconds, or a date (RFC 9110 section 10.2.3).
func retryAfter(text string, now time.Time) time.Duration {
	var d time.Duration
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		d = time.Duration(n) * time.Second
	} else if t, err := http.ParseTime(text); err == nil {
		d = t.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

// failure returns a transport error without secrets of the URL and without anything
// that the receiver wrote.
func failure(ctx context.Context, err error) error {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", attemptTimeout)
	case errors.As(err, &cert):
		return cert
	case errors.As(err, &op):
		return op
	}
	return errors.New("no valid HTTP answer")
}

// Probe connects to the receiver, with TLS if its URL says https, within 5 s. It sends
// nothing, because the receiver would take any post for an event.
func Probe(ctx context.Context, target *url.URL) error {
	port := target.Port()
	if port == "" {
		port = target.Scheme
	}
	address := net.JoinHostPort(target.Hostname(), port)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	dial := (&net.Dialer{}).DialContext
	if target.Scheme == "https" {
		dial = (&tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12}}).DialContext
	}
	c, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// Shown returns a URL without user, password, query and fragment, for logs.
func Shown(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}
