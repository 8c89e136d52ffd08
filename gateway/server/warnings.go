package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"reseat/gateway"
	"reseat/gateway/config"
	"reseat/gateway/listen"
	"reseat/gateway/secure"
)

// warnings returns the warnings about the settings, their files and this machine: the same
// for check and for a start.
func warnings(set *config.Settings) []config.Warning {
	list := slices.Concat(set.Warnings(), secretWarnings(set))
	warn := func(flag, format string, args ...any) {
		list = append(list, config.Warning{Flag: flag, Text: fmt.Sprintf(format, args...)})
	}
	signs := func(file string) bool {
		return file != "" && slices.ContainsFunc(set.TokenKeyFiles, func(f string) bool { return sameFile(f, file) })
	}
	for _, r := range set.Gateway.Routes {
		if a := r.Policy.Auth; a != nil && signs(a.KeyFile) {
			warn("auth-key-file", "route %s: same file as --token-key-file: anyone who can sign logins can forge resume tokens; use separate keys", r.Pattern)
		}
	}
	if signs(set.TLS.KeyFile) {
		warn("token-key-file", "same file as --tls-key, which changes with the certificate: use a separate key")
	}
	if why := secure.CacheExposure(set.TLS); why != "" {
		warn("acme-cache", "%s", why)
	}
	if n, most := set.Gateway.MaxSessions, gateway.SessionsWithin(listen.Descriptors()); most > 0 && n > most {
		warn("max-sessions", "%d, but the open files limit allows only %d: raise it (ulimit -n, LimitNOFILE)", n, most)
	}
	return list
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y) || filepath.Clean(a) == filepath.Clean(b)
}
