// Package engine implements cluster.Engine and cluster.PlayerStore with NATS and JetStream
// (github.com/nats-io/nats.go). It is the only package that knows NATS.
//
// Subjects and buckets begin with the cluster's name: NAME.hb has the heartbeats, NAME_nodes
// the records of the nodes (in memory, for 10 seconds), NAME_players those of players (in
// memory). What is missing is made.
package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
)

const (
	recordTTL     = 10 * time.Second
	opTimeout     = 2 * time.Second
	connectWait   = 2 * time.Second
	reconnectWait = 250 * time.Millisecond
	lookEvery     = 3 * time.Second // at the round trip
	skewEvery     = 30 * time.Second
	setupRetry    = time.Second
)

// Options are the flags --cluster-*.
type Options struct {
	URLs      []string
	Name      string // of the cluster
	CredsFile string // user credentials; empty: none
	CAFile    string // certificate authorities; empty: the system's
	NodeName  string // for people who look at the engine
	Log       *slog.Logger
	// Observe is told how long each operation took. Nil: nobody is.
	Observe func(op string, took time.Duration)
}

// An Engine is a connection to NATS.
type Engine struct {
	o  Options
	nc *nats.Conn
	js jetstream.JetStream
	h  cluster.EngineHandler

	ctx  context.Context
	stop context.CancelFunc
	run  sync.WaitGroup
	kick chan struct{} // set up again

	handle sync.Mutex // calls of h, one at a time

	mu      sync.Mutex
	nodes   jetstream.KeyValue
	players jetstream.KeyValue
	status  cluster.EngineStatus
	skew    time.Duration
	skewed  bool // skew was measured
	err     error
}

// New checks the options. It connects to nothing.
func New(o Options) (*Engine, error) {
	ctx, stop := context.WithCancel(context.Background())
	e := &Engine{o: o, ctx: ctx, stop: stop, kick: make(chan struct{}, 1), status: cluster.EngineStatus{Since: time.Now()}}
	if e.o.Observe == nil {
		e.o.Observe = func(string, time.Duration) {}
	}
	return e, nil
}

// Start implements cluster.Engine.
func (e *Engine) Start(h cluster.EngineHandler) error {
	e.h = h
	opts := []nats.Option{
		nats.Name("reseat " + e.o.NodeName), nats.NoEcho(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, time.Second), nats.Timeout(connectWait),
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.ReconnectBufSize(-1),
		nats.ConnectHandler(func(*nats.Conn) { e.again() }), nats.ReconnectHandler(func(*nats.Conn) { e.again() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { e.down(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { e.down(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { e.o.Log.Debug("engine.error", "err", err) }),
	}
	if e.o.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(e.o.CredsFile))
	}
	if e.o.CAFile != "" {
		opts = append(opts, nats.RootCAs(e.o.CAFile))
	}
	for _, u := range e.o.URLs {
		if strings.HasPrefix(u, "tls://") {
			opts = append(opts, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12}))
			break
		}
	}
	var err error
	if e.nc, err = nats.Connect(strings.Join(e.o.URLs, ","), opts...); err != nil {
		return fmt.Errorf("--cluster: %w", err)
	}
	if e.js, err = jetstream.New(e.nc, jetstream.WithDefaultTimeout(opTimeout)); err != nil {
		return fmt.Errorf("--cluster: %w", err)
	}
	if _, err = e.nc.Subscribe(e.o.Name+".hb", func(m *nats.Msg) { e.tell(func() { h.Heartbeat(string(m.Data)) }) }); err == nil {
		_, err = e.nc.Subscribe("$KV."+e.bucket("nodes")+".*", e.record)
	}
	if err != nil {
		return fmt.Errorf("--cluster: %w", err)
	}
	if !e.nc.IsConnected() {
		e.down(e.nc.LastError())
	}
	e.run.Go(e.loop)
	return nil
}

func (e *Engine) bucket(what string) string { return e.o.Name + "_" + what }

// tell calls f, which calls the handler.
func (e *Engine) tell(f func()) {
	e.handle.Lock()
	defer e.handle.Unlock()
	if e.ctx.Err() == nil {
		f()
	}
}

// record passes a change of a node's record on. The server sends it to all who have subscribed
// to the bucket's subjects, so that no consumer is needed.
func (e *Engine) record(m *nats.Msg) {
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	value := m.Data
	if m.Header.Get("KV-Operation") != "" { // a deletion
		value = nil
	}
	e.tell(func() { e.h.Record(id, value) })
}

// again has the loop set everything up.
func (e *Engine) again() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

func (e *Engine) down(err error) {
	if err == nil {
		err = cluster.ErrEngineDown
	}
	e.mu.Lock()
	was := e.status.Up || e.err == nil
	e.err = err
	if e.status.Up {
		e.status.Up, e.status.Since = false, time.Now()
	}
	e.mu.Unlock()
	if was {
		e.tell(func() { e.h.EngineDown(err) })
	}
}

// loop sets everything up after each connect, and looks at the connection now and then.
func (e *Engine) loop() {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var measured time.Time
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-e.kick:
		case <-look.C:
		}
		if !e.nc.IsConnected() {
			continue
		}
		if e.nodesBucket() == nil || !e.Status().Up {
			if err := e.setUp(); err != nil {
				e.down(err)
				continue
			}
		}
		e.lookAtConn()
		if time.Since(measured) > skewEvery && e.measureSkew() {
			measured = time.Now()
		}
	}
}

