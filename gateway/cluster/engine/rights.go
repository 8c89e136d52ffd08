package engine

// NeededRights are the subjects that a node's NATS user may publish to and subscribe to, for an account
// that others use as well.
type NeededRights struct{ Publish, Subscribe []string }

// Rights returns what the nodes of a cluster of this name need.
func Rights(name string) NeededRights {
	r := NeededRights{Publish: []string{name + ".>", "$JS.API.INFO"}, Subscribe: []string{name + ".>", "_INBOX.>", "$KV." + name + "_nodes.>"}}
	for _, bucket := range []string{name + "_nodes", name + "_players"} {
		r.Publish = append(r.Publish,
			"$KV."+bucket+".>", "$JS.API.STREAM.INFO.KV_"+bucket, "$JS.API.STREAM.CREATE.KV_"+bucket,
			"$JS.API.DIRECT.GET.KV_"+bucket, "$JS.API.DIRECT.GET.KV_"+bucket+".>")
	}
	stream := name + "_events"
	for _, call := range []string{"STREAM.INFO", "STREAM.CREATE", "STREAM.PURGE", "DIRECT.GET"} {
		r.Publish = append(r.Publish, "$JS.API."+call+"."+stream)
	}
	return r
}
