package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode"
	"unicode/utf8"
)

// Limits of what a client may send.
const (
	maxInputBytes  = 256
	maxNameRunes   = 20
	maxSessionSize = 128 // bytes of Reseat-Session that are repeated to the client
	maxLetters     = 500 // fewer than a client's queue holds
)

// maxInput is the highest number of an input: the largest integer that a JavaScript number
// represents exactly.
const maxInput = 1<<53 - 1

// A place is a gem as sent: index, x, y.
type place [3]int

// A standing is a player in a state, as sent: seat, x, y, score.
type standing [4]int

// A guest is a player in a welcome and a sit, as sent.
type guest struct {
	Seat     int    `json:"seat"`
	Name     string `json:"name"`
	Wanderer bool   `json:"wanderer"`
	X        int    `json:"x"`
	Y        int    `json:"y"`
	Score    int    `json:"score"`
}

// head begins every message of the server: see arena.v1 in the package documentation.
type head struct {
	N uint64 `json:"n"`
	T string `json:"t"`
}

// A numbered message gets its number when it is sent.
type numbered interface{ number(n uint64) }

func (h *head) number(n uint64) { h.N = n }

type welcomeMessage struct {
	head
	Seat    int     `json:"seat"`
	Session string  `json:"session"`
	Tick    uint64  `json:"tick"`
	Rate    int     `json:"rate"`
	Seats   int     `json:"seats"`
	Width   int     `json:"width"`
	Height  int     `json:"height"`
	Players []guest `json:"players"`
	Gems    []place `json:"gems"`
}

type sitMessage struct {
	head
	Player guest `json:"player"`
}

type leaveMessage struct {
	head
	Seat  int `json:"seat"`
	Score int `json:"score"`
}

type gemMessage struct {
	head
	Gem place `json:"gem"`
	By  int   `json:"by"`
}

type stateMessage struct {
	head
	Tick    uint64     `json:"tick"`
	As      string     `json:"as,omitempty"` // asNewest or ""
	Players []standing `json:"players"`
	In      tally      `json:"in"`
}

// asNewest marks a state of which only the newest counts for a client that is away; newestRule says so to the gateway.
const (
	asNewest   = "newest"
	newestRule = "state=json:/as=" + asNewest
)

// A letterMessage is one of the letters that a client requested.
type letterMessage struct {
	head
	K  int `json:"k"` // from 1
	Of int `json:"of"`
}

// The types of client messages.
const (
	inSteer   = "steer"
	inLetters = "letters"
	inFull    = "full"
)

// An inputMessage is a client's message: a direction, or a request for letters or for
// another welcome.
type inputMessage struct {
	S     uint64  `json:"s"`
	T     string  `json:"t"`
	X     float64 `json:"x"`
	Y     float64 `json:"y"`
	Count int     `json:"count"`

	Newest bool `json:"newest"`
}

// parseInput reads one message of a client.
func parseInput(msg []byte) (inputMessage, error) {
	var m inputMessage
	if err := json.Unmarshal(msg, &m); err != nil {
		return m, fmt.Errorf("read input: %w", err)
	}
	if m.T != inSteer && m.T != inLetters && m.T != inFull {
		return m, fmt.Errorf("read input: want type steer, letters or full, got %.20q", m.T)
	}
	if m.T == inLetters && (m.Count < 1 || m.Count > maxLetters) {
		return m, fmt.Errorf("read input: want 1 to %d letters, got %d", maxLetters, m.Count)
	}
	if m.S < 1 || m.S > maxInput {
		return m, fmt.Errorf("read input: want a number from 1 to %d, got %d", uint64(maxInput), m.S)
	}
	return m, nil
}

// encode returns the JSON of a message. Encoding cannot fail for the messages of this
// package.
func encode(m any) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", m, err))
	}
	return b
}

var errName = errors.New("want a name of 1 to 20 letters, digits, blanks, - or _")

// checkName returns the name that a player asked for, or Guest if there is none.
func checkName(name string) (string, error) {
	if name == "" {
		return "Guest", nil
	}
	if !utf8.ValidString(name) || utf8.RuneCountInString(name) > maxNameRunes {
		return "", errName
	}
	for _, r := range name {
		if !nameRune(r) {
			return "", errName
		}
	}
	if name[0] == ' ' || name[len(name)-1] == ' ' {
		return "", errName
	}
	return name, nil
}

// nameRune reports whether a name may contain r.
func nameRune(r rune) bool {
	return r == ' ' || r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// whole rounds a position to whole units, as it is sent.
func (v vec) whole() (x, y int) { return int(math.Round(v.x)), int(math.Round(v.y)) }

// guestOf returns a player as sent in a welcome or a sit.
func guestOf(p *player) guest {
	x, y := p.pos.whole()
	return guest{Seat: p.seat, Name: p.name, Wanderer: p.wanderer, X: x, Y: y, Score: p.score}
}

// placeOf returns gem i as sent.
func placeOf(i int, g gem) place {
	x, y := g.pos.whole()
	return place{i, x, y}
}

// guests returns all seated players, by seat.
func (w *world) guests() []guest {
	var list []guest
	for _, p := range w.seats {
		if p != nil {
			list = append(list, guestOf(p))
		}
	}
	return list
}

// places returns all gems.
func (w *world) places() []place {
	list := make([]place, len(w.gems))
	for i, g := range w.gems {
		list[i] = placeOf(i, g)
	}
	return list
}

// standings returns the positions of all players, by seat.
func (w *world) standings() []standing {
	list := make([]standing, 0, len(w.seats))
	for _, p := range w.seats {
		if p != nil {
			x, y := p.pos.whole()
			list = append(list, standing{p.seat, x, y, p.score})
		}
	}
	return list
}
