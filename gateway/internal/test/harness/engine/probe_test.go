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

	"reseat/gateway/cluster/engine"
)

func probe(t *testing.T, o engine.Options) *engine.Found {
	t.Helper()
	o.Name = "test"
	found, err := engine.Probe(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func without(list []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == one })
}

// as lets a server accept one user with some rights.
func as(r engine.NeededRights) func(*server.Options) {
	return func(o *server.Options) {
		o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: r.Publish}, Subscribe: &server.SubjectPermission{Allow: r.Subscribe},
		}}}
	}
}

func (r *room) asUser() []string {
	return []string{strings.Replace(r.urls()[0], "nats://", "nats://u:p@", 1)}
}

// Each right that is missing is named, and no other. With all of them the rest is looked at.
func TestProbeNamesEachMissingRight(t *testing.T) {
	all := engine.Rights("test", false)
	found := probe(t, engine.Options{URLs: newRoom(t, 1, as(all)).asUser()})
	if len(found.Denied.Publish)+len(found.Denied.Subscribe) > 0 || found.RightsErr != nil || found.JetStream != nil || found.Nodes.Err != nil || found.Players.Err != nil {
		t.Errorf("with all rights: %+v", found)
	}
	for _, one := range all.Publish {
		r := engine.NeededRights{Publish: without(all.Publish, one), Subscribe: all.Subscribe}
		d := probe(t, engine.Options{URLs: newRoom(t, 1, as(r)).asUser()}).Denied
		if !slices.Equal(d.Publish, []string{one}) || d.Subscribe != nil {
			t.Errorf("without %q to publish to, denied are %+v", one, d)
		}
	}
	for _, one := range all.Subscribe {
		d := probe(t, engine.Options{URLs: newRoom(t, 1, as(engine.NeededRights{Publish: all.Publish, Subscribe: without(all.Subscribe, one)})).asUser()}).Denied
		if !slices.Equal(d.Subscribe, []string{one}) || d.Publish != nil {
			t.Errorf("without %q to subscribe to, denied are %+v", one, d)
		}
	}
}

// Rights to the subjects that are used will do, in place of wider ones.
func TestProbeAcceptsNarrowerRights(t *testing.T) {
	r := engine.Rights("test", false)
	r.Publish = append(without(r.Publish, "test.>"), "test.hb", "test.ev.*")
	r.Subscribe = append(without(r.Subscribe, "test.>"), "test.hb", "test.ev.*")
	if d := probe(t, engine.Options{URLs: newRoom(t, 1, as(r)).asUser()}).Denied; d.Publish != nil || d.Subscribe != nil {
		t.Errorf("denied are %+v", d)
	}
}

// streams are all streams with what was ever written to them.
func (r *room) streams() (list []string) {
	r.Helper()
	infos := r.admin().ListStreams(r.Context())
	for info := range infos.Info() {
		list = append(list, fmt.Sprint(info.Config.Name, info.Config.Replicas, info.State.LastSeq, info.State.Msgs))
	}
	if infos.Err() != nil {
		r.Fatal(infos.Err())
	}
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
		e.Beat("aaaaaaaa")
		other := r.engine()
		other.Beat("bbbbbbbb") // comes after all that the probe sent
		eventually(t, "the next heartbeat is heard", e.sees(func() bool { return e.beats["bbbbbbbb"] > 0 }))
		e.note(func() {
			delete(e.beats, "bbbbbbbb")
			delete(e.beats, "") // cluster.Cluster takes no heartbeat without an id
			if len(e.records)+len(e.beats) > 0 {
				t.Errorf("a node has noticed the probe: %v %v", e.records, e.beats)
			}
		})
	})
}

func TestProbeSaysWhichServerIsDown(t *testing.T) {
	r := newRoom(t, 3, nil)
	r.stop(0)
	found := probe(t, engine.Options{URLs: r.urls()})
	if found.Servers[0].Err == nil || found.Servers[1].Err != nil || found.Servers[2].Err != nil || !found.Reached() {
		t.Errorf("%+v", found.Servers)
	}
}

