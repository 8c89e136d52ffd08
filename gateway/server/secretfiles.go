package server

import (
	"fmt"

	"reseat/gateway/config"
	"reseat/tokens/keyfile"
)

// A namedSecret is a file with a secret that the settings name.
type namedSecret struct {
	flag, name string
	isKey      bool // the file has one key, in keyfile's format
}

// secretFiles returns all of them.
func secretFiles(set *config.Settings) (list []namedSecret) {
	add := func(flag, name string, isKey bool) {
		if name != "" {
			list = append(list, namedSecret{flag, name, isKey})
		}
	}
	for _, name := range set.TokenKeyFiles {
		add("token-key-file", name, true)
	}
	add("admin-token-file", set.AdminTokenFile, false)
	add("viewer-token-file", set.ViewerTokenFile, false)
	add("webhook-secret-file", set.WebhookSecretFile, false)
	add("tls-key", set.TLS.KeyFile, false)
	add("node-key", set.Cluster.Key, false)
	add("cluster-creds", set.Cluster.CredsFile, false)
	return list
}

// refuseWritable refuses a secret that anyone on the machine may replace by their own. The
// error names the flag.
func refuseWritable(set *config.Settings) error {
	for _, f := range secretFiles(set) {
		if _, writable := keyfile.Exposure(f.name); writable {
			return fmt.Errorf("--%s: want a file that others cannot write, got %.100q: chmod o-w it, and create a new secret", f.flag, f.name)
		}
	}
	return nil
}

// secretWarnings is about secrets that others may read, and keys that are weak or slow. It
// ignores files that cannot be read.
func secretWarnings(set *config.Settings) (list []config.Warning) {
	for _, f := range secretFiles(set) {
		if readers, _ := keyfile.Exposure(f.name); readers != "" {
			list = append(list, config.Warning{Flag: f.flag, Text: fmt.Sprintf("%.100q may be read by %s: chmod 600 it", f.name, readers)})
		}
		if !f.isKey {
			continue
		}
		data, err := keyfile.Read(f.name, keyfile.MaxLen)
		if err != nil {
			continue
		}
		if key, err := keyfile.Parse(data); err == nil {
			if why := keyfile.Weakness(key); why != "" {
				list = append(list, config.Warning{Flag: f.flag, Text: fmt.Sprintf("%.100q: %s", f.name, why)})
			}
		}
	}
	return list
}
