package server

import (
	"fmt"
	"slices"
	"strings"

	"reseat/gateway/config"
	"reseat/tokens/keyfile"
)

// A namedSecret is a file that the settings name, and that only its owner may replace.
type namedSecret struct {
	flag, name string
	isKey      bool // the file has one key, in keyfile's format
	public     bool // anyone may read it, unless its key is a keyfile.Secret
}

// secretFiles returns all of them, each once.
func secretFiles(set *config.Settings) (list []namedSecret) {
	add := func(flag, name string, isKey, public bool) {
		if f := (namedSecret{flag, name, isKey, public}); name != "" && !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	for _, name := range set.TokenKeyFiles {
		add("token-key-file", name, true, false)
	}
	add("admin-token-file", set.AdminTokenFile, false, false)
	add("viewer-token-file", set.ViewerTokenFile, false, false)
	add("dev-token-file", set.DevTokenFile, false, false)
	add("webhook-secret-file", set.WebhookSecretFile, false, false)
	add("tls-key", set.TLS.KeyFile, false, false)
	add("cluster-creds", set.Cluster.CredsFile, false, false)
	for _, r := range set.Gateway.Routes {
		if a := r.Policy.Auth; a != nil && !strings.Contains(a.JWKS, "://") {
			add("auth-key-file", a.KeyFile, true, true)
			add("auth-jwks", a.JWKS, false, true)
		}
	}
	return list
}

// refuseWritable refuses a secret that anyone on the machine may replace by their own. The
// error names the flag.
func refuseWritable(set *config.Settings) error {
	for _, f := range secretFiles(set) {
		if _, writable := keyfile.Exposure(f.name); writable {
			return fmt.Errorf("--%s: want a file that others cannot write, got %.100q: chmod o-w it, and replace its content", f.flag, f.name)
		}
	}
	return nil
}

// secretWarnings returns warnings about secrets that others may read, keys that are weak or slow, and other
// files that others may write. It ignores files that cannot be read.
func secretWarnings(set *config.Settings) (list []config.Warning) {
	for _, f := range secretFiles(set) {
		data, err := keyfile.Read(f.name, keyfile.MaxLen)
		if err != nil || !f.isKey {
			data = nil
		}
		key, _ := keyfile.Parse(data)
		_, secret := key.(keyfile.Secret)
		if readers, _ := keyfile.Exposure(f.name); readers != "" && (secret || !f.public) {
			list = append(list, config.Warning{Flag: f.flag, Text: fmt.Sprintf("%.100q may be read by %s: chmod 600 it", f.name, readers)})
		}
		if why := keyfile.Weakness(key); why != "" {
			list = append(list, config.Warning{Flag: f.flag, Text: fmt.Sprintf("%.100q: %s", f.name, why)})
		}
	}
	for _, f := range []struct{ flag, name string }{
		{"config", set.Config}, {"tls-cert", set.TLS.CertFile}, {"cluster-ca", set.Cluster.CAFile},
	} {
		if _, writable := keyfile.Exposure(f.name); writable {
			list = append(list, config.Warning{Flag: f.flag, Text: fmt.Sprintf("%.100q may be written by everybody on this machine: chmod o-w it", f.name)})
		}
	}
	return list
}
