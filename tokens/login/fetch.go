package login

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const fetchTimeout = 5 * time.Second

// A remote fetches a JWKS. Its errors contain neither the URL, which may have a password,
// nor any part of an answer.
type remote struct {
	url       *url.URL
	transport http.RoundTripper
}

// parseURL returns the URL of a JWKS. Its errors do not show it.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return nil, errors.New("want a file or a URL such as https://id.example/jwks.json")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("want a file or a URL with http or https, got one with %q", u.Scheme)
	}
	return u, nil
}

// shown returns a URL without user, password, query and fragment, for logs.
func shown(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// newTransport ignores the proxy settings of the environment and keeps no connection
// for the minutes between two fetches.
func newTransport() http.RoundTripper {
	return &http.Transport{
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// read fetches the set. It asks the transport itself, which unlike http.Client never
// follows a redirect and does not put the URL into its errors.
func (r *remote) read(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url.String(), nil)
	if err != nil {
		return nil, errors.New("no request can be made of the URL")
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	req.Header.Set("User-Agent", "reseat")
	if u := r.url.User; u != nil {
		password, _ := u.Password()
		req.SetBasicAuth(u.Username(), password)
	}
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		return nil, failure(ctx, err)
	}
	defer resp.Body.Close()
	return content(ctx, resp)
}

func content(ctx context.Context, resp *http.Response) ([]byte, error) {
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, fmt.Errorf("answered %d: no redirect is followed, want the URL that it leads to", resp.StatusCode)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("answered %d, want 200", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxSet+1))
	switch {
	case err != nil:
		return nil, failure(ctx, err)
	case len(data) > maxSet:
		return nil, fmt.Errorf("answered with more than %d bytes", maxSet)
	}
	return data, nil
}

// failure returns a transport error without text from the other side. Errors of a dial
// and of a bad certificate are kept: an operator can act on them.
func failure(ctx context.Context, err error) error {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("no answer within %v", fetchTimeout)
	case errors.As(err, &cert):
		return cert
	case errors.As(err, &op):
		return op
	}
	return errors.New("no valid HTTP answer")
}
