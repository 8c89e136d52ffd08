package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/cluster/engine"
	"reseat/gateway/config"
	"reseat/gateway/session"
	"reseat/tokens"
)

// cluster looks at NATS and at the other nodes. It joins nothing, and changes nothing in NATS.
func (r *report) cluster(ctx context.Context, set *config.Settings) {
	c := set.Cluster
	if !c.Enabled() {
		return
	}
	r.durable(set)
	o := engineOptions(c, slog.New(slog.DiscardHandler))
	o.Seats = set.Durable()
	found, err := engine.Probe(ctx, o)
	if found == nil {
		r.say("NATS", "", 2, err)
	} else {
		r.nats(found)
		r.rights(found, engine.Rights(c.Name, o.Seats))
	}
	keys, err := tokens.Load(set.TokenKeyFiles, tokens.Options{Audience: set.TokenAudience})
	if err != nil {
		return // already reported
	}
	address, identity := advertise(c, c.Listen), cluster.DerivedIdentity(keys.Derive)
	node, err := cluster.New(cluster.Config{
		Name: c.Name, NodeName: nameOf(c), Address: address, Version: config.Version(), Formats: session.Formats, Identity: identity, Derive: keys.Derive, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.say("certificate of the node", "", 2, err)
		return
	}
	r.say("certificate of the node", "derived from --token-key-file", 1, nil)
	r.ownAddress(ctx, node, address)
	if found != nil {
		r.otherNodes(ctx, node, address, found)
	}
}

// durable says what the game servers of durable routes must do: nothing here can find out whether they do.
func (r *report) durable(set *config.Settings) {
	var list []string
	for _, route := range set.Gateway.Routes {
		if route.Policy.Durable {
			list = append(list, route.Pattern)
		}
	}
	if len(list) > 0 {
		r.say("--durable "+strings.Join(list, ", "), "cannot be tried: the game server must take a further request with the same Reseat-Session as the same player, "+
			"and ignore connections with a lower Reseat-Epoch (docs/sessions.md)", 0, nil)
	}
}

// nats reports which servers there are, and what is kept there.
func (r *report) nats(f *engine.Found) {
	for _, s := range f.Servers {
		r.say("--cluster "+s.URL, "NATS "+s.Version, 1, s.Err)
	}
	if !f.Reached() || f.RightsErr != nil {
		return
	}
	r.say("JetStream", "on", 1, f.JetStream)
	if f.JetStream != nil {
		return
	}
	r.buckets(f.Clustered, "a lost NATS server loses the directory, until the nodes have written it again", f.Nodes, f.Players)
	r.buckets(f.Clustered, "while it is down, durable sessions of lost nodes are lost as well", f.Seats...)
	r.clock(f)
}

// buckets reports on buckets of one kind, in one line if they are alike. alone is what one replica means.
func (r *report) buckets(clustered bool, alone string, list ...engine.FoundBucket) {
	switch alike := func(b engine.FoundBucket) bool {
		return b.Err == nil && b.Exists == list[0].Exists && b.Replicas == list[0].Replicas
	}; {
	case len(list) == 0:
	case !slices.ContainsFunc(list, func(b engine.FoundBucket) bool { return !alike(b) }):
		last := list[len(list)-1].Name
		what := "buckets " + list[0].Name + " and " + last
		if len(list) > 2 {
			what = "buckets " + list[0].Name + " to " + last
		}
		r.bucket(clustered, alone, what, list[0])
	default:
		for _, b := range list {
			r.bucket(clustered, alone, "bucket "+b.Name, b)
		}
	}
}

func (r *report) bucket(clustered bool, alone, what string, b engine.FoundBucket) {
	switch {
	case b.Err != nil:
		r.say(what, "", 1, b.Err)
	case !b.Exists && clustered:
		r.say(what, "not there yet: the first node makes them, with up to 3 replicas", 1, nil)
	case !b.Exists:
		r.warn(what, "not there yet: the first node makes them. There is one NATS server, so they get 1 replica: "+alone)
	case b.Replicas == 1:
		r.warn(what, "1 replica: "+alone)
	case b.Replicas == 2:
		r.warn(what, "2 replicas: while one of the two servers is down nothing can be written. Use three servers")
	default:
		r.say(what, plural(b.Replicas, "replica"), 1, nil)
	}
}

func (r *report) clock(f *engine.Found) {
	skew := f.Skew.Round(time.Millisecond)
	offset := fmt.Sprintf("%v ahead of the NATS server's", skew)
	if skew < 0 {
		offset = fmt.Sprintf("%v behind the NATS server's", -skew)
	}
	switch {
	case !f.SkewKnown:
		r.say("clock", "not compared: NATS reports its time once the first node has made its bucket", 1, nil)
	case skew.Abs() >= cluster.SkewRefusal:
		r.say("clock", "", 1, fmt.Errorf("%s: from %v on a node may not join", offset, cluster.SkewRefusal))
	case skew.Abs() >= cluster.SkewWarning:
		r.warn("clock", offset+": set it by NTP")
	default:
		r.say("clock", offset, 1, nil)
	}
}

// rights reports which rights are missing, and which a user needs that may do nothing else.
func (r *report) rights(f *engine.Found, all engine.NeededRights) {
	for _, s := range f.Denied.Publish {
		r.say("NATS user", "", 1, fmt.Errorf("may not publish to %q", s))
	}
	for _, s := range f.Denied.Subscribe {
		r.say("NATS user", "", 1, fmt.Errorf("may not subscribe to %q", s))
	}
	switch lacks := len(f.Denied.Publish) + len(f.Denied.Subscribe); {
	case f.RightsErr != nil:
		r.say("NATS user", "", 1, f.RightsErr)
	case lacks == 0 && f.Reached():
		r.say("NATS user", "has all rights that a node needs", 1, nil)
	}
	r.say("rights of a NATS user that is for nodes alone", all.String(), 1, nil)
}

// ownAddress asks the process that listens where other nodes would connect to this one.
func (r *report) ownAddress(ctx context.Context, node *cluster.Cluster, address string) {
	what := "--node-advertise " + address
	if strings.HasSuffix(address, ":0") {
		r.say(what, "the port is chosen at the start", 1, nil)
		return
	}
	h, err := node.Ask(ctx, address)
	own := node.Hello()
	switch {
	case err == nil && h.Cluster == own.Cluster && h.Name != own.Name:
		r.warn(what, fmt.Sprintf("node %s listens there, not %s: each node needs an address of its own", h.Name, own.Name))
	case err == nil:
		r.say(what, fmt.Sprintf("node %s listens there, version %s", h.Name, h.Version), 1, sameCluster(h, node))
	case cluster.ConnectionRefused(err):
		r.say(what, "reachable, and nobody listens there yet", 1, nil)
	default:
		r.say(what, "", 1, unreached(err))
	}
}

// otherNodes asks all nodes that NATS knows.
func (r *report) otherNodes(ctx context.Context, node *cluster.Cluster, own string, f *engine.Found) {
	if f.Reached() && f.Nodes.Exists && f.RecordsErr != nil {
		r.say("other nodes", "", 1, f.RecordsErr)
	}
	const maxStrangers = 16
	strangers, ignored, such := 0, 0, ""
	for id, value := range f.Records {
		switch err := node.Stored(id, value); {
		case cluster.OtherKeys(err) && strangers < maxStrangers: // it says so itself
			strangers++
			node.Record(id, value)
		case err != nil:
			ignored++
			such = fmt.Sprintf("that of %.20q: %v", id, err)
		}
	}
	if ignored > 0 {
		r.warn("records of nodes", fmt.Sprintf("%d not written by a node of this version with these keys, such as %s", ignored, such))
	}
	const atOnce = 16
	nodes := node.Nodes()[1:]
	answers := make([]error, len(nodes))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, n := range nodes {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			h, err := node.Ask(ctx, n.Address)
			switch {
			case err != nil:
				answers[i] = unreached(err)
			case h.ID != n.ID:
				answers[i] = fmt.Errorf("node %s (%s) answers there", h.Name, h.ID)
			default:
				answers[i] = sameCluster(h, node)
			}
		})
	}
	all.Wait()
	for i, n := range nodes {
		if n.Address != own && n.State != cluster.StateGone {
			r.say(fmt.Sprintf("node %s at %s", n.Name, n.Address), fmt.Sprintf("%s, version %s", n.State, n.Version), 1, answers[i])
		}
	}
}

// sameCluster reports a node of another cluster: it has the same keys, and another --cluster-name.
func sameCluster(h cluster.Hello, node *cluster.Cluster) error {
	if own := node.Hello().Cluster; h.Cluster != own {
		return fmt.Errorf("node %s listens there, of another cluster: %.40q, not %q", h.Name, h.Cluster, own)
	}
	return nil
}

// unreached names why a node does not answer.
func unreached(err error) error {
	switch {
	case cluster.OtherKeys(err):
		return fmt.Errorf("other keys: do all nodes have the same --token-key-file? (%v)", err)
	case strings.Contains(err.Error(), "deadline exceeded"), strings.Contains(err.Error(), "i/o timeout"):
		return fmt.Errorf("no answer: does a firewall, or a network policy, let other nodes connect?")
	}
	return err
}
