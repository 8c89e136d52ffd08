package login

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/MicahParks/jwkset"

	"reseat/tokens/keyfile"
)

const (
	// maxSet is the maximum size of a JWKS in bytes. Identity providers' have up to 20 KiB.
	maxSet       = 256 << 10
	fetchTimeout = 5 * time.Second
)

// fetch gets a JWKS through t. jwkset refuses a set with a malformed key, and skips keys of
// unknown types. It does not validate what logins do not need, such as certificates. Errors
// contain neither the URL, which may have a password, nor text of the answer.
func fetch(ctx context.Context, address string, t transport) (*keySet, error) {
	storage, err := jwkset.NewStorageFromHTTP(address, jwkset.HTTPClientStorageOptions{
		Client:          &http.Client{Transport: t, CheckRedirect: refuseRedirect},
		Ctx:             ctx,
		HTTPTimeout:     fetchTimeout,
		ValidateOptions: jwkset.JWKValidateOptions{SkipAll: true},
	})
	if err != nil {
		return nil, plain(err)
	}
	keys, err := storage.KeyReadAll(ctx)
	if err != nil {
		return nil, err
	}
	return newKeySet(keys)
}

// plain returns an error of jwkset without the URL.
func plain(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", fetchTimeout)
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("answered with more than %d bytes", maxSet)
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return errors.Unwrap(err) // of "failed to perform first HTTP request"
}

func refuseRedirect(*http.Request, []*http.Request) error {
	return errors.New("answered with a redirect, which is not followed: want the URL that it leads to")
}

// A transport is an http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// newTransport ignores the proxy settings of the environment and keeps no connection
// for the minutes between two fetches.
func newTransport() *http.Transport {
	return &http.Transport{
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// overNetwork bounds what a server may answer.
func overNetwork() transport {
	network := newTransport()
	return func(r *http.Request) (*http.Response, error) {
		resp, err := network.RoundTrip(r)
		if err != nil {
			return nil, failure(err)
		}
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxSet)
		return resp, nil
	}
}

// fromFile answers with the content of a file.
func fromFile(name string) transport {
	return func(r *http.Request) (*http.Response, error) {
		data, err := keyfile.Read(name, maxSet)
		if err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(data)), Request: r}, nil
	}
}

// failure returns a transport error without text from the other side. Errors of a dial
// and of a bad certificate are kept: an operator can act on them.
func failure(err error) error {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.As(err, &cert):
		return cert
	case errors.As(err, &op):
		return op
	}
	return errors.New("no valid HTTP answer")
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
