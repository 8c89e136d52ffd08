package config

import (
	"strings"
	"testing"
)

func TestSettingsOfClusterAreCheckedTogether(t *testing.T) {
	for want, args := range map[string][]string{
		"--cluster: requires --token-key-file":                         {"--cluster=nats://127.0.0.1"},
		"--node-name: requires --cluster":                              {"--node-name=n1"},
		"--durable: requires --cluster":                                {"--durable=on"},
		`--route "/a/*": durable: requires --cluster`:                  {"--route=/a/*=ws://game:9000;durable=on"},
		"--node-cert: requires --node-cert, --node-key and --node-ca":  {"--cluster=nats://127.0.0.1", "--token-key-file=k", "--node-cert=c"},
		"--node-ca: requires --node-cert, --node-key and --node-ca":    {"--cluster=nats://127.0.0.1", "--token-key-file=k", "--node-ca=c", "--node-key=k"},
		"--node-listen: want another port than --listen and --admin":   {"--cluster=nats://127.0.0.1", "--token-key-file=k", "--node-listen=:8080"},
		"--cluster: want nats://HOST:4222 or tls://HOST:4222, got \"x": {"--cluster=x", "--token-key-file=k"},
	} {
		_, err := Parse(append(args, game), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