// setUp makes the buckets and lists the nodes.
func (e *Engine) setUp() error {
	nodes, err := e.open(jetstream.KeyValueConfig{Bucket: e.bucket("nodes"), Description: "Nodes of a Reseat cluster", TTL: recordTTL, Storage: jetstream.MemoryStorage, History: 1})
	if err != nil {
		return err
	}
	players, err := e.open(jetstream.KeyValueConfig{Bucket: e.bucket("players"), Description: "Players of a Reseat cluster", Storage: jetstream.MemoryStorage, History: 1})
	if err != nil {
		return err
	}
	list, err := e.list(nodes)
	if err != nil {
		return err
	}
	replicas := 1
	if st, err := e.js.Stream(e.ctx, "KV_"+e.bucket("nodes")); err == nil {
		replicas = st.CachedInfo().Config.Replicas
	}
	e.mu.Lock()
	e.nodes, e.players, e.err = nodes, players, nil
	e.status.Up, e.status.Since = true, time.Now()
	e.status.Servers, e.status.Replicas = max(len(e.nc.Servers()), 1), replicas
	e.status.Version, e.status.URL = e.nc.ConnectedServerVersion(), e.nc.ConnectedUrlRedacted()
	st := e.status
	e.mu.Unlock()
	e.tell(func() {
		e.h.EngineUp(st)
		for id, value := range list {
			e.h.Record(id, value)
		}
		e.h.Synced()
	})
	return nil
}

// open returns a bucket, and makes it if there is none. An existing one is used as it is.
func (e *Engine) open(c jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	ctx, cancel := context.WithTimeout(e.ctx, 2*opTimeout)
	defer cancel()
	kv, err := e.js.KeyValue(ctx, c.Bucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, explain(c.Bucket, err)
	}
	for _, c.Replicas = range []int{3, 1} { // one server refuses three
		kv, err = e.js.CreateKeyValue(ctx, c)
		if err == nil {
			e.o.Log.Info("engine.bucket_made", "bucket", c.Bucket, "replicas", c.Replicas)
			return kv, nil
		}
		if errors.Is(err, jetstream.ErrBucketExists) { // another node was faster
			kv, err = e.js.KeyValue(ctx, c.Bucket)
			return kv, explain(c.Bucket, err)
		}
	}
	return nil, explain(c.Bucket, err)
}

func explain(bucket string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("JetStream is not enabled on the NATS server: %w", err)
	}
	return fmt.Errorf("bucket %s: %w", bucket, err)
}

// list returns all records of a bucket.
func (e *Engine) list(kv jetstream.KeyValue) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(e.ctx, 2*opTimeout)
	defer cancel()
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("list bucket %s: %w", kv.Bucket(), err)
	}
	defer w.Stop()
	all := make(map[string][]byte)
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("list bucket %s: %w", kv.Bucket(), ctx.Err())
		case entry, ok := <-w.Updates():
			if !ok || entry == nil {
				return all, nil
			}
			all[entry.Key()] = entry.Value()
		}
	}
}

func (e *Engine) lookAtConn() {
	rtt, err := e.nc.RTT()
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status.RTT = rtt
}

