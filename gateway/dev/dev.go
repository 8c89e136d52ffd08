// Package dev is what --dev adds at the client address: the panel's script in pages, and what the
// panel asks. It stands in front of the gateway, which does not know it.
package dev

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"

	"reseat/gateway"
	"reseat/gateway/faults"
	"reseat/gateway/handshake"
	"reseat/gateway/registry"
	"reseat/gateway/wire"
	"reseat/tokens"
	"reseat/tokens/keyfile"
	"reseat/web"
)

// The paths that the panel asks.
const (
	faultsPath  = "/reseat.dev/faults"
	sessionPath = "/reseat.dev/session"
)

// TokenHeader carries a token of --dev-token-file.
const TokenHeader = "Reseat-Dev"

const (
	maxBody   = 1 << 10
	maxTokens = 64 << 10 // bytes of the file
)

// Options configure the handlers. Tokens may be nil.
type Options struct {
	Gateway *gateway.Gateway
	Lines   *faults.Lines
	Keys    *tokens.Keys
	Origins []string // --origin: whose pages may ask
	Tokens  Tokens
	// Pages: the client's scripts bring the panel along, and pages that are proxied get them. Else
	// the demo's page alone has the panel.
	Pages bool
	// Others returns the addresses of the other nodes that may serve a page's session; nil outside a cluster.
	Others func(r *http.Request, session string) []string
	Log    *slog.Logger
}

// Tokens are the hashes of the tokens in --dev-token-file.
type Tokens [][sha256.Size]byte

// LoadTokens reads a file with one token a line. Without a name it returns nil.
func LoadTokens(file string) (list Tokens, err error) {
	if file == "" {
		return nil, nil
	}
	raw, err := keyfile.Read(file, maxTokens)
	if err != nil {
		return nil, fmt.Errorf("--dev-token-file: want a file of tokens, got %.100q: %w", file, err)
	}
	for token := range strings.FieldsSeq(string(raw)) {
		list = append(list, sha256.Sum256([]byte(token)))
	}
	if len(list) == 0 {
		return nil, errors.New("--dev-token-file: want a token, got an empty file")
	}
	return list, nil
}

// knows reports whether token is in the list, in constant time.
func (t Tokens) knows(token string) bool {
	hash, found := sha256.Sum256([]byte(token)), 0
	for _, own := range t {
		found |= subtle.ConstantTimeCompare(hash[:], own[:])
	}
	return found == 1
}

// Serve adds the panel, and what it asks, to the pages of the gateway.
func Serve(o Options) {
	for p, h := range web.Panel() {
		o.Gateway.Page(p, h)
	}
	if o.Pages {
		for p, h := range web.WithPanel() {
			o.Gateway.Page(p, h)
		}
	}
	o.Gateway.Page(faultsPath, o.asked(o.faults))
	o.Gateway.Page(sessionPath, o.asked(o.session))
}

// asked passes on what a page asks about a session of its own: it shows the session's resume token,
// which the gateway has given to that page alone. Pages of an origin that may connect may ask.
func (o *Options) asked(serve func(w http.ResponseWriter, r *http.Request, session string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		h.Set("Cache-Control", "no-store")
		if !handshake.OriginAllowed(o.Origins, r.Header, handshake.Target{Host: r.Host, Secure: r.TLS != nil}) {
			http.Error(w, "this Origin is not allowed here; see --origin", http.StatusForbidden)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, "+TokenHeader)
			h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if o.Tokens != nil && !o.Tokens.knows(r.Header.Get(TokenHeader)) {
			http.Error(w, "want a token of --dev-token-file in "+TokenHeader, http.StatusForbidden)
			return
		}
		session := o.shown(r.Header.Get("Authorization"))
		if session == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "want the resume token of a session", http.StatusUnauthorized)
			return
		}
		visit := o.Gateway.Enter()
		if visit == nil {
			http.Error(w, "an upgrade is under way", http.StatusServiceUnavailable)
			return
		}
		defer visit.Leave()
		serve(w, r, session)
	})
}

