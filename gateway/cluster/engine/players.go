package engine

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
)

// GetPlayer implements cluster.PlayerStore.
func (e *Engine) GetPlayer(ctx context.Context, key string) ([]byte, uint64, error) {
	kv := e.there(&e.players)
	if kv == nil {
		return nil, 0, cluster.ErrEngineDown
	}
	var entry jetstream.KeyValueEntry
	err := e.read(ctx, "get", kv.Bucket(), func(ctx context.Context) (err error) {
		entry, err = kv.Get(ctx, key)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return entry.Value(), entry.Revision(), nil
}

// PutPlayer implements cluster.PlayerStore.
func (e *Engine) PutPlayer(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return e.put(ctx, "cas", e.there(&e.players), key, value, revision)
}

// DeletePlayer implements cluster.PlayerStore.
func (e *Engine) DeletePlayer(ctx context.Context, key string, revision uint64) error {
	return e.delete(ctx, "delete", e.there(&e.players), key, revision)
}