// measureSkew compares this machine's clock with the engine's.
func (e *Engine) measureSkew() bool {
	ctx, cancel := context.WithTimeout(e.ctx, opTimeout)
	defer cancel()
	before := time.Now()
	st, err := e.js.Stream(ctx, "KV_"+e.bucket("nodes"))
	took := time.Since(before)
	if err != nil || st.CachedInfo().TimeStamp.IsZero() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.skew, e.skewed = before.Add(took/2).Sub(st.CachedInfo().TimeStamp), true
	return true
}

// Ready implements cluster.Engine.
func (e *Engine) Ready(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		e.mu.Lock()
		up, err := e.status.Up, e.err
		e.mu.Unlock()
		if up {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err == nil {
				err = cluster.ErrEngineDown
			}
			return err
		}
	}
}

func (e *Engine) nodesBucket() jetstream.KeyValue {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nodes
}

func (e *Engine) playersBucket() jetstream.KeyValue {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.status.Up {
		return nil
	}
	return e.players
}

// timed begins an operation, and returns its context and its end.
func (e *Engine) timed(ctx context.Context, op string) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	began := time.Now()
	return ctx, func() {
		cancel()
		e.o.Observe(op, time.Since(began))
	}
}

// lost reports whether an error says that a bucket is not there any more.
func lost(err error) bool {
	return errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, nats.ErrNoResponders)
}

// CreateNode implements cluster.Engine.
func (e *Engine) CreateNode(ctx context.Context, id string, value []byte) (existing []byte, err error) {
	kv := e.nodesBucket()
	if kv == nil {
		return nil, cluster.ErrEngineDown
	}
	ctx, end := e.timed(ctx, "create")
	defer end()
	_, err = kv.Create(ctx, id, value)
	if errors.Is(err, jetstream.ErrKeyExists) {
		if entry, err := kv.Get(ctx, id); err == nil {
			return entry.Value(), cluster.ErrExists
		}
		return nil, cluster.ErrExists
	}
	return nil, err
}

// PutNode implements cluster.Engine.
func (e *Engine) PutNode(ctx context.Context, id string, value []byte) error {
	kv := e.nodesBucket()
	if kv == nil {
		return cluster.ErrEngineDown
	}
	ctx, end := e.timed(ctx, "put")
	defer end()
	_, err := kv.Put(ctx, id, value)
	if lost(err) { // a server with memory storage has restarted
		e.mu.Lock()
		e.nodes = nil
		e.mu.Unlock()
		e.again()
	}
	return err
}

// Beat implements cluster.Engine.
func (e *Engine) Beat(id string) error { return e.nc.Publish(e.o.Name+".hb", []byte(id)) }

// Publish implements cluster.Engine.
func (e *Engine) Publish(subject string, data []byte) error {
	return e.nc.Publish(e.o.Name+"."+subject, data)
}

// Subscribe implements cluster.Engine.
func (e *Engine) Subscribe(subject string, f func(subject string, data []byte)) (func(), error) {
	prefix := e.o.Name + "."
	sub, err := e.nc.Subscribe(prefix+subject, func(m *nats.Msg) { f(strings.TrimPrefix(m.Subject, prefix), m.Data) })
	if err != nil {
		return nil, err
	}
	return func() { sub.Unsubscribe() }, nil
}

// Status implements cluster.Engine.
func (e *Engine) Status() cluster.EngineStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}

// Skew implements cluster.Engine.
func (e *Engine) Skew() (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.skew, e.skewed
}

// Reload implements cluster.Engine. The files are read at each connect.
func (e *Engine) Reload() error {
	if e.nc.IsConnected() {
		return e.nc.ForceReconnect()
	}
	return nil
}

// Close implements cluster.Engine.
func (e *Engine) Close() {
	e.stop()
	if e.nc != nil {
		e.nc.Close()
	}
	e.run.Wait()
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
		e.noteLost(err)
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
	if revision == 0 {
		written, err = kv.Create(ctx, key, value)
	} else {
		written, err = kv.Update(ctx, key, value, revision)
	}
	var api *jetstream.APIError
	if errors.Is(err, jetstream.ErrKeyExists) || errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return 0, cluster.ErrOvertaken
	}
	e.noteLost(err)
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
	return kv.Purge(ctx, key, jetstream.LastRevision(revision))
}

// noteLost has the buckets made again if one is missing.
func (e *Engine) noteLost(err error) {
	if lost(err) {
		e.mu.Lock()
		e.nodes = nil
		e.mu.Unlock()
		e.again()
	}
}