// shown returns what a page has shown to be its own: a session, by its resume token, or its plain
// clients, by the key that it has put into their URLs; "" for neither.
func (o *Options) shown(authorization string) string {
	switch scheme, proof, _ := strings.Cut(authorization, " "); strings.ToLower(scheme) {
	case "bearer":
		if claims, err := o.Keys.Verify(proof); err == nil {
			return claims.Session
		}
	case "page":
		if pageKey.MatchString(proof) {
			return pagePrefix + proof
		}
	}
	return ""
}

// pageKey is the form of a page's key: 128 random bits.
var pageKey = regexp.MustCompile(`^[0-9a-f]{32}$`)

const (
	pagePrefix = "page " // of the names of lines: no session's id has a blank
	pageParam  = "reseat.dev"
)

// withoutKey returns r without the key of its page, and that key, "" if it has none.
func withoutKey(r *http.Request) (*http.Request, string) {
	target, query, _ := strings.Cut(r.RequestURI, "?")
	var rest []string
	key := ""
	for part := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(part, "="); name == pageParam && pageKey.MatchString(value) {
			key = value
		} else {
			rest = append(rest, part)
		}
	}
	if key == "" {
		return r, ""
	}
	out := r.WithContext(r.Context())
	to := *r.URL
	to.RawQuery = strings.Join(rest, "&")
	out.URL, out.RequestURI = &to, target
	if to.RawQuery != "" {
		out.RequestURI += "?" + to.RawQuery
	}
	return out, key
}

// faults begins a fault of a session, ends all of them, or says alone whether this node seems to be lost:
// the control API or a rehearsal may have begun that.
func (o *Options) faults(w http.ResponseWriter, r *http.Request, session string) {
	var others []string
	switch r.Method {
	case http.MethodGet:
	case http.MethodDelete:
		o.Lines.Clear(session)
	case http.MethodPost:
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		var f faults.Fault
		if err == nil {
			f, err = faults.Parse(body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if f.Name == faults.Node && o.Others != nil {
			if others = o.Others(r, session); len(others) == 0 {
				http.Error(w, "no other node answers that allows this page's origin", http.StatusConflict)
				return
			}
		}
		if err = o.Lines.Apply(session, f); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		o.Log.Info("dev.fault", "session", session, "fault", f.Name, "for", f.Lasts())
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	left := o.Lines.Lost(session)
	if left > 0 && others == nil && o.Others != nil {
		others = o.Others(r, session)
	}
	if left <= 0 || len(others) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	writeJSON(w, map[string]any{"nodes": others, "ms": left.Milliseconds()}) // the page goes there, as a load balancer would lead it
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// session describes a session, as the control API does, with settings, and says whether its game server can
// be restarted, and its node lost.
func (o *Options) session(w http.ResponseWriter, _ *http.Request, session string) {
	c := o.Gateway.Control()
	s, ok := c.Session(session)
	p := c.Terms(session)
	if !ok || p == nil { // it is at another node, or over
		w.WriteHeader(http.StatusNoContent)
		return
	}
	writeJSON(w, struct {
		registry.Snapshot
		Heartbeat        string `json:"heartbeat"`
		AnswerTimeout    string `json:"answer_timeout"`
		KeepaliveReplies int    `json:"keepalive_replies"` // how many are set
		Keepalives       int    `json:"keepalives"`
		Restart          bool   `json:"restart"`
		Cluster          bool   `json:"cluster"`
	}{s, registry.FormatDuration(p.Heartbeat), registry.FormatDuration(p.AnswerTimeout), len(p.KeepaliveReplies), len(p.Keepalives), o.Lines.CanRestart(), o.Lines.CanLoseNode()})
}

// Front returns next with the panel's script in the pages that it serves. It holds up the resumes of
// a session that is offline.
func Front(o Options, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if handshake.Requested(r) {
			r, key := withoutKey(r)
			line := o.shown("bearer " + wire.ParseOffer(r.Header).Token)
			if key != "" {
				line = pagePrefix + key
			}
			if line != "" && !o.Lines.Admit(r.Context(), line) {
				panic(http.ErrAbortHandler) // nobody is there
			}
			next.ServeHTTP(w, r)
			return
		}
		if o.Pages {
			servePage(o.Log, w, r, next)
		} else {
			next.ServeHTTP(w, r)
		}
	})
}
