package wstest

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// A Step is one step of a golden transcript. testdata/transcripts/README.md explains
// what each means, and who does it.
type Step struct {
	At    string // "file:line"
	Text  string // the step as in the file
	Actor byte   // 'C', 'G', 'U' or 'A'; 0 for settings, network and clock
	Told  bool   // the actor receives this: "<"
	Conn  int    // #K, 0 for the newest connection
	Body  any    // a Setting, Network, Clock, Handshake, Data, Control, Closing or Application
}

// A Setting is a flag of the gateway.
type Setting struct{ Name, Value string }

// A Network is a fault of the client's newest connection.
type Network string

// The faults of a connection.
const (
	Drop     Network = "drop"
	HalfOpen Network = "half-open"
)

// A Clock is a step of time.
type Clock time.Duration

// A Handshake is the client's GET.
type Handshake struct {
	Path     string
	Offer    []string // as in the file
	Resume   bool     // received=N is in it
	Received uint64   // the N of that
}

// Protocols returns the subprotocols that h offers, with the newest token.
func (h Handshake) Protocols(token string) []string {
	var list []string
	for _, p := range h.Offer {
		if n, ok := strings.CutPrefix(p, "received="); ok {
			list = append(list, "reseat.token."+token, "reseat.received."+n)
			continue
		}
		list = append(list, p)
	}
	return list
}

// Own returns the application's part of the offer.
func (h Handshake) Own() []string {
	return slices.DeleteFunc(slices.Clone(h.Offer), func(p string) bool {
		return p == wire.Subprotocol || strings.HasPrefix(p, "received=")
	})
}

// Data is a data message: for the client and the gateway as on the wire, for the
// upstream and the application as a program sees it.
type Data struct {
	Op      byte // frame.Text or frame.Binary
	Payload string
}

// Control is a control message.
type Control struct {
	Verb    string
	Arg     string         // as in the file
	Members map[string]any // of a JSON argument
}

// Closing is a Close frame.
type Closing struct {
	Code   int
	Reason string
	Any    bool // the file has no reason, so none is compared
}

// Application is a step that only the client's application takes part in.
type Application struct{}

var (
	stepForm    = regexp.MustCompile(`^([CGUA])(?:#([1-9][0-9]{0,3}))?([<>]) (.+)$`)
	settingForm = regexp.MustCompile(`^([a-z][a-z-]*)=(.+)$`)
	clockForm   = regexp.MustCompile(`^([1-9][0-9]{0,8})(ms|s|m)$`)
	controlForm = regexp.MustCompile(`^\^([a-z]{1,16})(?: (.+))?$`)
	closeForm   = regexp.MustCompile(`^[Cc]lose ([0-9]{4})(?: (".*"))?$`)
	getForm     = regexp.MustCompile(`^GET (/\S*) (.+)$`)
	numberForm  = regexp.MustCompile(`^received=([0-9]{1,16})$`)
	eventForm   = regexp.MustCompile(`^(open|detach|resume|replayed|error|close)(?: (\{.*\}))?$`)
)

// ParseTranscript parses a golden transcript. name stands for the file in Step.At and
// in errors, which begin with "name:line: ".
func ParseTranscript(name, text string) ([]Step, error) {
	var p transcript
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		if !utf8.ValidString(line) {
			return nil, fmt.Errorf("%s: not UTF-8", at)
		}
		line = strings.Trim(line, " ")
		if line == "" || line[0] == '#' {
			continue
		}
		for _, text := range cutSteps(line) {
			step, err := parseStep(text)
			if err == nil {
				err = p.check(step)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", at, text, err)
			}
			step.At, step.Text = at, text
			p.steps = append(p.steps, step)
		}
	}
	if p.conns == 0 {
		return nil, fmt.Errorf("%s:1: no C> GET in the file", name)
	}
	return p.steps, nil
}

