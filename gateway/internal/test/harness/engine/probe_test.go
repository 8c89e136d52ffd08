package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"reseat/gateway/cluster"
	"reseat/gateway/cluster/engine"
)

func probe(t *testing.T, o engine.Options) *engine.Found {
	t.Helper()
	o.Name = "test"
	found, err := engine.Probe(t.Context(), o)
	check(t, err)
	return found
}

// wantDenied checks which rights a probe misses; what has none misses none.
func wantDenied(t *testing.T, what string, rights engine.NeededRights, seats bool, publish, subscribe []string) *engine.Found {
	t.Helper()
	found := probe(t, engine.Options{URLs: newRoom(t, 1, as(rights)).asUser(), Seats: seats})
	if d := found.Denied; !slices.Equal(d.Publish, publish) || !slices.Equal(d.Subscribe, subscribe) || found.RightsErr != nil {
		t.Errorf("%s: denied are %+v, %v; want %q and %q", what, d, found.RightsErr, publish, subscribe)
	}
	return found
}

// Each right that is missing is named, and no other. With all of them the rest is looked at, and rights to
// the subjects that are used will do, in place of wider ones.
func TestProbeNamesEachMissingRight(t *testing.T) {
	t.Parallel()
	all, durable := engine.Rights("test", false), engine.Rights("test", true)
	found := wantDenied(t, "all rights", all, false, nil, nil)
	if found.JetStream != nil || found.Nodes.Err != nil || found.Players.Err != nil {
		t.Errorf("with all rights: %+v", found)
	}
	if found = wantDenied(t, "all rights for seats", durable, true, nil, nil); len(found.Seats) != cluster.SeatBuckets || found.Seats[7].Name != "test_seats_7" || found.Seats[7].Exists {
		t.Errorf("with all rights for seats: %+v", found)
	}
	for _, one := range all.Publish {
		wantDenied(t, "not to publish to "+one, engine.NeededRights{Publish: without(all, one).Publish, Subscribe: all.Subscribe}, false, []string{one}, nil)
	}
	for _, one := range all.Subscribe {
		wantDenied(t, "not to subscribe to "+one, engine.NeededRights{Publish: all.Publish, Subscribe: without(all, one).Subscribe}, false, nil, []string{one})
	}
	for _, one := range durable.Publish {
		if strings.HasSuffix(one, "_seats_3") || strings.HasSuffix(one, "_seats_3.>") {
			wantDenied(t, "with seats, without "+one, without(durable, one), true, []string{one}, nil)
			wantDenied(t, "without seats, without "+one, without(durable, one), false, nil, nil)
		}
	}
	narrow := engine.NeededRights{Publish: append(without(all, "test.>").Publish, "test.hb", "test.ev.*"), Subscribe: append(without(all, "test.>").Subscribe, "test.hb", "test.ev.*")}
	wantDenied(t, "narrower rights", narrow, false, nil, nil)
	narrow.Publish = append(without(durable, "test.>").Publish, "test.hb", "test.ev.*")
	wantDenied(t, "not to tell other nodes of claims", engine.NeededRights{Publish: narrow.Publish, Subscribe: durable.Subscribe}, true, []string{"test.>"}, nil)
}

// streams are all streams with what was ever written to them.
func (r *room) streams() (list []string) {
	r.Helper()
	infos := r.admin().ListStreams(r.Context())
	for info := range infos.Info() {
		list = append(list, fmt.Sprint(info.Config.Name, info.Config.Replicas, info.State.LastSeq, info.State.Msgs))
	}
	check(r.T, infos.Err())
	slices.Sort(list)
	return list
}

func TestProbeChangesNothing(t *testing.T) {
	t.Parallel()
	sizes(t, func(t *testing.T, r *room) {
		found := probe(t, engine.Options{URLs: r.urls()})
		if list := r.streams(); list != nil || found.Nodes.Exists || found.SkewKnown || found.JetStream != nil || found.Clustered != (len(r.servers) > 1) {
			t.Errorf("%+v; streams %v, want none", found, list)
		}
		e := r.engine()
		e.put("aaaaaaaa", "1")
		eventually(t, "the bucket has the record", func() bool { return len(probe(t, engine.Options{URLs: r.urls()}).Records) == 1 })
		before := r.streams()
		e.note(func() { clear(e.records); clear(e.beats) })
		found = probe(t, engine.Options{URLs: r.urls()})
		n := len(r.servers)
		if !found.Nodes.Exists || found.Nodes.Replicas != n || found.Players.Replicas != n || !found.SkewKnown || found.Skew.Abs() > time.Second || string(found.Records["aaaaaaaa"]) != "1" {
			t.Errorf("%+v", found)
		}
		for i, s := range found.Servers {
			if s.Err != nil || s.Version != server.VERSION || s.Name != fmt.Sprint("s", i) {
				t.Errorf("server %d: %+v", i, s)
			}
		}
		if after := r.streams(); !slices.Equal(before, after) {
			t.Errorf("streams %v became %v", before, after)
		}
		check(t, r.engine().Beat("bbbbbbbb")) // comes after all that the probe sent
		e.sees("the next heartbeat", func() bool { return e.beats["bbbbbbbb"] > 0 })
		e.note(func() {
			delete(e.beats, "bbbbbbbb")
			delete(e.beats, "") // cluster.Cluster takes no heartbeat without an id
			if len(e.records)+len(e.beats) > 0 {
				t.Errorf("a node has noticed the probe: %v %v", e.records, e.beats)
			}
		})
	})
}

