package login

import (
	"context"
	"fmt"
	"log/slog"
)

// Probed is what Probe found.
type Probed struct {
	// Source is the file, or the URL without what may be secret in it.
	Source string
	// Remote says that the keys come from a URL: New would not fail for want of them.
	Remote bool
	// Keys is how many of them can be used.
	Keys int
}

// Probe reads the keys once, those at a URL too, and fails where none can be used: the
// error names where they should be. Remote is true then, too.
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
