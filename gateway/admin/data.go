package admin

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"reseat/gateway"
	"reseat/gateway/control"
)

func dataTooLarge() error {
	return &fault{http.StatusRequestEntityTooLarge, fmt.Sprintf("data: want at most %d bytes", gateway.MaxData)}
}

// data returns the data that the game server keeps with a session. Its type is always
// application/octet-stream, so that no browser interprets it.
func (a *api) data(w http.ResponseWriter, r *http.Request) {
	data, tag, o := a.g.Control().Data(id(r))
	switch {
	case o == control.Unknown:
		problem(w, http.StatusNotFound, noSession)
		return
	case o != control.Done:
		problem(w, http.StatusNotFound, sessionEnded+", and its data was deleted")
		return
	case data == nil:
		problem(w, http.StatusNotFound, "no data is kept with this session")
		return
	}
	when, err := readConditions(r.Header)
	switch {
	case err != nil:
		refuse(w, err)
		return
	case !when.match(tag):
		problem(w, http.StatusPreconditionFailed, dataMismatch)
		return
	}
	w.Header().Set("ETag", etag(tag))
	w.Header().Set("Cache-Control", "no-cache")
	if when.none(tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Write(data)
}

// setData replaces that data, if the conditions hold: two game servers may write it.
func (a *api) setData(w http.ResponseWriter, r *http.Request) {
	when, err := readConditions(r.Header)
	if err != nil {
		refuse(w, err)
		return
	}
	body, err := readBody(w, r, gateway.MaxData)
	if err != nil {
		refuse(w, err)
		return
	}
	tag, o := a.g.Control().SetData(id(r), body, func(tag uint64) bool { return when.match(tag) && !when.none(tag) })
	if o == control.Done {
		w.Header().Set("ETag", etag(tag))
	}
	outcome(w, o, sessionEnded)
}

// etag formats the tag of a session's data. Zero means no data and has no entity tag.
func etag(tag uint64) string { return `"` + strconv.FormatUint(tag, 36) + `"` }

// conditions are If-Match and If-None-Match: RFC 9110 section 13.1. Nil: not given.
type conditions struct{ ifMatch, ifNoneMatch []string }

// match reports whether If-Match holds; tag zero means no data.
func (c conditions) match(tag uint64) bool {
	return c.ifMatch == nil || tag > 0 && holds(c.ifMatch, etag(tag))
}

// none reports whether If-None-Match forbids the request.
func (c conditions) none(tag uint64) bool {
	if tag == 0 {
		return false
	}
	own := etag(tag)
	return holds(c.ifNoneMatch, own) || holds(c.ifNoneMatch, "W/"+own) // weak comparison
}

func holds(list []string, own string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, own)
}

func readConditions(h http.Header) (c conditions, err error) {
	if c.ifMatch, err = readTags(h, "If-Match"); err == nil {
		c.ifNoneMatch, err = readTags(h, "If-None-Match")
	}
	return c, err
}

const tagSyntax = `(?:W/)?"[^"]*"`

var (
	oneTag  = regexp.MustCompile(tagSyntax)
	tagList = regexp.MustCompile(`^` + tagSyntax + `(?:[ \t]*,[ \t,]*` + tagSyntax + `)*(?:[ \t]*,[ \t,]*)?$`)
)

// readTags parses * or a list of entity tags: RFC 9110 sections 8.8.3 and 13.1.
func readTags(h http.Header, name string) ([]string, error) {
	values := h.Values(name)
	list := strings.TrimSpace(strings.Join(values, ","))
	switch {
	case len(values) == 0:
		return nil, nil
	case list == "*":
		return []string{"*"}, nil
	case !tagList.MatchString(list):
		return nil, badRequest(`%s: want * or tags such as "5k", in their quotes`, name)
	}
	return oneTag.FindAllString(list, -1), nil
}
