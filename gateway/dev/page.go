package dev

import (
	"bytes"
	"cmp"
	"log/slog"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxPage is the size in bytes beyond which a page passes unchanged.
const maxPage = 8 << 20

// servePage serves an ordinary request. A page gets the client's script, which brings the panel,
// unless it has one of the gateway's scripts: those bring it too. So does a whole page that a script
// fetches: a service worker keeps such pages, and answers with them.
func servePage(log *slog.Logger, w http.ResponseWriter, r *http.Request, next http.Handler) {
	visited := strings.Contains(r.Header.Get("Accept"), "text/html")
	fetched := r.Header.Get("Sec-Fetch-Dest") == "empty" && r.Header.Get("Range") == ""
	if r.Method != http.MethodGet || !visited && !fetched {
		next.ServeHTTP(w, r)
		return
	}
	in := r.Clone(r.Context())
	in.Header.Del("Accept-Encoding") // the answer must be the whole page, as it is
	if visited {
		for _, name := range []string{"If-None-Match", "If-Modified-Since", "Range", "If-Range"} {
			in.Header.Del(name)
		}
	}
	p := &page{ResponseWriter: w, visited: visited, pass: func(why string) {
		log.Warn("dev.page", "path", r.URL.Path, "text", "no panel: "+why+`; add to your page: <script src="//`+r.Host+`/reseat.install.js"></script>`)
	}}
	next.ServeHTTP(p, in)
	p.finish(log, r)
}

// A page holds an answer back if it is HTML.
type page struct {
	http.ResponseWriter
	visited       bool // else it may be a part of one
	decided, held bool
	html          bytes.Buffer
	pass          func(why string) // logs that a page passes unchanged
}

// Unwrap is for an http.ResponseController.
func (p *page) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(status int) {
	if status >= 200 && !p.decided {
		p.decided = true
		kind, _, _ := mime.ParseMediaType(p.Header().Get("Content-Type"))
		p.held = status == http.StatusOK && kind == "text/html"
		if p.visited && slices.Contains(pageless, status) {
			p.pass("the game server answers " + strconv.Itoa(status))
		}
		if encoding := p.Header().Get("Content-Encoding"); p.held && encoding != "" {
			p.held = false
			p.pass("the game server has encoded it (" + encoding + ") although the request did not allow that")
		}
	}
	if !p.held {
		p.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (p *page) Write(b []byte) (int, error) {
	if !p.decided {
		p.WriteHeader(http.StatusOK)
	}
	if !p.held {
		return p.ResponseWriter.Write(b)
	}
	p.html.Write(b)
	if p.html.Len() > maxPage {
		p.pass("it has more than " + strconv.Itoa(maxPage>>20) + " MiB")
		return len(b), p.release(p.html.Bytes())
	}
	return len(b), nil
}

// FlushError is for an http.ResponseController.
func (p *page) FlushError() error {
	if p.held {
		return nil
	}
	return http.NewResponseController(p.ResponseWriter).Flush()
}

func (p *page) release(html []byte) error {
	p.held = false
	p.ResponseWriter.WriteHeader(http.StatusOK)
	_, err := p.ResponseWriter.Write(html)
	return err
}

// finish sends what was held back.
func (p *page) finish(log *slog.Logger, r *http.Request) {
	if !p.held {
		return
	}
	html := p.html.Bytes()
	if !ownScript.Match(html) && (p.visited || document.Match(html)) {
		nonce, line := scriptAllowed(p.Header()["Content-Security-Policy"])
		if line != "" {
			log.Warn("dev.csp", "path", r.URL.Path, "text", "the page's Content-Security-Policy forbids the panel's script; add: "+line)
		}
		html = withScript(html, matching(r.Host)+nonce)
		h := p.Header()
		h.Del("ETag")
		h.Del("Last-Modified")
		h.Set("Content-Length", strconv.Itoa(len(html)))
	}
	p.release(html)
}

// pageless are the statuses with which servers that have WebSockets alone answer a visit.
var pageless = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusUpgradeRequired}

var (
	ownScript = regexp.MustCompile(`/reseat\.(install\.|dev\.)?js\b`)
	document  = regexp.MustCompile(`(?is)^[\s\x{feff}]*(?:<!--.*?-->\s*)*<(?:!doctype|html)\b`)
	nonceOf   = regexp.MustCompile(`'nonce-([A-Za-z0-9+/_=-]+)'`)
	// What a page begins with: comments, such as those for old browsers, its type, and the first tags.
	opening = regexp.MustCompile(`(?is)^[\s\x{feff}]*(?:<!--.*?-->|<[!?][^>]*>|<html(?:\s[^>]*)?>|(<head(?:\s[^>]*)?>))`)
)

var hostPort = regexp.MustCompile(`^(?:[\w.-]+|\[[0-9A-Fa-f:]+\])(:\d+)?$`)

// matching returns the attribute with which the script leaves sockets alone that are not for the gateway at host: a game
// server that it reaches directly may refuse them. A port stands for all names of this machine.
func matching(host string) string {
	found := hostPort.FindStringSubmatch(host)
	if found == nil {
		return ""
	}
	return ` data-match="` + cmp.Or(found[1], "//"+host) + `/"`
}

// withScript returns a page with the client's script before all others.
func withScript(html []byte, attributes string) []byte {
	script := `<script src="/reseat.install.js"` + attributes + `></script>`
	at := 0
	for {
		found := opening.FindSubmatchIndex(html[at:])
		if found == nil {
			break
		}
		at += found[1]
		if found[2] >= 0 {
			break
		}
	}
	return slices.Concat(html[:at], []byte(script), html[at:])
}

// scriptAllowed returns the attribute that the policies of a page want of its scripts, "" for none, and
// the source to add to a policy that allows no script of this address, "" if all do.
func scriptAllowed(policies []string) (nonce, line string) {
	for _, policy := range policies {
		directives := map[string]string{}
		for d := range strings.SplitSeq(policy, ";") {
			name, sources, _ := strings.Cut(strings.TrimSpace(d), " ")
			directives[strings.ToLower(name)] = sources
		}
		for _, name := range []string{"script-src-elem", "script-src", "default-src"} {
			sources, ok := directives[name]
			if !ok {
				continue
			}
			if found := nonceOf.FindStringSubmatch(sources); found != nil {
				nonce = ` nonce="` + found[1] + `"`
			} else if !slices.ContainsFunc(strings.Fields(sources), func(s string) bool { return s == "'self'" || s == "*" || s == "http:" || s == "https:" }) || strings.Contains(sources, "'strict-dynamic'") {
				line = strings.TrimSuffix(name, "-elem") + " 'self'"
			}
			break
		}
	}
	return nonce, line
}
