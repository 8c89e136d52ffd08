package engine

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
)

// A Found is the result of Probe. What follows Servers is only there if one of them can be used.
type Found struct {
	// Servers are those of Options.URLs, in their order.
	Servers []FoundServer
	// Clustered: it has other servers beside it.
	Clustered bool
	// Denied are the rights that this user lacks. RightsErr: it could not be found out.
	Denied    NeededRights
	RightsErr error
	// JetStream says why JetStream cannot be used, nil if it can.
	JetStream error
	// Nodes and Players are the buckets.
	Nodes, Players FoundBucket
	// Seats are the buckets of durable sessions, none without Options.Seats.
	Seats []FoundBucket
	// Skew is the difference of this machine's clock to the server's. It is known once there is a bucket.
	Skew       time.Duration
	SkewKnown  bool
	Records    map[string][]byte // of nodes, by their ids
	RecordsErr error
}

// Reached reports whether one of the servers can be used.
func (f *Found) Reached() bool {
	return slices.ContainsFunc(f.Servers, func(s FoundServer) bool { return s.Err == nil })
}

// A FoundServer is one server.
type FoundServer struct {
	URL     string // without credentials
	Name    string
	Version string
	Err     error // it cannot be reached, or used
}

// A FoundBucket is a bucket that a node would use.
type FoundBucket struct {
	Name     string
	Exists   bool
	Replicas int
	Err      error // it could not be looked at, or is no use
}

// Probe finds out whether a node with these options could use NATS. It changes nothing there, and nodes
// of the cluster notice nothing. The error is one of the files.
func Probe(ctx context.Context, o Options) (*Found, error) {
	files, err := o.read()
	if err != nil {
		return nil, err
	}
	found := &Found{Servers: make([]FoundServer, len(o.URLs))}
	conns := make([]*nats.Conn, len(o.URLs))
	var all sync.WaitGroup
	for i, u := range o.URLs {
		all.Go(func() { found.Servers[i], conns[i] = o.probeServer(files, u) })
	}
	all.Wait()
	defer func() {
		for _, nc := range conns {
			if nc != nil {
				nc.Close()
			}
		}
	}()
	i := slices.IndexFunc(found.Servers, func(s FoundServer) bool { return s.Err == nil })
	if i < 0 || ctx.Err() != nil {
		return found, ctx.Err()
	}
	nc := conns[i]
	found.Clustered = nc.ConnectedClusterName() != ""
	if found.Denied, found.RightsErr = o.probeRights(files, o.URLs[i]); found.RightsErr == nil {
		found.JetStream = found.probeBuckets(ctx, nc, o)
	}
	return found, nil
}

// dial connects once.
func (o *Options) dial(f files, server string, more ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(server, append(append(o.connection(f), nats.Name("reseat check"), nats.NoReconnect(), nats.Timeout(connectWait)), more...)...)
}

// probeServer connects to one server. Only one that can be used has a connection.
func (o *Options) probeServer(f files, raw string) (s FoundServer, nc *nats.Conn) {
	s.URL = raw
	if u, err := url.Parse(raw); err == nil {
		u.User = nil
		s.URL = u.String()
	}
	nc, err := o.dial(f, raw)
	switch {
	case refusesCredentials(err):
		s.Err = errors.New("refuses the credentials")
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout):
		s.Err = errors.New("cannot be reached")
	case err != nil:
		s.Err = err
	default:
		s.Name, s.Version = nc.ConnectedServerName(), nc.ConnectedServerVersion()
		if s.Err = supported(s.Version); s.Err != nil {
			nc.Close()
		}
	}
	return s, nc
}

// errNotTried: a right is missing that the question needs.
var errNotTried = errors.New("not asked: a right is missing")

// probeRights tries each right, over a connection of its own. What it publishes is nothing to anybody:
// an empty heartbeat, event and records, which nodes ignore, and streams refuse since they are for one that
// does not exist; and requests that JetStream refuses as incomplete.
func (o *Options) probeRights(f files, server string) (lacking NeededRights, err error) {
	denied := make(map[string]bool) // "Publish to SUBJECT"
	closed := make(chan struct{})
	nc, err := o.dial(f, server, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if m := denial.FindStringSubmatch(err.Error()); m != nil && errors.Is(err, nats.ErrPermissionViolation) {
			denied[m[1]+" "+m[2]] = true
		}
	}), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		return lacking, err
	}
	publish, subscribe := rights(o.Name, o.Seats)
	for _, r := range subscribe {
		for _, s := range r.tried {
			if _, err := nc.SubscribeSync(s); err != nil {
				return lacking, err
			}
		}
	}
	for _, r := range publish {
		for _, s := range r.tried {
			m := nats.NewMsg(s)
			switch {
			case strings.Contains(s, purge):
				m.Data = []byte("{")
			case !strings.HasPrefix(s, "$JS."):
				m.Header.Set(jetstream.ExpectedStreamHeader, probeKey)
				m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
			}
			if err := nc.PublishMsg(m); err != nil {
				return lacking, err
			}
		}
	}
	// The server answers in order, and the handlers are called in order: all errors come before the end.
	err = nc.FlushTimeout(opTimeout)
	nc.Close()
	<-closed
	collect := func(all []right, verb string) (list []string) {
		for _, r := range all {
			if slices.ContainsFunc(r.tried, func(s string) bool { return denied[verb+" "+s] }) {
				list = append(list, r.subject)
			}
		}
		return list
	}
	return NeededRights{collect(publish, "Publish"), collect(subscribe, "Subscription")}, err
}

