package wire

import (
	"maps"
	"slices"
)

// Close codes that the gateway itself uses, protocol section 6.
const (
	CodeNormal            = 1000
	CodeGoingAway         = 1001
	CodeProtocolError     = 1002
	CodeInvalidUTF8       = 1007
	CodePolicyViolation   = 1008
	CodeMessageTooBig     = 1009
	CodeInternalError     = 1011
	CodeServiceRestart    = 1012
	CodeTryAgainLater     = 1013
	CodeProtocolViolation = 4400
	CodeBadToken          = 4401
	CodeRefused           = 4403
	CodeNoSession         = 4404
	CodeWindowExceeded    = 4408
	CodeSuperseded        = 4409
	CodeEnded             = 4410
	CodeTooFast           = 4429
	CodeUpstreamLost      = 4502
	CodeDraining          = 4503
)

// codes is section 6's table: the name of each code, what the upstream gets
// when the code ends a live session (0: nothing is left to be told), and what
// a plain client gets in its place (0: the upstream's own code, or no Close).
var codes = map[int]struct {
	name            string
	upstream, plain int
}{
	CodeProtocolError:     {"protocol_error", CodePolicyViolation, CodeProtocolError},
	CodeInvalidUTF8:       {"invalid_utf8", CodePolicyViolation, CodeInvalidUTF8},
	CodeMessageTooBig:     {"message_too_big", CodeMessageTooBig, CodeMessageTooBig},
	CodeInternalError:     {"internal_error", CodeInternalError, CodeInternalError},
	CodeProtocolViolation: {"protocol_violation", CodePolicyViolation, CodePolicyViolation},
	CodeBadToken:          {"bad_token", 0, 0},
	CodeRefused:           {"refused", 0, 0},
	CodeNoSession:         {"no_session", 0, 0},
	CodeWindowExceeded:    {"window_exceeded", CodeTryAgainLater, 0},
	CodeSuperseded:        {"superseded", CodeGoingAway, CodePolicyViolation},
	CodeEnded:             {"ended", CodeGoingAway, 0},
	CodeTooFast:           {"too_fast", CodePolicyViolation, CodePolicyViolation},
	CodeUpstreamLost:      {"upstream_lost", 0, 0},
	CodeDraining:          {"draining", CodeGoingAway, CodeServiceRestart},
}

// Name is the fixed name of a code, which is its metric label too.
func Name(code int) string { return codes[code].name }

// UpstreamCode is what the upstream is told when code ends a live session.
func UpstreamCode(code int) int { return codes[code].upstream }

// PlainCode is what a plain client gets in place of code.
func PlainCode(code int) int { return codes[code].plain }

// Names lists the names of all codes, in the order of the codes.
func Names() []string {
	var list []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		list = append(list, codes[code].name)
	}
	return list
}
