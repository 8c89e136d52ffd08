package admin

import (
	"errors"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"reseat/gateway"
	"reseat/gateway/wire"
	"reseat/upstream"
)

// maxSubprotocols is how many a session may offer to its game server.
const maxSubprotocols = 64

func (a *api) create(w http.ResponseWriter, r *http.Request) {
	wish, err := readWish(w, r)
	if err != nil {
		refuse(w, err)
		return
	}
	id, token, err := a.g.Create(r.Context(), wish)
	if err != nil {
		notMade(err).write(w)
		return
	}
	noteMade(r, id)
	w.Header().Set("Location", "/api/v1/sessions/"+id)
	answer(w, http.StatusCreated, struct {
		ID    string `json:"id"`
		Token string `json:"token"`
	}{id, token})
}

func readWish(w http.ResponseWriter, r *http.Request) (gateway.CreateRequest, error) {
	var wish gateway.CreateRequest
	var path, target, player, group, grace *string
	var data textOrObject
	err := readObject(w, r, map[string]any{
		"path": &path, "upstream": &target, "subprotocols": &wish.Subprotocols,
		"player": &player, "group": &group, "data": &data, "grace": &grace,
	})
	if err != nil {
		return wish, err
	}
	if path == nil {
		return wish, badRequest("path: want one such as /match/7, got none")
	}
	if wish.Grace, err = readGrace(grace); err != nil {
		return wish, err
	}
	if data.text != nil {
		if len(*data.text) > gateway.MostData {
			return wish, tooMuchData()
		}
		wish.Data = []byte(*data.text)
	}
	wish.Path, wish.Upstream, wish.Player, wish.Group = *path, text0(target), text0(player), text0(group)
	return wish, errors.Join(readPlayer(player), readName("group", group), checkOffer(wish.Subprotocols))
}

// text0 is what s says, nothing where it is not there.
func text0(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// checkOffer refuses what could not be offered, and what is the gateway's own:
// left out in silence, it would be missed.
func checkOffer(protocols []string) error {
	if len(protocols) > maxSubprotocols {
		return badRequest("subprotocols: want at most %d, got %d", maxSubprotocols, len(protocols))
	}
	for _, p := range protocols {
		if !isToken(p) || p == wire.Subprotocol || strings.HasPrefix(p, "reseat.") {
			return badRequest("subprotocols: %.100q cannot be offered to a game server", p)
		}
	}
	return nil
}

// isToken reports whether s is a token: RFC 9110 section 5.6.2.
func isToken(s string) bool {
	odd := func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	}
	return s != "" && !strings.ContainsFunc(s, odd)
}

// printable reports whether s is text that is safe to show, without blanks at
// its ends.
func printable(s string) bool {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	return utf8.ValidString(s) && strings.TrimSpace(s) == s && !strings.ContainsFunc(s, odd)
}

// notMade says why a session was not made.
func notMade(err error) details {
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