// denial is a server's word for a missing right.
var denial = regexp.MustCompile(`(Publish|Subscription) to "([^"]*)"`)

// probeBuckets asks what is there, as far as the rights allow.
func (f *Found) probeBuckets(ctx context.Context, nc *nats.Conn, o Options) error {
	f.Nodes.Name, f.Players.Name = o.Name+"_nodes", o.Name+"_players"
	f.RecordsErr = errNotTried
	f.Nodes.Err, f.Players.Err = errNotTried, errNotTried
	for i := 0; i < cluster.SeatBuckets && o.Seats; i++ {
		f.Seats = append(f.Seats, FoundBucket{Name: seatsBucket(o.Name, i), Err: errNotTried})
	}
	if f.Denied.Subscribes("_INBOX.>") {
		return errNotTried
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(opTimeout))
	if err != nil {
		return err
	}
	if on, _ := nc.ConnectedServerJetStream(); !on {
		return jetstream.ErrJetStreamNotEnabled
	}
	if f.Denied.Publishes("$JS.API.INFO") {
		return errNotTried
	}
	if err := within(ctx, func(ctx context.Context) error { _, err := js.AccountInfo(ctx); return err }); err != nil {
		return err
	}
	f.probeBucket(ctx, js, &f.Nodes, readDirectly)
	f.probeBucket(ctx, js, &f.Players, readDirectly)
	for i := range f.Seats {
		f.probeBucket(ctx, js, &f.Seats[i], holdSeats)
	}
	if get := "$JS.API.DIRECT.GET.KV_" + f.Nodes.Name; f.Nodes.Exists && !f.Denied.Publishes(get) {
		f.RecordsErr = within(ctx, func(ctx context.Context) (err error) {
			f.Records, err = listRecords(ctx, nc, f.Nodes.Name)
			return err
		})
	}
	return nil
}

// within calls f with a limit.
func within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	return f(ctx)
}

// readDirectly says why the replicas of a bucket answer no reads, nil if they do.
func readDirectly(c jetstream.StreamConfig) error {
	if !c.AllowDirect {
		return errors.New("allows no direct reads, so no node made it: delete it, and a node makes it again")
	}
	return nil
}

// holdSeats says why a bucket is no use for seats, nil if it is.
func holdSeats(c jetstream.StreamConfig) error {
	switch {
	case c.Storage != jetstream.FileStorage:
		return errors.New("is in memory, where a restart can empty it: delete it, and a node makes it again")
	case !c.AllowMsgTTL || c.MaxMsgsPerSubject != 1:
		return errors.New("has other settings than nodes give it: delete it, and a node makes it again")
	}
	return nil
}

// probeBucket looks at a bucket, if the rights allow it. check says why its settings are no use.
func (f *Found) probeBucket(ctx context.Context, js jetstream.JetStream, b *FoundBucket, check func(jetstream.StreamConfig) error) {
	if f.Denied.Publishes("$JS.API.STREAM.INFO.KV_" + b.Name) {
		return
	}
	var st jetstream.Stream
	began := time.Now()
	b.Err = within(ctx, func(ctx context.Context) (err error) {
		st, err = js.Stream(ctx, "KV_"+b.Name)
		return err
	})
	took := time.Since(began)
	if errors.Is(b.Err, jetstream.ErrStreamNotFound) {
		b.Err = nil
		return
	}
	if b.Err != nil {
		return
	}
	info := st.CachedInfo()
	b.Exists, b.Replicas = true, max(info.Config.Replicas, 1)
	if !info.TimeStamp.IsZero() {
		f.Skew, f.SkewKnown = began.Add(took/2).Sub(info.TimeStamp), true
	}
	if b.Err = check(info.Config); b.Err == nil && b.Replicas > 1 && info.Cluster != nil && info.Cluster.Leader == "" {
		b.Err = errors.New("has no leader now: are most of its servers down?")
	}
}
