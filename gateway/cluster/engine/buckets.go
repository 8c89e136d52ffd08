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

// open returns a bucket, and makes it if there is none.
func (e *Engine) open(ctx context.Context, c jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	_, js := e.conn()
	kv, err := js.KeyValue(ctx, c.Bucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, explain(c.Bucket, err)
	}
	err = e.replicate(c.Bucket, func(replicas int) error {
		c.Replicas = replicas
		kv, err = js.CreateKeyValue(ctx, c)
		return err
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // another node was faster
		kv, err = js.KeyValue(ctx, c.Bucket)
	}
	return kv, explain(c.Bucket, err)
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
