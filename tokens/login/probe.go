package login

import (
	"context"
	"fmt"
	"log/slog"
)

// Probed is the result of Probe.
type Probed struct {
	// Source is the file, or the URL without what may be secret in it.
	Source string
	// Remote says that the keys come from a URL: New would not fail without them.
	Remote bool
	// Keys is the number of usable keys.
	Keys int
}

// Probe reads the keys once, also from a URL, and fails if none is usable: the error
// names the source. Remote is set even then.
func Probe(ctx context.Context, c Config) (Probed, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	f, _, err := newFeed(ctx, c, newTransport(), urlPace)
	if err != nil {
		return Probed{}, err
	}
	p := Probed{Source: f.source, Remote: f.remote()}
	if p.Remote {
		if err := f.loadFirst(ctx); err != nil {
			return p, fmt.Errorf("%s: %w", f.source, err)
		}
	}
	p.Keys = f.set.Load().size()
	return p, nil
}
