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
	// attemptTime is how long a receiver has for one post, its whole answer
	// included (Standard Webhooks, "Request timeouts": 15 to 30 s).
	attemptTime = 15 * time.Second
	// maxAnswer is as much of an answer's body as is read, and thrown away, so that
	// the connection can be used again.
	maxAnswer = 16 << 10
	// maxRetryAfter bounds what a receiver can ask for.
	maxRetryAfter = time.Hour
	connectTime   = 5 * time.Second
)

// A verdict is what an attempt came to.
type verdict int

const (
	delivered verdict = iota // 2xx
	failed                   // no answer, or one that another attempt may better
	refused                  // an answer that speaks of this very event
	gone                     // 410: nobody wants any of them
)

// An attempt is one post of one event, and how it went.
type attempt struct {
	line    *line
	verdict verdict
	// retryAfter is what the receiver asked for, 0 where it did not.
	retryAfter time.Duration
	err        error // of all verdicts but delivered
}

// A body is what is posted: the data of the event stream, with the time under the
// name that Standard Webhooks gives it as well.
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

// newTransport makes one that owes nothing to the environment: like every
// RoundTripper it follows no redirect.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: connectTime}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectTime,
		MaxIdleConnsPerHost:    atOnce,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// post makes one attempt.
func (p *poster) post(ctx context.Context, l *line, it *item) attempt {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
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

// judge says what an answer means. Those that speak of the body alone are about
// this event; anything else may be a receiver that is being deployed, overloaded
// or misconfigured, and will pass.
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

// failure says what an error of the transport means, without what may be secret
// in the URL, or anything that the receiver wrote.
func failure(ctx context.Context, err error) error {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", attemptTime)
	case errors.As(err, &cert):
		return cert
	case errors.As(err, &op):
		return op
	}
	return errors.New("no valid HTTP answer")
}

// Probe connects to the receiver, with TLS where its URL asks for it, and sends
// nothing: whatever were sent would be an event.
func Probe(ctx context.Context, target *url.URL) error {
	port := target.Port()
	if port == "" {
		port = target.Scheme
	}
	address := net.JoinHostPort(target.Hostname(), port)
	ctx, cancel := context.WithTimeout(ctx, connectTime)
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

// Shown is a URL without what may be secret in it.
func Shown(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}
