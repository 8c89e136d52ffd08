package gateway

import (
	"fmt"

	"reseat/gateway/front"
	"reseat/gateway/registry"
	"reseat/upstream"
)

// restoreRecord registers a session that another process, or another node, has had, on route rt.
func (g *Gateway) restoreRecord(s *registry.State, rt *front.Route, terms *registry.Terms) (*registry.Record, error) {
	target := rt.Upstream
	if s.Target != "" {
		var err error
		if target.URL, err = upstream.ParseTarget(s.Target); err != nil {
			return nil, fmt.Errorf("session %s: %w", s.ID, err)
		}
	}
	var realm any
	if rt.Policy.Login != nil {
		realm = rt.Policy.Login.Realm()
	}
	e := g.reg.Restore(s, target, terms, realm, g.store)
	_, tag := e.Data()
	for old := g.tags.Load(); tag > old && !g.tags.CompareAndSwap(old, tag); old = g.tags.Load() {
	}
	return e, nil
}
