package config

import (
	"errors"
	"net/url"
	"strings"
)

// keySet accepts the URL of a JWKS, or the name of a file with one.
func keySet(s string) (string, error) {
	if !strings.Contains(s, "://") {
		return fileName(s)
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "" {
		return "", want("a file, or a URL such as https://login.example/jwks.json", s)
	}
	return s, nil
}

// webhookURL accepts the URL of a receiver of events. Its errors do not contain
// a password.
func webhookURL(s string) (*url.URL, error) {
	const what = "a URL such as https://api.example/reseat-events"
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, errors.New("want " + what)
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Fragment != "":
		return nil, want(what, u.Redacted())
	}
	return u, nil
}
