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
		return strings.HasPrefix(p, "reseat.") || strings.HasPrefix(p, "received=")
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
	settingForm = regexp.MustCompile(`^@ ([a-z][a-z-]*)=(.+)$`)
	networkForm = regexp.MustCompile(`^--- (drop|half-open)$`)
	clockForm   = regexp.MustCompile(`^\+\+\+ ([1-9][0-9]*(?:ms|s|m))$`)
	getForm     = regexp.MustCompile(`^C> GET (/\S*) ([^ ,]+(?:, [^ ,]+)*)$`)
	appForm     = regexp.MustCompile(`^A(?:> (?:online|close [0-9]{4}(?: ".*")?|x?".*")|< (?:open|detach|resume|replayed|skip|error|close)(?: \{.*\})?)$`)
	messageForm = regexp.MustCompile(`^(?:([CG])(?:#([1-9][0-9]*))?>|(U)([<>])) (.+)$`)

	textForm    = regexp.MustCompile(`^".*"$`)
	binaryForm  = regexp.MustCompile(`^x"((?:[0-9a-fA-F]{2})*)"$`)
	closeForm   = regexp.MustCompile(`^Close ([0-9]{4})(?: (".*"))?$`)
	controlForm = regexp.MustCompile(`^\^([a-z]{1,16})(?: (\S.*))?$`)
)

// ParseTranscript parses a golden transcript. name stands for the file in Step.At and
// in errors, which begin with "name:line: ".
func ParseTranscript(name, text string) (steps []Step, err error) {
	conns := 0
	for i, line := range strings.Split(text, "\n") {
		if line = strings.Trim(line, " "); line == "" || line[0] == '#' {
			continue
		}
		for _, text := range cutSteps(line) {
			at := fmt.Sprintf("%s:%d", name, i+1)
			step, err := parseStep(text)
			if _, dials := step.Body.(Handshake); dials {
				conns++
			}
			if _, sets := step.Body.(Setting); err == nil && (sets && conns > 0 || !sets && max(step.Conn, 1) > conns) {
				err = fmt.Errorf("it comes after %d connections: settings come before the first, the others need theirs", conns)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", at, text, err)
			}
			step.At, step.Text = at, text
			steps = append(steps, step)
		}
	}
	if conns == 0 {
		return nil, fmt.Errorf("%s:1: no C> GET in the file", name)
	}
	return steps, nil
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

// parseStep parses one step by itself.
func parseStep(text string) (s Step, err error) {
	var m []string
	is := func(form *regexp.Regexp) bool {
		m = form.FindStringSubmatch(text)
		return m != nil
	}
	switch {
	case is(settingForm):
		s.Body = Setting{m[1], m[2]}
	case is(networkForm):
		s.Body = Network(m[1])
	case is(clockForm):
		var d time.Duration
		d, err = time.ParseDuration(m[1])
		s.Body = Clock(d)
	case is(getForm):
		s.Actor = 'C'
		s.Body, err = parseGET(m[1], strings.Split(m[2], ", "))
	case is(appForm):
		s.Actor, s.Told, s.Body = 'A', text[1] == '<', Application{}
	case is(messageForm):
		s.Actor, s.Told = (m[1] + m[3])[0], m[4] == "<"
		s.Conn, _ = strconv.Atoi(m[2])
		s.Body, err = parseBody(s.Actor, m[5])
	default:
		err = errors.New("no step has this form")
	}
	return s, err
}

// parseBody parses what client, gateway or upstream send.
func parseBody(actor byte, text string) (any, error) {
	var m []string
	is := func(form *regexp.Regexp) bool {
		m = form.FindStringSubmatch(text)
		return m != nil
	}
	switch {
	case is(textForm):
		d := Data{Op: frame.Text}
		err := json.Unmarshal([]byte(text), &d.Payload)
		return d, err
	case is(binaryForm):
		b, err := hex.DecodeString(m[1])
		return Data{frame.Binary, string(b)}, err
	case is(closeForm):
		c := Closing{Any: m[2] == ""}
		c.Code, _ = strconv.Atoi(m[1])
		if c.Code != frame.NoStatus && !frame.ValidCode(c.Code) {
			return c, fmt.Errorf("a Close frame cannot carry code %d", c.Code)
		}
		if c.Any {
			return c, nil
		}
		err := json.Unmarshal([]byte(m[2]), &c.Reason)
		return c, err
	case is(controlForm) && actor != 'U':
		return parseControl(Control{Verb: m[1], Arg: m[2]})
	}
	return nil, fmt.Errorf("%c says no such thing", actor)
}

func parseControl(c Control) (Control, error) {
	if _, ok := wire.ParseNumber(c.Arg); c.Verb == wire.VerbAck && !ok {
		return c, errors.New("want ^ack and 1 to 16 digits")
	}
	if !strings.HasPrefix(c.Arg, "{") {
		return c, nil
	}
	err := json.Unmarshal([]byte(c.Arg), &c.Members)
	return c, err
}

func parseGET(path string, offer []string) (Handshake, error) {
	h := Handshake{Path: path, Offer: offer}
	for _, p := range offer {
		n, states := strings.CutPrefix(p, "received=")
		if !states {
			continue
		}
		var ok bool
		if h.Received, ok = wire.ParseNumber(n); !ok || h.Resume {
			return h, errors.New("want received= and 1 to 16 digits, once")
		}
		h.Resume = true
	}
	if !slices.Contains(offer, wire.Subprotocol) {
		return h, errors.New("the offer lacks " + wire.Subprotocol)
	}
	return h, nil
}
