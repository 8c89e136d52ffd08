// Package engine implements cluster.Engine, cluster.PlayerStore and cluster.SeatStore with NATS and JetStream
// (github.com/nats-io/nats.go). It is the only package that knows NATS.
//
// Subjects and buckets begin with the cluster's name: NAME.hb has the heartbeats, NAME_nodes
// the records of the nodes (in memory, for 10 seconds), NAME_players those of players (in
// memory), NAME_seats_0 to NAME_seats_7 those of durable sessions (in files), the stream NAME_events
// the events (in memory, for 10 minutes). Buckets that are missing are made. An existing one is used as
// it is. The stream of events is optional.
//
// There are no consumers: a server passes each write to a bucket to all who subscribe to its subjects,
// and the records that were there before are read at once. So the records of nodes arrive even
// while the bucket has no leader, and nodes need no right to make consumers: KeyValue.Watch of nats.go makes
// an ordered consumer for each watch, which the bucket's leader serves. A connection is up as long as it is there, whatever becomes of the
// buckets.
package engine

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"reseat/gateway/cluster"
)

const (
	recordTTL     = 10 * time.Second
	opTimeout     = 2 * time.Second
	connectWait   = 2 * time.Second
	reconnectWait = 250 * time.Millisecond
	pingEvery     = 2 * time.Second
	lookEvery     = 3 * time.Second // at the round trip
	skewEvery     = 30 * time.Second
	setupRetry    = time.Second
	streamsLook   = 500 * time.Millisecond // between two looks at streams that may be lost
	// MinVersion of the servers. Older ones have accepted two conditional writes for one.
	minMajor, minMinor = 2, 12
)

// Options are the flags --cluster-*.
type Options struct {
	URLs      []string
	Name      string // of the cluster
	CredsFile string // user credentials; empty: none
	CAFile    string // certificate authorities; empty: the system's
	Plaintext bool   // connections without TLS may go to other machines than the URLs name
	NodeName  string // for people who look at the engine
	Seats     bool   // there are durable sessions
	Log       *slog.Logger
	// Observe is called with the duration of each operation. May be nil.
	Observe func(op string, took time.Duration)
}

// An Engine is a connection to NATS. One goroutine, loop, sets everything up; the client's callbacks note what
// has happened, and operations read what is there.
type Engine struct {
	// Set once, before Start.
	o Options
	h cluster.EngineHandler

	ctx   context.Context
	stop  context.CancelFunc
	run   sync.WaitGroup
	kick  chan struct{} // has loop set up again
	reads chan struct{} // a place for each read by a leader that is under way

	handle sync.Mutex // held during calls of h, one at a time. mu is not held then

	mu sync.Mutex // guards all below

	// The connection.
	nc      *nats.Conn          // nil before the first attempt to connect has ended
	js      jetstream.JetStream // as nc
	later   []*subscription     // made before nc was there
	files   files               // when they were read last
	status  cluster.EngineStatus
	skew    time.Duration
	skewed  bool      // skew was measured
	contact time.Time // when the newest write began that was confirmed
	err     error     // why it is not up, or cannot be used

	// What is there, since the last connect.
	nodes   jetstream.KeyValue // nil: to be set up
	players jetstream.KeyValue
	events  eventsState
	denied  error              // the last right that was missing
	setting context.CancelFunc // ends a set-up under way
	forming time.Time          // when too few servers were there first

	seatsThere bool      // all buckets of seats
	seatsAgain time.Time // when those that are missing are made
	// seats are those buckets. They stay when the connection is made again: nil is one that was never there.
	seats [cluster.SeatBuckets]jetstream.KeyValue

	// What loop is to look at.
	suspects map[string]bool // streams that may be lost
	looked   time.Time       // when they were looked for last
	missed   bool            // an operation has failed, and the handler may want to repeat it

	// What was logged, so that it is logged once.
	noEventsSaid string // why there is no stream of events
	noSeatsSaid  string // why buckets of seats are missing
}

