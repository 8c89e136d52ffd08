package engine

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
)

// The bucket keeps the mark of a deletion for markerTTL.
const markerTTL = time.Minute

func (e *Engine) playersBucket() jetstream.KeyValue {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.status.Up {
		return nil
	}
	return e.players
}

// GetPlayer implements cluster.PlayerStore.
func (e *Engine) GetPlayer(ctx context.Context, key string) ([]byte, uint64, error) {
	kv := e.playersBucket()
	if kv == nil {
		return nil, 0, cluster.ErrEngineDown
	}
	ctx, end := e.timed(ctx, "get")
	defer end()
	entry, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, cluster.ErrNoRecord
	}
	if err != nil {
		e.noteFailed(e.stream("players"), err)
		return nil, 0, err
	}
	return entry.Value(), entry.Revision(), nil
}

// PutPlayer implements cluster.PlayerStore.
func (e *Engine) PutPlayer(ctx context.Context, key string, value []byte, revision uint64) (written uint64, err error) {
	kv := e.playersBucket()
	if kv == nil {
		return 0, cluster.ErrEngineDown
	}
	ctx, end := e.timed(ctx, "cas")
	defer end()
	began := time.Now()
	if revision == 0 {
		written, err = kv.Create(ctx, key, value)
	} else {
		written, err = kv.Update(ctx, key, value, revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return 0, cluster.ErrOvertaken
	}
	if err == nil {
		e.confirmed(began)
	}
	e.noteFailed(e.stream("players"), err)
	return written, err
}

// DeletePlayer implements cluster.PlayerStore.
func (e *Engine) DeletePlayer(ctx context.Context, key string, revision uint64) error {
	kv := e.playersBucket()
	if kv == nil {
		return cluster.ErrEngineDown
	}
	ctx, end := e.timed(ctx, "delete")
	defer end()
	return kv.Purge(ctx, key, jetstream.LastRevision(revision), jetstream.PurgeTTL(markerTTL))
}
