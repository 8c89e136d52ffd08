package engine

import (
	"slices"
	"strings"

	"reseat/gateway/cluster"
)

// NeededRights are the subjects that a node's NATS user may publish to and subscribe to, for an account
// that others use as well.
type NeededRights struct{ Publish, Subscribe []string }

// Publishes reports whether a subject is among those to publish to.
func (r NeededRights) Publishes(subject string) bool { return slices.Contains(r.Publish, subject) }

// Subscribes reports whether a subject is among those to subscribe to.
func (r NeededRights) Subscribes(subject string) bool { return slices.Contains(r.Subscribe, subject) }

// String is the rights in the form of a NATS server's configuration.
func (r NeededRights) String() string {
	list := func(subjects []string) string { return `["` + strings.Join(subjects, `", "`) + `"]` }
	return "permissions: {publish: " + list(r.Publish) + ", subscribe: " + list(r.Subscribe) + "}"
}

// Rights returns what the nodes of a cluster of this name need, those for durable sessions included or not.
func Rights(name string, seats bool) (r NeededRights) {
	publish, subscribe := rights(name, seats)
	for _, one := range publish {
		r.Publish = append(r.Publish, one.subject)
	}
	for _, one := range subscribe {
		r.Subscribe = append(r.Subscribe, one.subject)
	}
	return r
}

// A right is a subject that nodes need, and those by which Probe finds out whether they have it.
type right struct {
	subject string
	tried   []string
}

// probeKey is the key of records that Probe pretends to write.
const probeKey = "check"

// purge is the one request that would do something without a body.
const purge = "STREAM.PURGE"

func rights(name string, seats bool) (publish, subscribe []right) {
	publish = []right{
		{name + ".>", []string{name + ".hb", name + ".ev." + probeKey}},
		{"$JS.API.INFO", []string{"$JS.API.INFO"}},
	}
	subscribe = []right{
		{name + ".>", []string{name + ".hb", name + ".ev.*"}},
		{"_INBOX.>", []string{"_INBOX." + probeKey}},
		{"$KV." + name + "_nodes.>", []string{"$KV." + name + "_nodes.*"}},
	}
	for _, bucket := range []string{name + "_nodes", name + "_players"} {
		records, info, create, get := "$KV."+bucket+".", "$JS.API.STREAM.INFO.KV_"+bucket, "$JS.API.STREAM.CREATE.KV_"+bucket, "$JS.API.DIRECT.GET.KV_"+bucket
		publish = append(publish,
			right{records + ">", []string{records + probeKey}}, right{info, []string{info}}, right{create, []string{create}},
			right{get, []string{get}}, right{get + ".>", []string{get + "." + records + probeKey}})
	}
	for _, call := range []string{"STREAM.INFO", "STREAM.CREATE", purge, "DIRECT.GET"} {
		s := "$JS.API." + call + "." + name + "_events"
		publish = append(publish, right{s, []string{s}})
	}
	if seats {
		toNodes := name + ".n." + probeKey
		publish[0].tried, subscribe[0].tried = append(publish[0].tried, toNodes), append(subscribe[0].tried, toNodes)
	}
	for i := 0; i < cluster.SeatBuckets && seats; i++ {
		bucket := seatsBucket(name, i)
		records := "$KV." + bucket + "."
		publish = append(publish, right{records + ">", []string{records + probeKey}})
		for _, call := range []string{"STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET"} {
			s := "$JS.API." + call + ".KV_" + bucket
			publish = append(publish, right{s, []string{s}})
		}
	}
	return publish, subscribe
}