func TestProbeSaysWhyNATSCannotBeUsed(t *testing.T) {
	r := newRoom(t, 1, func(o *server.Options) { o.JetStream = false })
	if found := probe(t, engine.Options{URLs: r.urls()}); found.JetStream == nil || len(found.Denied.Publish) > 0 {
		t.Errorf("without JetStream: %+v", found)
	}
	r = newRoom(t, 1, as(engine.Rights("test", false)))
	if found := probe(t, engine.Options{URLs: r.urls()}); found.Reached() || found.Servers[0].Err.Error() != "refuses the credentials" {
		t.Errorf("without a password: %+v", found.Servers)
	}
	r = newRoom(t, 1, nil)
	if _, err := r.admin().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "test_nodes"}); err != nil {
		t.Fatal(err)
	}
	if found := probe(t, engine.Options{URLs: r.urls()}); found.Nodes.Err != nil || found.Players.Exists {
		t.Errorf("a bucket of another's making: %+v", found)
	}
	if _, err := r.admin().CreateStream(t.Context(), jetstream.StreamConfig{Name: "KV_test_players", Subjects: []string{"$KV.test_players.>"}}); err != nil {
		t.Fatal(err)
	}
	if found := probe(t, engine.Options{URLs: r.urls()}); found.Players.Err == nil {
		t.Errorf("a stream that is no bucket: %+v", found)
	}
}

// The seed of an nkey, and credentials with a JWT, each with exactly the rights that are needed.
func TestCredentialsOfBothKindsAreAccepted(t *testing.T) {
	key := func(make func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, public string, seed []byte) {
		t.Helper()
		pair, err := make()
		if err == nil {
			public, err = pair.PublicKey()
		}
		if err == nil {
			seed, err = pair.Seed()
		}
		if err != nil {
			t.Fatal(err)
		}
		return pair, public, seed
	}
	file := func(text []byte) string {
		name := filepath.Join(t.TempDir(), "creds")
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	all := engine.Rights("test", false)
	_, user, seed := key(nkeys.CreateUser)
	withNkey := func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: user, Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: all.Publish}, Subscribe: &server.SubjectPermission{Allow: all.Subscribe}}}}
	}
	operator, operatorKey, _ := key(nkeys.CreateOperator)
	account, accountKey, _ := key(nkeys.CreateAccount)
	withJWT := func(o *server.Options) {
		claims := jwt.NewAccountClaims(accountKey)
		claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		_, systemKey, _ := key(nkeys.CreateAccount)
		store := &server.MemAccResolver{}
		for public, c := range map[string]*jwt.AccountClaims{accountKey: claims, systemKey: jwt.NewAccountClaims(systemKey)} {
			token, err := c.Encode(operator)
			if err == nil {
				err = store.Store(public, token)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		o.TrustedKeys, o.AccountResolver, o.SystemAccount = []string{operatorKey}, store, systemKey
	}
	claims := jwt.NewUserClaims(user)
	claims.Permissions.Pub.Allow, claims.Permissions.Sub.Allow = all.Publish, all.Subscribe
	token, err := claims.Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*server.Options)
		file   string
	}{"nkey": {withNkey, file(append(seed, '\n'))}, "JWT": {withJWT, file(creds)}} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, 1, c.change)
			o := engine.Options{URLs: r.urls(), CredsFile: c.file}
			e := newEngine(t, o)
			e.ready()
			e.put("aaaaaaaa", "1")
			found := probe(t, o)
			if found.Servers[0].Err != nil || len(found.Denied.Publish)+len(found.Denied.Subscribe) > 0 || string(found.Records["aaaaaaaa"]) != "1" {
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
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	user, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	other, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	otherSeed, err := other.Seed()
	if err != nil {
		t.Fatal(err)
	}
	r := newRoom(t, 1, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: user}} })
	name := filepath.Join(t.TempDir(), "seed")
	replace := func(text []byte) {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace(seed)
	e := newEngine(t, engine.Options{URLs: r.urls(), CredsFile: name})
	e.ready()
	replace(otherSeed)
	if err := e.Reload(); err == nil || !strings.Contains(err.Error(), "another nkey takes effect at the next start") {
		t.Error(err)
	}
	r.stop(0)
	eventually(t, "the engine is down", func() bool { return !e.Status().Up })
	r.start(0)
	e.ready() // as the user of before
	replace(seed)
	if err := e.Reload(); err != nil {
		t.Error(err)
	}
}
