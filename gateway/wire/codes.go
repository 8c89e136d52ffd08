package wire

import (
	"maps"
	"slices"
)

// Close codes of the gateway, protocol section 6.
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
	CodeNodeUnreachable   = 4504
)

// codes is the table of protocol section 6: the name of each code, the code that the
// upstream gets when it ends a live session (0: the upstream is already closed), and
// the code that a plain client gets instead (0: the upstream's own code, or no Close).
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
	CodeWindowExceeded:    {"window_exceeded", CodeTryAgainLater, CodeTryAgainLater},
	CodeSuperseded:        {"superseded", CodeGoingAway, CodePolicyViolation},
	CodeEnded:             {"ended", CodeGoingAway, 0},
	CodeTooFast:           {"too_fast", CodePolicyViolation, CodePolicyViolation},
	CodeUpstreamLost:      {"upstream_lost", 0, 0},
	CodeDraining:          {"draining", CodeGoingAway, CodeServiceRestart},
	CodeNodeUnreachable:   {"node_unreachable", 0, 0},
}

// Name returns the name of a code, which is also its metric label; "" if it has none.
func Name(code int) string { return codes[code].name }

// UpstreamCode returns what the upstream gets when code ends a live session.
func UpstreamCode(code int) int { return codes[code].upstream }

// PlainCode returns what a plain client gets instead of code.
func PlainCode(code int) int { return codes[code].plain }

// Names returns the names of all codes, ordered by code.
func Names() []string {
	var list []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		list = append(list, codes[code].name)
	}
	return list
}