// New checks the options. It connects to nothing.
func New(o Options) (*Engine, error) {
	if o.Observe == nil {
		o.Observe = func(string, time.Duration) {}
	}
	e := &Engine{o: o, kick: make(chan struct{}, 1), reads: make(chan struct{}, maxLeaderReads), suspects: make(map[string]bool), status: cluster.EngineStatus{Since: time.Now()}}
	var err error
	if e.files, err = o.read(); err != nil {
		return nil, err
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	return e, nil
}

// files are what the options' files have.
type files struct {
	contents string        // of all
	key      nkeys.KeyPair // a seed alone, for a user that the server's configuration names; nil: none
	user     string        // that user
}

// jwtMark begins the JWT in a file of credentials.
var jwtMark = []byte("-----BEGIN NATS USER JWT-----")

// read reads all files. The error names the flag.
func (o *Options) read() (f files, err error) {
	if o.CredsFile != "" {
		b, err := os.ReadFile(o.CredsFile)
		if err != nil {
			return f, fmt.Errorf("--cluster-creds: %w", err)
		}
		f.contents = string(b)
		if !bytes.Contains(b, jwtMark) {
			if f.key, err = nkeys.ParseDecoratedUserNKey(b); err == nil {
				f.user, err = f.key.PublicKey()
			}
			if err != nil {
				return f, fmt.Errorf("--cluster-creds: %.100s: want NATS user credentials, or the seed of a user's nkey", o.CredsFile)
			}
		}
	}
	if o.CAFile != "" {
		b, err := os.ReadFile(o.CAFile)
		if err != nil {
			return f, fmt.Errorf("--cluster-ca: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(b) {
			return f, fmt.Errorf("--cluster-ca: %.100s: has no certificate in PEM", o.CAFile)
		}
		f.contents += "\n" + string(b)
	}
	return f, nil
}

// Check reads the files. The error names the flag.
func (o *Options) Check() error {
	_, err := o.read()
	return err
}

// Start implements cluster.Engine.
func (e *Engine) Start(h cluster.EngineHandler) error {
	e.h = h
	if _, err := e.Subscribe("hb", func(_ string, id []byte) { e.tell(func() { h.Heartbeat(string(id)) }) }); err != nil {
		return err
	}
	if err := e.add(&subscription{subject: "$KV." + e.bucket("nodes") + ".*", f: e.record}); err != nil {
		return err
	}
	e.run.Go(func() {
		if err := e.connect(); err != nil {
			e.fail(err)
			return
		}
		e.loop()
	})
	return nil
}

// connection returns the options that say who this is, and whom to trust.
func (o *Options) connection(f files) (opts []nats.Option) {
	switch {
	case f.key != nil:
		opts = append(opts, nats.Nkey(f.user, f.key.Sign))
	case o.CredsFile != "":
		opts = append(opts, nats.UserCredentials(o.CredsFile))
	}
	if o.CAFile != "" {
		opts = append(opts, nats.RootCAs(o.CAFile))
	}
	switch secure := slices.ContainsFunc(o.URLs, func(u string) bool { return strings.HasPrefix(u, "tls://") }); {
	case secure:
		opts = append(opts, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12}))
	case o.CAFile == "" && !o.Plaintext: // a server names others, which may be on other machines
		opts = append(opts, nats.IgnoreDiscoveredServers())
	}
	return opts
}

