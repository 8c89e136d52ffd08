package gateway_test

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"reseat/gateway"
	"reseat/gateway/policy"
	"reseat/tokens"
	"reseat/upstream"
)

func TestNewRefusesInvalidConfig(t *testing.T) {
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	game := upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example"}}
	for name, c := range map[string]struct {
		cfg  gateway.Config
		want string
	}{
		"no keys":           {gateway.Config{}, "Config.Keys is missing"},
		"no upstream":       {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "/*"}}}, `route "/*": no upstream`},
		"pattern":           {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "ranked", Upstream: game}}}, `route "ranked": `},
		"unfinished":        {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "/{id", Upstream: game}}}, `route "/{id": `},
		"one pattern twice": {gateway.Config{Keys: keys, Routes: []policy.Route{{Pattern: "/a", Upstream: game}, {Pattern: "/a", Upstream: game}}}, `route "/a": given twice`},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Log = slog.New(slog.DiscardHandler)
			g, err := gateway.New(c.cfg)
			if err == nil {
				g.Close()
				t.Fatal("it was made")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, want %q in it", err, c.want)
			}
		})
	}
}
