package admin

import (
	"errors"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"reseat/gateway"
	"reseat/gateway/wire"
	"reseat/upstream"
)

// maxSubprotocols is the max number that a session may offer to its game server.
const maxSubprotocols = 64

// create answers with the id and token of a new session, which a client then resumes.
func (a *api) create(w http.ResponseWriter, r *http.Request) {
	req, err := readCreateRequest(w, r)
	if err != nil {
		refuse(w, err)
		return
	}
	id, token, err := a.g.Create(r.Context(), callOf(r).visit, req)
	if err != nil {
		createProblem(err).write(w)
		return
	}
	callOf(r).created = id
	w.Header().Set("Location", "/api/v1/sessions/"+id)
	answer(w, http.StatusCreated, struct {
		ID    string `json:"id"`
		Token string `json:"token"`
	}{id, token})
}

func readCreateRequest(w http.ResponseWriter, r *http.Request) (gateway.CreateRequest, error) {
	var req gateway.CreateRequest
	var path, target, player, group, grace *string
	var data textOrJSON
	err := readObject(w, r, map[string]any{
		"path": &path, "upstream": &target, "subprotocols": &req.Subprotocols,
		"player": &player, "group": &group, "data": &data, "grace": &grace,
	})
	if err != nil {
		return req, err
	}
	if path == nil {
		return req, badRequest("path: want one such as /match/7, got none")
	}
	if req.Grace, err = readGrace(grace); err != nil {
		return req, err
	}
	if data.text != nil {
		if len(*data.text) > gateway.MaxData {
			return req, dataTooLarge()
		}
		req.Data = []byte(*data.text)
	}
	req.Path, req.Upstream, req.Player, req.Group = *path, valueOrEmpty(target), valueOrEmpty(player), valueOrEmpty(group)
	return req, errors.Join(readPlayer(player), readName("group", group), checkOffer(req.Subprotocols))
}

// valueOrEmpty returns *s, "" if s is nil.
func valueOrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// checkOffer refuses subprotocols that cannot be offered, and those of the gateway itself:
// the caller would miss them if they were silently left out.
func checkOffer(protocols []string) error {
	if len(protocols) > maxSubprotocols {
		return badRequest("subprotocols: want at most %d, got %d", maxSubprotocols, len(protocols))
	}
	for _, p := range protocols {
		if !httpguts.ValidHeaderFieldName(p) || p == wire.Subprotocol || strings.HasPrefix(p, "reseat.") {
			return badRequest("subprotocols: %.100q cannot be offered to a game server", p)
		}
	}
	return nil
}

// printable reports whether s is safe to display: printable, without surrounding blanks.
func printable(s string) bool {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	return utf8.ValidString(s) && strings.TrimSpace(s) == s && !strings.ContainsFunc(s, odd)
}

// createProblem maps an error of Gateway.Create to the answer.
func createProblem(err error) details {
	d := details{Status: http.StatusInternalServerError, Detail: err.Error()}
	var refusal *upstream.Refusal
	var dial *upstream.Error
	switch {
	case errors.Is(err, gateway.ErrBadRequest):
		d.Status = http.StatusBadRequest
	case errors.Is(err, gateway.ErrNotAllowed):
		d.Status = http.StatusForbidden
	case errors.Is(err, gateway.ErrNoRoute):
		d.Status = http.StatusNotFound
	case errors.Is(err, gateway.ErrDuplicate):
		d.Status = http.StatusConflict
	case errors.Is(err, gateway.ErrBusy):
		d.Status = http.StatusServiceUnavailable
	case errors.As(err, &refusal):
		refusal.Body.Close()
		d.Status, d.Upstream = http.StatusBadGateway, refusal.Status
	case errors.As(err, &dial) && dial.Kind == upstream.Canceled:
		d.Status, d.Detail = http.StatusConflict, "the session was ended during the dial to its game server"
	case errors.As(err, &dial):
		d.Status = upstream.Status(err)
	}
	return d
}