// connect tries all servers once, and goes on trying in the background. An error is one of the
// settings.
func (e *Engine) connect() error {
	opts := []nats.Option{
		nats.Name("reseat " + e.o.NodeName), nats.NoEcho(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, time.Second), nats.Timeout(connectWait),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(2), nats.ReconnectBufSize(-1),
		nats.ConnectHandler(func(*nats.Conn) { e.connected() }), nats.ReconnectHandler(func(*nats.Conn) { e.connected() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { e.down(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { e.fail(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { e.asyncError(err) }),
	}
	e.mu.Lock()
	opts = append(opts, e.o.connection(e.files)...)
	e.mu.Unlock()
	nc, err := nats.Connect(strings.Join(e.o.URLs, ","), opts...)
	if err != nil {
		return fmt.Errorf("--cluster: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(opTimeout))
	if err != nil {
		nc.Close()
		return fmt.Errorf("--cluster: %w", err)
	}
	e.mu.Lock()
	e.nc, e.js = nc, js
	later := e.later
	e.later = nil
	closed := e.ctx.Err() != nil
	e.mu.Unlock()
	for _, s := range later {
		s.make(nc)
	}
	if closed {
		nc.Close()
	} else if nc.IsConnected() {
		e.connected()
	}
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

// conn returns nil before there is one.
func (e *Engine) conn() (*nats.Conn, jetstream.JetStream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nc, e.js
}

// again has the loop set everything up.
func (e *Engine) again() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// connected may be called twice for a connection.
func (e *Engine) connected() {
	e.mu.Lock()
	nc, was := e.nc, e.status.Up
	if nc == nil || was || !nc.IsConnected() {
		e.mu.Unlock()
		return
	}
	e.status.Up, e.status.Since = true, time.Now()
	e.status.Version, e.status.URL = nc.ConnectedServerVersion(), nc.ConnectedUrlRedacted()
	e.status.Servers = max(len(e.o.URLs), len(nc.DiscoveredServers()), e.status.Replicas)
	e.forgetLocked()
	e.err, e.denied, e.forming = nil, nil, time.Time{}
	st := e.status
	e.mu.Unlock()
	e.tell(func() { e.h.EngineUp(st) })
	e.again()
}

// forgetLocked has everything be set up again.
func (e *Engine) forgetLocked() {
	e.nodes, e.players, e.events, e.seatsThere, e.seatsAgain = nil, nil, eventsState{}, false, time.Time{}
}

// refusesCredentials reports whether a server has refused the user.
func refusesCredentials(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked)
}

// fail notes why there is no connection, or why it cannot be used.
func (e *Engine) fail(err error) {
	if refusesCredentials(err) {
		err = fmt.Errorf("%w: NATS refuses the credentials: %w", cluster.ErrUnusable, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
}

func (e *Engine) down(err error) {
	if err == nil {
		err = cluster.ErrEngineDown
	}
	e.fail(err)
	e.mu.Lock()
	was := e.status.Up
	e.forgetLocked()
	if was {
		e.status.Up, e.status.Since = false, time.Now()
	}
	e.mu.Unlock()
	if was {
		e.tell(func() { e.h.EngineDown(err) })
	}
}

// asyncError gets what the server says of a subscription or of a publication.
func (e *Engine) asyncError(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		e.o.Log.Debug("engine.error", "err", err)
		return
	}
	if e.noEvents(err) {
		return
	}
	err = fmt.Errorf("%w: the NATS user lacks a right: %w", cluster.ErrUnusable, err)
	e.mu.Lock()
	first := e.denied == nil
	e.denied = err
	if e.setting != nil {
		e.setting()
	}
	e.mu.Unlock()
	if first {
		e.o.Log.Error("engine.denied", "err", err, "text", "see reseat check for the rights that a node needs")
	}
}

// loop sets everything up after each connect, and looks at the connection now and then.
func (e *Engine) loop() {
	look, retry := time.NewTicker(lookEvery), time.NewTimer(0)
	defer look.Stop()
	defer retry.Stop()
	var measured time.Time
	nc, _ := e.conn()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-e.kick:
		case <-retry.C:
		case <-look.C:
			e.catchUp()
			if rtt, err := nc.RTT(); err == nil {
				e.mu.Lock()
				e.status.RTT = rtt
				e.mu.Unlock()
			}
		}
		if !nc.IsConnected() {
			continue
		}
		if e.lookForStreams() {
			retry.Reset(streamsLook)
		}
		if e.there(&e.nodes) == nil {
			if err := e.setUp(nc); err != nil {
				e.fail(err)
				retry.Reset(setupRetry)
				continue
			}
			measured = time.Now()
		}
		e.openEvents()
		e.openSeats()
		if time.Since(measured) > skewEvery && e.measure(e.ctx) == nil {
			measured = time.Now()
		}
	}
}

// supported refuses servers that are too old.
func supported(version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d.", &major, &minor); err != nil || major < minMajor || major == minMajor && minor < minMinor {
		return fmt.Errorf("%w: the NATS server has version %.20q, want %d.%d or newer", cluster.ErrUnusable, version, minMajor, minMinor)
	}
	return nil
}

// setUp makes the buckets and lists the nodes.
func (e *Engine) setUp(nc *nats.Conn) (err error) {
	if err := supported(nc.ConnectedServerVersion()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(e.ctx, 3*opTimeout)
	defer cancel()
	e.mu.Lock()
	e.setting = cancel
	denied := e.denied
	e.mu.Unlock()
	if denied != nil { // of a subscription; the server says it once
		return denied
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.setting = nil
		if err != nil && e.denied != nil {
			err = e.denied
		}
	}()
	_, js := e.conn()
	if _, err := js.AccountInfo(ctx); err != nil {
		return explain("", err)
	}
	nodes, err := e.openKV(ctx, jetstream.KeyValueConfig{Bucket: e.bucket("nodes"), Description: "Nodes of a Reseat cluster", TTL: recordTTL, Storage: jetstream.MemoryStorage, History: 1, MaxBytes: 16 << 20})
	if err != nil {
		return err
	}
	players, err := e.openKV(ctx, jetstream.KeyValueConfig{Bucket: e.bucket("players"), Description: "Players of a Reseat cluster", Storage: jetstream.MemoryStorage, History: 1, LimitMarkerTTL: markerTTL})
	if err != nil {
		return err
	}
	if err := e.measure(ctx); err != nil {
		return err
	}
	list, err := e.list(ctx, nc)
	if err != nil {
		return err
	}
	if e.o.Seats {
		e.makeSeats(ctx) // again later, if it fails
	}
	e.mu.Lock()
	if e.denied != nil {
		defer e.mu.Unlock()
		return e.denied
	}
	e.nodes, e.players, e.err = nodes, players, nil
	e.mu.Unlock()
	e.tell(func() {
		for id, value := range list {
			e.h.Record(id, value)
		}
		e.h.Synced()
	})
	return nil
}

// measure asks for the replicas of the bucket of nodes, and compares this machine's clock with
// that of the server that answers.
func (e *Engine) measure(ctx context.Context) error {
	ctx, end := e.timed(ctx, "info")
	defer end()
	_, js := e.conn()
	before := time.Now()
	st, err := js.Stream(ctx, "KV_"+e.bucket("nodes"))
	took := time.Since(before)
	if err != nil {
		return explain(e.bucket("nodes"), err)
	}
	info := st.CachedInfo()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status.Replicas = max(info.Config.Replicas, 1)
	e.status.Servers = max(e.status.Servers, e.status.Replicas)
	if !info.TimeStamp.IsZero() {
		e.skew, e.skewed = before.Add(took/2).Sub(info.TimeStamp), true
	}
	return nil
}

// Ready implements cluster.Engine.
func (e *Engine) Ready(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		e.mu.Lock()
		there, err := e.nodes != nil, e.err
		e.mu.Unlock()
		switch {
		case there:
			return nil
		case errors.Is(err, cluster.ErrUnusable):
			return err
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

// timed begins an operation, and returns its context and its end.
func (e *Engine) timed(ctx context.Context, op string) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	began := time.Now()
	return ctx, func() {
		cancel()
		e.o.Observe(op, time.Since(began))
	}
}

// noteFailed has the loop look whether a stream is still there, after an operation on it that has failed.
// The server does not say it of the bucket of nodes: to those who subscribe to its subjects a write is
// delivered, and so the writer waits in vain.
func (e *Engine) noteFailed(stream string, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	e.mu.Lock()
	e.suspects[stream] = true
	e.mu.Unlock()
	e.again()
}

// lookForStreams notes which of the suspected streams have been lost. It reports whether some must be looked
// for later: operations may fail by the thousand.
func (e *Engine) lookForStreams() (later bool) {
	e.mu.Lock()
	suspects := e.suspects
	due := time.Since(e.looked) >= streamsLook
	if len(suspects) == 0 || !due {
		e.mu.Unlock()
		return len(suspects) > 0
	}
	e.suspects, e.looked = make(map[string]bool), time.Now()
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(e.ctx, opTimeout)
	defer cancel()
	_, js := e.conn()
	var all sync.WaitGroup
	for stream := range suspects {
		all.Go(func() {
			_, err := js.Stream(ctx, stream)
			e.mu.Lock()
			defer e.mu.Unlock()
			switch {
			case errors.Is(err, jetstream.ErrStreamNotFound):
				e.lostLocked(stream)
			case err != nil:
				e.suspects[stream] = true
			default:
				e.missed = true
			}
		})
	}
	all.Wait()
	return false
}

// lostLocked notes that a stream has to be made again.
func (e *Engine) lostLocked(stream string) {
	bucket := strings.TrimPrefix(stream, "KV_")
	e.o.Log.Warn("engine.bucket_lost", "bucket", bucket)
	switch bucket {
	case e.bucket("nodes"), e.bucket("players"):
		e.nodes = nil
	case e.bucket("events"):
		e.events = eventsState{}
	default:
		e.seatsThere = false
	}
}

// catchUp says that the buckets are there, if an operation has failed since that was reported: a bucket may
// have had no leader for a while.
func (e *Engine) catchUp() {
	e.mu.Lock()
	missed := e.missed && e.nodes != nil
	e.missed = e.missed && !missed
	e.mu.Unlock()
	if missed {
		e.tell(e.h.Synced)
	}
}

// Publish implements cluster.Engine.
func (e *Engine) Publish(subject string, data []byte) error {
	nc, _ := e.conn()
	if nc == nil {
		return cluster.ErrEngineDown
	}
	return nc.Publish(e.o.Name+"."+subject, data)
}

// A subscription is made as soon as there is a connection, and ended once.
type subscription struct {
	subject string
	f       nats.MsgHandler
	mu      sync.Mutex
	sub     *nats.Subscription
	ended   bool
}

func (s *subscription) make(nc *nats.Conn) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.sub, err = nc.Subscribe(s.subject, s.f)
	}
	return err
}

func (s *subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.sub != nil {
		s.sub.Unsubscribe()
	}
}

// Subscribe implements cluster.Engine.
func (e *Engine) Subscribe(subject string, f func(subject string, data []byte)) (func(), error) {
	prefix := e.o.Name + "."
	s := &subscription{subject: prefix + subject, f: func(m *nats.Msg) { f(strings.TrimPrefix(m.Subject, prefix), m.Data) }}
	return s.end, e.add(s)
}

func (e *Engine) add(s *subscription) error {
	e.mu.Lock()
	nc := e.nc
	if nc == nil {
		e.later = append(e.later, s)
	}
	e.mu.Unlock()
	if nc == nil {
		return nil
	}
	err := s.make(nc)
	if e.ctx.Err() != nil {
		return nil // Close ends all subscriptions
	}
	return err
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

// Reload implements cluster.Engine. The files are read at each connect: if they have changed,
// the connection is made again.
func (e *Engine) Reload() error {
	now, err := e.o.read()
	if err != nil {
		return err
	}
	e.mu.Lock()
	nc, before := e.nc, e.files
	if now.user == before.user {
		e.files = now
	}
	e.mu.Unlock()
	if now.user != before.user {
		return errors.New("--cluster-creds: another nkey takes effect at the next start, or in an upgrade")
	}
	if now.contents != before.contents && nc != nil && nc.IsConnected() {
		return nc.ForceReconnect()
	}
	return nil
}

// Close implements cluster.Engine.
func (e *Engine) Close() {
	e.stop()
	if nc, _ := e.conn(); nc != nil {
		nc.Close()
	}
	e.run.Wait()
}
