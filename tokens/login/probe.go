package login

import (
	"context"
	"fmt"
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
	s, err := newKeySource(c, overNetwork())
	if err != nil {
		return Probed{}, err
	}
	p := Probed{Source: s.name, Remote: s.remote}
	if err := s.load(ctx); err != nil {
		return p, fmt.Errorf("%s: %w", s.name, err)
	}
	p.Keys = len(s.keys.Load().keys)
	return p, nil
}
