package config

import (
	"slices"
	"strings"
	"testing"
)

func TestSettingsOfClusterAreCheckedTogether(t *testing.T) {
	for want, args := range map[string][]string{
		"--cluster: requires --token-key-file":    {"--cluster=nats://127.0.0.1"},
		"--node-name: requires --cluster":         {"--node-name=n1"},
		"--cluster-plaintext: requires --cluster": {"--cluster-plaintext=on"},
		"--cluster: nats://10.0.0.1:4222 is on another machine: use tls://10.0.0.1:4222, or --cluster-plaintext on": {"--cluster=nats://127.0.0.1", "--cluster=nats://u:p@10.0.0.1", "--token-key-file=k"},
		"--cluster: nats://nats:4222 is on another machine":                                                         {"--cluster=nats://nats", "--token-key-file=k"},
		"--cluster: nats://0.0.0.0:4222 is on another machine":                                                      {"--cluster=nats://0.0.0.0", "--token-key-file=k"},
		"--durable: requires --cluster":                                                                             {"--durable=on"},
		`--route "/a/*": durable: requires --cluster`:                                                               {"--route=/a/*=ws://game:9000;durable=on"},
		"--node-cert: requires --node-cert, --node-key and --node-ca":                                               {"--cluster=nats://127.0.0.1", "--token-key-file=k", "--node-cert=c"},
		"--node-ca: requires --node-cert, --node-key and --node-ca":                                                 {"--cluster=nats://127.0.0.1", "--token-key-file=k", "--node-ca=c", "--node-key=k"},
		"--node-listen: want another port than --listen and --admin":                                                {"--cluster=nats://127.0.0.1", "--token-key-file=k", "--node-listen=:8080"},
		"--cluster: want nats://HOST:4222 or tls://HOST:4222, got \"x":                                              {"--cluster=x", "--token-key-file=k"},
	} {
		_, err := Parse(append(args, game), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestConnectionsToNATSElsewhereAreEncrypted(t *testing.T) {
	for _, args := range [][]string{
		{"--cluster=nats://127.0.0.2"}, {"--cluster=nats://localhost:4333"}, {"--cluster=nats://[::1]"}, {"--cluster=tls://10.0.0.1"},
		{"--cluster=nats://10.0.0.1", "--cluster=tls://10.0.0.2"}, {"--cluster=nats://10.0.0.1", "--cluster-ca=ca"},
	} {
		s, err := Parse(append(args, "--token-key-file=k", game), nil)
		if err != nil {
			t.Errorf("%q: %v", args, err)
			continue
		}
		for _, w := range s.Warnings() {
			if w.Flag == "cluster-plaintext" {
				t.Errorf("%q: %s", args, w.Text)
			}
		}
	}
	s, err := Parse([]string{"--cluster=nats://10.0.0.1", "--cluster-plaintext=on", "--token-key-file=k", game}, nil)
	if err != nil || !slices.ContainsFunc(s.Warnings(), func(w Warning) bool { return w.Flag == "cluster-plaintext" }) {
		t.Errorf("%v, no warning", err)
	}
}
