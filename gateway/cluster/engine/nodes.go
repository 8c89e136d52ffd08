package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
)

// Headers of NATS.
const (
	operationHeader = "KV-Operation" // of a deletion in a bucket
	subjectHeader   = "Nats-Subject"
	statusHeader    = "Status"
)

// Statuses of a direct get.
const (
	statusEnd        = "204"
	statusNone       = "404"
	statusNobodyHere = "503"
)

// record passes a write to the bucket of nodes on.
func (e *Engine) record(m *nats.Msg) {
	if m.Header.Get(jetstream.ExpectedLastSubjSeqHeader) != "" { // it may have been refused: the node writes it again if it was accepted
		return
	}
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	value := m.Data
	if m.Header.Get(operationHeader) != "" {
		value = nil
	}
	e.tell(func() { e.h.Record(id, value) })
}

// list returns all records of nodes. Any replica answers, so that they may be a little old.
func (e *Engine) list(ctx context.Context, nc *nats.Conn) (map[string][]byte, error) {
	ctx, end := e.timed(ctx, "list")
	defer end()
	return listRecords(ctx, nc, e.bucket("nodes"))
}

func listRecords(ctx context.Context, nc *nats.Conn, bucket string) (map[string][]byte, error) {
	prefix := "$KV." + bucket + "."
	all := make(map[string][]byte)
	err := direct(ctx, nc, "KV_"+bucket, map[string]any{"multi_last": []string{prefix + "*"}}, func(m *nats.Msg) {
		if id, ok := strings.CutPrefix(m.Header.Get(subjectHeader), prefix); ok && m.Header.Get(operationHeader) == "" {
			all[id] = m.Data
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list bucket %s: %w", bucket, err)
	}
	return all, nil
}

// CreateNode implements cluster.Engine.
func (e *Engine) CreateNode(ctx context.Context, id string, value []byte) (existing []byte, err error) {
	kv := e.there(&e.nodes)
	_, err = e.write(ctx, "create", kv, func(ctx context.Context) (uint64, error) { return kv.Create(ctx, id, value) })
	if !errors.Is(err, cluster.ErrOvertaken) {
		return nil, err
	}
	if entry, err := kv.Get(ctx, id); err == nil {
		existing = entry.Value()
	}
	return existing, cluster.ErrExists
}

// PutNode implements cluster.Engine.
func (e *Engine) PutNode(ctx context.Context, id string, value []byte) error {
	kv := e.there(&e.nodes)
	_, err := e.write(ctx, "put", kv, func(ctx context.Context) (uint64, error) { return kv.Put(ctx, id, value) })
	return err
}

// Beat implements cluster.Engine.
func (e *Engine) Beat(id string) error { return e.Publish("hb", []byte(id)) }
