package admin

import (
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"reseat/gateway/control"
	"reseat/gateway/frame"
	"reseat/gateway/newest"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens/login"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	if !a.alone(r) {
		a.listAll(w, r)
		return
	}
	f, err := filter(r)
	if err != nil {
		refuse(w, err)
		return
	}
	page := struct {
		Sessions []registry.Snapshot `json:"sessions"`
		Next     string              `json:"next"`
	}{Sessions: []registry.Snapshot{}}
	list, next := a.sessions(f)
	page.Sessions = append(page.Sessions, list...)
	if next > 0 {
		page.Next = strconv.FormatUint(next, 10)
	}
	answer(w, http.StatusOK, page)
}

// sessions lists sessions of this node.
func (a *api) sessions(f registry.Filter) (list []registry.Snapshot, next uint64) {
	list, next = a.g.Control().Sessions(f)
	return a.named(list), next
}

// named sets the node of each session.
func (a *api) named(list []registry.Snapshot) []registry.Snapshot {
	if name := a.nodeName(); name != "" {
		for i := range list {
			list[i].Node = name
		}
	}
	return list
}

// filter parses the query of a list of one node's sessions.
func filter(r *http.Request) (registry.Filter, error) {
	f, err := filterOfAll(r)
	if s := r.URL.Query().Get("cursor"); err == nil && s != "" {
		var ok bool
		if f.After, ok = number(s); !ok {
			err = badCursor()
		}
	}
	return f, err
}

func badCursor() error { return badRequest("cursor: want the value of next from an earlier answer") }

// filterOfAll parses the query of a list, except for the cursor.
func filterOfAll(r *http.Request) (registry.Filter, error) {
	q := r.URL.Query()
	f := registry.Filter{Group: q.Get("group"), Player: q.Get("player"), State: q.Get("state"), Limit: defaultLimit}
	if s := q.Get("limit"); s != "" {
		n, ok := number(s)
		if !ok || n < 1 {
			return f, badRequest("limit: want 1 or more")
		}
		f.Limit = int(min(n, maxLimit)) // next shows that there are more
	}
	return f, checkState(f.State)
}

// checkState accepts the name of a state, or "" for all live sessions.
func checkState(s string) error {
	switch s {
	case "", "connecting", "attached", "detached", "ended":
		return nil
	}
	return badRequest("state: want connecting, attached, detached or ended")
}

// number parses digits, and nothing but digits.
func number(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64) // takes no sign
	return n, err == nil
}

func (a *api) get(w http.ResponseWriter, r *http.Request) {
	info, ok := a.g.Control().Session(id(r))
	if !ok {
		problem(w, http.StatusNotFound, noSession)
		return
	}
	info.Node = a.nodeName()
	answer(w, http.StatusOK, info)
}

func id(r *http.Request) string { return chi.URLParam(r, "id") }

func (a *api) patch(w http.ResponseWriter, r *http.Request) {
	change, err := readChange(w, r)
	if err != nil {
		refuse(w, err)
		return
	}
	info, o := a.g.Control().Patch(id(r), change)
	if o != control.Done {
		conflict := sessionEnded
		if now, _ := a.g.Control().Session(id(r)); o == control.Conflict && now.State != session.Ended.String() {
			conflict = "its client is detached, and its token would expire before this grace period ends"
		}
		outcome(w, o, conflict)
		return
	}
	info.Node = a.nodeName()
	answer(w, http.StatusOK, info)
}

func readChange(w http.ResponseWriter, r *http.Request) (c control.Change, err error) {
	var grace, overflow *string
	var rules *[]string
	err = readObject(w, r, map[string]any{"grace": &grace, "overflow": &overflow, "newest": &rules, "group": &c.Group, "started": &c.Started})
	if err != nil {
		return c, err
	}
	if c.Grace, err = readGrace(grace); err != nil {
		return c, err
	}
	if overflow != nil {
		policy, ok := session.ParseOverflow(*overflow)
		if !ok {
			return c, badRequest("overflow: want pause, drop-oldest or end")
		}
		c.Overflow = &policy
	}
	if rules != nil {
		parsed, err := newest.Parse(*rules)
		if err != nil {
			return c, badRequest("newest: %v", err)
		}
		c.Newest = &parsed
	}
	return c, readName("group", c.Group)
}

// readGrace parses a duration as --grace does.
func readGrace(s *string) (*time.Duration, error) {
	if s == nil {
		return nil, nil
	}
	d, err := time.ParseDuration(*s)
	if err != nil || d != 0 && (d < time.Millisecond || d > policy.MaxGrace) {
		return nil, badRequest("grace: want 0 or a duration from 1ms to 8760h, such as 45s")
	}
	return &d, nil
}

// maxName is the max length of a group's name in bytes.
const maxName = 200

// readPlayer checks a player's name by the same rule as a login. An empty one means none.
func readPlayer(s *string) error {
	if s == nil || *s == "" {
		return nil
	}
	if fault := login.PlayerFault(*s); fault != "" {
		return badRequest("player: it %s", fault)
	}
	return nil
}

// readName checks a group's name, which appears in logs and paths.
func readName(what string, s *string) error {
	if s == nil || frame.Clip(*s, maxName) == *s && printable(*s) {
		return nil
	}
	return badRequest("%s: want printable text of at most %d bytes, without blanks at its ends", what, maxName)
}

func (a *api) end(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	code := uint64(wire.CodeNormal)
	if s := q.Get("code"); s != "" {
		var ok bool
		if code, ok = number(s); !ok || code > 4999 || code == frame.NoStatus || !wire.ByeCode(int(code)) {
			problem(w, http.StatusBadRequest, "code: want 1000, 1001 or 3000 to 4999")
			return
		}
	}
	reason := q.Get("reason")
	if frame.Clip(reason, frame.MaxReason) != reason || !utf8.ValidString(reason) {
		problem(w, http.StatusBadRequest, "reason: want UTF-8 text of at most 123 bytes")
		return
	}
	outcome(w, a.g.Control().End(callOf(r).name, id(r), int(code), reason), sessionEnded)
}

func (a *api) disconnect(w http.ResponseWriter, r *http.Request) {
	outcome(w, a.g.Control().Disconnect(id(r)), "no client is attached")
}

const (
	noSession    = "no such session"
	sessionEnded = "the session has ended"
	dataMismatch = "the data does not match the condition in the header"
)

// outcome answers for a call without content; conflict is the detail of a 409.
func outcome(w http.ResponseWriter, o control.Outcome, conflict string) {
	switch o {
	case control.Unknown:
		problem(w, http.StatusNotFound, noSession)
	case control.Conflict:
		problem(w, http.StatusConflict, conflict)
	case control.Stale:
		problem(w, http.StatusPreconditionFailed, dataMismatch)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