// cutSteps splits a line at two or more blanks outside a JSON string.
func cutSteps(line string) []string {
	var steps []string
	from, quoted := 0, false
	for i := 0; i < len(line); i++ {
		switch {
		case quoted && line[i] == '\\':
			i++
		case line[i] == '"':
			quoted = !quoted
		case !quoted && strings.HasPrefix(line[i:], "  "):
			steps = append(steps, line[from:i])
			for line[i+1] == ' ' { // no line ends with a blank
				i++
			}
			from = i + 1
		}
	}
	return append(steps, line[from:])
}

// A transcript is the state of parsing a file.
type transcript struct {
	steps []Step
	conns int
}

// check returns an error if a step is not allowed at its position.
func (p *transcript) check(s Step) error {
	switch s.Body.(type) {
	case Setting:
		if n := len(p.steps); n > 0 && !isSetting(p.steps[n-1]) {
			return errors.New("settings stand before all other steps")
		}
		return nil
	case Handshake:
		p.conns++
		return nil
	}
	switch {
	case p.conns == 0:
		return errors.New("there is no connection before the first C> GET")
	case s.Conn > p.conns:
		return fmt.Errorf("there is no connection #%d yet, only %d", s.Conn, p.conns)
	}
	return nil
}

func isSetting(s Step) bool { _, ok := s.Body.(Setting); return ok }

// parseStep parses one step by itself.
func parseStep(text string) (s Step, err error) {
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "@":
		s.Body, err = parseSetting(rest)
	case "---":
		s.Body, err = parseNetwork(rest)
	case "+++":
		s.Body, err = parseClock(rest)
	default:
		return parseMessage(text)
	}
	return s, err
}

func parseSetting(text string) (Setting, error) {
	m := settingForm.FindStringSubmatch(text)
	if m == nil {
		return Setting{}, errors.New("want @ NAME=VALUE")
	}
	return Setting{m[1], m[2]}, nil
}

func parseNetwork(text string) (Network, error) {
	if n := Network(text); n == Drop || n == HalfOpen {
		return n, nil
	}
	return "", errors.New("want --- drop or --- half-open")
}

func parseClock(text string) (Clock, error) {
	m := clockForm.FindStringSubmatch(text)
	if m == nil {
		return 0, errors.New("want +++ and a time such as 500ms, 29s or 2m")
	}
	d, err := time.ParseDuration(m[0])
	return Clock(d), err
}

// parseMessage parses what a party sends or receives.
func parseMessage(text string) (Step, error) {
	m := stepForm.FindStringSubmatch(text)
	if m == nil {
		return Step{}, errors.New("want @, ---, +++, or an actor C, G, U or A with > or < and what it says")
	}
	s := Step{Actor: m[1][0], Told: m[3] == "<"}
	s.Conn, _ = strconv.Atoi(m[2])
	var err error
	s.Body, err = s.parse(m[4])
	return s, err
}

// parse parses the text after > or <.
func (s Step) parse(text string) (any, error) {
	switch {
	case s.Told && (s.Actor == 'C' || s.Actor == 'G'):
		return nil, errors.New("only U and A have <")
	case s.Conn > 0 && (s.Actor == 'U' || s.Actor == 'A'):
		return nil, errors.New("#K is for C and G")
	case s.Actor == 'A' && s.Told:
		return parseEvent(text)
	case s.Actor == 'A':
		return parseApplication(text)
	}
	return parseBody(s, text)
}

// parseBody parses what client, gateway or upstream send.
func parseBody(s Step, text string) (any, error) {
	switch {
	case text[0] == '"', strings.HasPrefix(text, `x"`):
		return parseData(text)
	case strings.HasPrefix(text, "Close "):
		return parseClose(text)
	case text[0] == '^' && s.Actor != 'U':
		return parseControl(text)
	case strings.HasPrefix(text, "GET ") && s.Actor == 'C' && s.Conn == 0:
		return parseGET(text)
	}
	return nil, fmt.Errorf("%c says no such thing", s.Actor)
}