func TestProbeSaysWhyNATSCannotBeUsed(t *testing.T) {
	t.Parallel()
	three := newRoom(t, 3, nil)
	three.stop(0)
	if found := probe(t, engine.Options{URLs: three.urls()}); found.Servers[0].Err == nil || found.Servers[1].Err != nil || found.Servers[2].Err != nil || !found.Reached() {
		t.Errorf("with the first server down: %+v", found.Servers)
	}
	without := newRoom(t, 1, func(o *server.Options) { o.JetStream = false })
	if found := probe(t, engine.Options{URLs: without.urls()}); found.JetStream == nil || len(found.Denied.Publish) > 0 {
		t.Errorf("without JetStream: %+v", found)
	}
	locked := newRoom(t, 1, as(engine.Rights("test", false)))
	if found := probe(t, engine.Options{URLs: locked.urls()}); found.Reached() || found.Servers[0].Err.Error() != "refuses the credentials" {
		t.Errorf("without a password: %+v", found.Servers)
	}
	r := newRoom(t, 1, nil)
	js := r.admin()
	_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "test_nodes"})
	check(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KV_test_players", Subjects: []string{"$KV.test_players.>"}})
	check(t, err)
	for i, c := range []jetstream.KeyValueConfig{ // others may lose seats, or keep marks for ever
		{Storage: jetstream.FileStorage, LimitMarkerTTL: time.Minute}, {Storage: jetstream.MemoryStorage, LimitMarkerTTL: time.Minute}, {Storage: jetstream.FileStorage},
	} {
		c.Bucket = fmt.Sprint("test_seats_", i)
		_, err := js.CreateKeyValue(t.Context(), c)
		check(t, err)
	}
	found := probe(t, engine.Options{URLs: r.urls(), Seats: true})
	if found.Nodes.Err != nil || found.Players.Err == nil {
		t.Errorf("a bucket of another's making is %v, a stream that is no bucket %v; want no error, and one", found.Nodes.Err, found.Players.Err)
	}
	for i, good := range []bool{true, false, false, true} {
		if (found.Seats[i].Err == nil) != good {
			t.Errorf("seats %d: %+v, want good: %v", i, found.Seats[i], good)
		}
	}
}

// newKey makes a key of a kind.
func newKey(t *testing.T, kind func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, public string, seed []byte) {
	t.Helper()
	pair, err := kind()
	check(t, err)
	public, err = pair.PublicKey()
	check(t, err)
	seed, err = pair.Seed()
	check(t, err)
	return pair, public, seed
}

// credentials is the name of a file with them.
type credentials string

func (c credentials) replace(t *testing.T, text []byte) {
	t.Helper()
	check(t, os.WriteFile(string(c), text, 0o600))
}

func newCredentials(t *testing.T, text []byte) credentials {
	t.Helper()
	c := credentials(filepath.Join(t.TempDir(), "creds"))
	c.replace(t, text)
	return c
}

// The seed of an nkey, and credentials with a JWT, each with exactly the rights that are needed.
func TestCredentialsOfBothKindsAreAccepted(t *testing.T) {
	t.Parallel()
	all := engine.Rights("test", false)
	_, user, seed := newKey(t, nkeys.CreateUser)
	withNkey := func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: user, Permissions: permissions(all)}} }
	operator, operatorKey, _ := newKey(t, nkeys.CreateOperator)
	account, accountKey, _ := newKey(t, nkeys.CreateAccount)
	_, systemKey, _ := newKey(t, nkeys.CreateAccount)
	withJWT := func(o *server.Options) {
		claims := jwt.NewAccountClaims(accountKey)
		claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		store := &server.MemAccResolver{}
		for public, c := range map[string]*jwt.AccountClaims{accountKey: claims, systemKey: jwt.NewAccountClaims(systemKey)} {
			token, err := c.Encode(operator)
			check(t, err)
			check(t, store.Store(public, token))
		}
		o.TrustedKeys, o.AccountResolver, o.SystemAccount = []string{operatorKey}, store, systemKey
	}
	claims := jwt.NewUserClaims(user)
	claims.Permissions.Pub.Allow, claims.Permissions.Sub.Allow = all.Publish, all.Subscribe
	token, err := claims.Encode(account)
	check(t, err)
	creds, err := jwt.FormatUserConfig(token, seed)
	check(t, err)
	for name, c := range map[string]struct {
		change func(*server.Options)
		text   []byte
	}{"nkey": {withNkey, append(seed, '\n')}, "JWT": {withJWT, creds}} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, 1, c.change)
			o := engine.Options{URLs: r.urls(), CredsFile: string(newCredentials(t, c.text))}
			e := newEngine(t, o)
			e.ready()
			e.put("aaaaaaaa", "1")
			if found := probe(t, o); found.Servers[0].Err != nil || len(found.Denied.Publish)+len(found.Denied.Subscribe) > 0 || string(found.Records["aaaaaaaa"]) != "1" {
				t.Errorf("%+v", found)
			}
			if nobody := probe(t, engine.Options{URLs: r.urls()}); nobody.Reached() {
				t.Errorf("without credentials: %+v", nobody)
			}
		})
	}
}

// With another nkey in its file an engine would be refused from the next reconnect on.
func TestAnotherNkeyIsNotTakenByReload(t *testing.T) {
	t.Parallel()
	_, user, seed := newKey(t, nkeys.CreateUser)
	_, _, other := newKey(t, nkeys.CreateUser)
	r := newRoom(t, 1, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: user}} })
	file := newCredentials(t, seed)
	e := newEngine(t, engine.Options{URLs: r.urls(), CredsFile: string(file)})
	e.ready()
	file.replace(t, other)
	if err := e.Reload(); err == nil || !strings.Contains(err.Error(), "another nkey takes effect at the next start") {
		t.Error(err)
	}
	r.restart(func() { eventually(t, "the engine is down", func() bool { return !e.Status().Up }) })
	e.ready() // as the user of before
	file.replace(t, seed)
	check(t, e.Reload())
}
