package settings

import (
	"net/url"
	"strings"

	"reseat/tokens/login"
)

// keySet takes the URL of a JWKS, or the name of a file that holds one.
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

func loginSources(s string) (login.Sources, error) { return login.ParseSources(s) }