func parseData(text string) (Data, error) {
	if digits, ok := strings.CutPrefix(text, "x"); ok {
		b, err := hex.DecodeString(strings.Trim(digits, `"`))
		if err != nil || len(digits) != 2*len(b)+2 {
			return Data{}, errors.New(`want x" and hexadecimal digits`)
		}
		return Data{frame.Binary, string(b)}, nil
	}
	d := Data{Op: frame.Text}
	if err := json.Unmarshal([]byte(text), &d.Payload); err != nil || text[len(text)-1] != '"' {
		return Data{}, errors.New("want one JSON string and nothing behind it")
	}
	return d, nil
}

func parseControl(text string) (Control, error) {
	m := controlForm.FindStringSubmatch(text)
	if m == nil {
		return Control{}, errors.New("want ^, a verb of 1 to 16 letters, and perhaps an argument")
	}
	c := Control{Verb: m[1], Arg: m[2]}
	if strings.HasPrefix(c.Arg, "{") {
		if err := json.Unmarshal([]byte(c.Arg), &c.Members); err != nil {
			return Control{}, fmt.Errorf("argument that begins with {: %w", err)
		}
	}
	if _, ok := wire.ParseNumber(c.Arg); c.Verb == wire.VerbAck && !ok {
		return Control{}, errors.New("want ^ack and 1 to 16 digits")
	}
	return c, nil
}

func parseClose(text string) (Closing, error) {
	m := closeForm.FindStringSubmatch(text)
	if m == nil {
		return Closing{}, errors.New("want a code of four digits, and perhaps a reason as a JSON string")
	}
	c := Closing{Any: m[2] == ""}
	c.Code, _ = strconv.Atoi(m[1])
	if c.Code != frame.NoStatus && !frame.ValidCode(c.Code) {
		return Closing{}, fmt.Errorf("a Close frame cannot carry code %d", c.Code)
	}
	if c.Any {
		return c, nil
	}
	return c, json.Unmarshal([]byte(m[2]), &c.Reason)
}

func parseGET(text string) (Handshake, error) {
	m := getForm.FindStringSubmatch(text)
	if m == nil {
		return Handshake{}, errors.New("want GET, a path that begins with /, and a list of subprotocols")
	}
	h := Handshake{Path: m[1], Offer: strings.Split(m[2], ", ")}
	for _, p := range h.Offer {
		n := numberForm.FindStringSubmatch(p)
		switch {
		case p == "" || strings.ContainsAny(p, " ,"):
			return h, errors.New("want subprotocols with a comma and a blank between them")
		case n != nil && h.Resume:
			return h, errors.New("received=N is there twice")
		case n != nil:
			h.Resume = true
			h.Received, _ = wire.ParseNumber(n[1])
		case strings.Contains(p, "="):
			return h, errors.New("want received= and 1 to 16 digits")
		}
	}
	if !slices.Contains(h.Offer, wire.Subprotocol) {
		return h, errors.New("the offer lacks " + wire.Subprotocol)
	}
	return h, nil
}

// parseApplication parses what the application does.
func parseApplication(text string) (Application, error) {
	switch {
	case text == "online":
		return Application{}, nil
	case strings.HasPrefix(text, "close "):
		_, err := parseClose(text)
		return Application{}, err
	case text[0] == '"', strings.HasPrefix(text, `x"`):
		_, err := parseData(text)
		return Application{}, err
	}
	return Application{}, errors.New("want a message, close CODE or online")
}

// parseEvent parses what the application is notified of.
func parseEvent(text string) (Application, error) {
	m := eventForm.FindStringSubmatch(text)
	if m == nil || m[2] != "" && !json.Valid([]byte(m[2])) {
		return Application{}, errors.New("want open, detach, resume, replayed, error or close, and perhaps a JSON object")
	}
	return Application{}, nil
}
