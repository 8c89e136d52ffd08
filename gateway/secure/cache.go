package secure

import (
	"context"
	"log/slog"
	"sync"

	"golang.org/x/crypto/acme/autocert"
)

// A cache keeps in memory what could not be written to disk, so that a renewed
// certificate is used by this process and not ordered again and again.
type cache struct {
	dir autocert.DirCache
	log *slog.Logger

	mu        sync.Mutex
	unwritten map[string][]byte
}

// Get implements autocert.Cache.
func (c *cache) Get(ctx context.Context, name string) ([]byte, error) {
	c.mu.Lock()
	data, ok := c.unwritten[name]
	c.mu.Unlock()
	if ok {
		return data, nil
	}
	return c.dir.Get(ctx, name)
}

// Put implements autocert.Cache. It always succeeds.
func (c *cache) Put(ctx context.Context, name string, data []byte) error {
	err := c.dir.Put(ctx, name, data)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unwritten, name)
	if err != nil {
		c.unwritten[name] = data
		c.log.Error("acme.cache_failed", "name", name, "err", err, "text", "kept in memory until this process ends")
	}
	return nil
}

// Delete implements autocert.Cache.
func (c *cache) Delete(ctx context.Context, name string) error {
	c.mu.Lock()
	delete(c.unwritten, name)
	c.mu.Unlock()
	return c.dir.Delete(ctx, name)
}
