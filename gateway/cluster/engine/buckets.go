package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
)

const (
	// maxReplicas are as many as JetStream needs to lose a server without losing a stream.
	maxReplicas = 3
	// formingWait is the time for which no bucket is made with fewer replicas than --cluster names
	// servers. The servers of a new cluster elect a leader before they all know each other, and
	// nothing adds replicas to a bucket later.
	formingWait = 10 * time.Second
)

var (
	// errForming means that fewer servers than --cluster names have joined their cluster.
	errForming = errors.New("some of the NATS servers that --cluster names have not joined their cluster yet")
	// errTooLarge means that the servers may have room for fewer replicas.
	errTooLarge = errors.New("no room in the NATS servers")
)

// open returns a bucket, and has create make it if there is none.
func (e *Engine) open(ctx context.Context, bucket string, create func(js jetstream.JetStream, replicas int) error) (jetstream.KeyValue, error) {
	_, js := e.conn()
	kv, err := js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		err = e.replicate(bucket, func(replicas int) error { return create(js, replicas) })
		if err == nil || errors.Is(err, jetstream.ErrBucketExists) || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another node was faster
			kv, err = js.KeyValue(ctx, bucket)
		}
	}
	return kv, explain(bucket, err)
}

// openKV is open for a bucket whose replicas answer reads.
func (e *Engine) openKV(ctx context.Context, c jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	return e.open(ctx, c.Bucket, func(js jetstream.JetStream, replicas int) error {
		c.Replicas = replicas
		_, err := js.CreateKeyValue(ctx, c)
		return err
	})
}

// there returns one of the engine's buckets, nil while the connection is down or it was not found yet.
func (e *Engine) there(kv *jetstream.KeyValue) jetstream.KeyValue {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.status.Up {
		return nil
	}
	return *kv
}

// read has f ask for a record of a bucket. If there is none the error is cluster.ErrNoRecord.
func (e *Engine) read(ctx context.Context, op, bucket string, f func(ctx context.Context) error) error {
	ctx, end := e.timed(ctx, op)
	defer end()
	err := f(ctx)
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) {
		return cluster.ErrNoRecord
	}
	e.noteFailed("KV_"+bucket, err)
	return explain(bucket, err)
}

// write has f write to a bucket, nil while that is not there. If a condition of the write does not hold the error is
// cluster.ErrOvertaken. Where no server takes it, it is sent up to two times more.
func (e *Engine) write(ctx context.Context, op string, kv jetstream.KeyValue, f func(ctx context.Context) (uint64, error)) (uint64, error) {
	if kv == nil {
		return 0, cluster.ErrEngineDown
	}
	ctx, end := e.timed(ctx, op)
	defer end()
	began := time.Now()
	revision, err := f(ctx)
	switch {
	case err == nil:
		e.confirmed(began)
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return 0, cluster.ErrOvertaken
	}
	e.noteFailed("KV_"+kv.Bucket(), err)
	return revision, err
}

// put writes a record if its revision is still this one, 0 for none. The mark of a deletion is none.
func (e *Engine) put(ctx context.Context, op string, kv jetstream.KeyValue, key string, value []byte, revision uint64) (uint64, error) {
	return e.write(ctx, op, kv, func(ctx context.Context) (uint64, error) {
		if revision == 0 {
			return kv.Create(ctx, key, value)
		}
		return kv.Update(ctx, key, value, revision)
	})
}

// markerTTL is for how long a bucket keeps the mark of a deletion.
const markerTTL = time.Minute

// delete deletes a record if its revision is still this one.
func (e *Engine) delete(ctx context.Context, op string, kv jetstream.KeyValue, key string, revision uint64) error {
	_, err := e.write(ctx, op, kv, func(ctx context.Context) (uint64, error) {
		return 0, kv.Purge(ctx, key, jetstream.LastRevision(revision), jetstream.PurgeTTL(markerTTL))
	})
	return err
}

// replicate makes a bucket or stream by create, with as many replicas as there are servers, up
// to maxReplicas. It returns errForming while more servers may be joining.
func (e *Engine) replicate(bucket string, create func(replicas int) error) error {
	for n := maxReplicas; ; n-- {
		err := create(n)
		if err == nil {
			e.o.Log.Info("engine.bucket_made", "bucket", bucket, "replicas", n)
		}
		few := tooManyReplicas(err)
		switch {
		case n == 1 || !few && !errors.Is(err, errTooLarge):
			return err
		case few && n <= len(e.o.URLs) && e.mayBeForming(bucket, n):
			return errForming
		}
	}
}

// mayBeForming reports whether servers may still be joining the cluster of NATS, which has fewer than n now.
func (e *Engine) mayBeForming(bucket string, n int) bool {
	e.mu.Lock()
	first := e.forming.IsZero()
	if first {
		e.forming = time.Now()
	}
	since := time.Since(e.forming)
	e.mu.Unlock()
	if first {
		e.o.Log.Info("engine.forming", "bucket", bucket, "replicas", n, "wait", formingWait, "text", "NATS has fewer servers than --cluster names")
	}
	return since < formingWait
}

// tooManyReplicas reports whether there are fewer servers.
func tooManyReplicas(err error) bool {
	var api *jetstream.APIError
	const noPeers, notClustered = 10005, 10074
	return errors.As(err, &api) && (api.ErrorCode == noPeers || api.ErrorCode == notClustered)
}

func explain(bucket string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%w: JetStream is not enabled on the NATS server: %w", cluster.ErrUnusable, err)
	case bucket == "":
		return fmt.Errorf("JetStream: %w", err)
	}
	return fmt.Errorf("bucket %s: %w", bucket, err)
}
