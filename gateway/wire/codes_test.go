package wire

import (
	"maps"
	"slices"
	"testing"

	"reseat/gateway/frame"
)

// section6 is the table of protocol section 6: the name, what the upstream gets when
// the code ends a live session, and what a plain client gets.
var section6 = map[int]struct {
	name            string
	upstream, plain int
}{
	1002: {"protocol_error", 1008, 1002},
	1007: {"invalid_utf8", 1008, 1007},
	1009: {"message_too_big", 1009, 1009},
	1011: {"internal_error", 1011, 1011},
	4400: {"protocol_violation", 1008, 1008}, // plain: a message of more than 1,024 frames
	4401: {"bad_token", 0, 0},
	4403: {"refused", 0, 0},
	4404: {"no_session", 0, 0},
	4408: {"window_exceeded", 1013, 1013}, // plain: while attached
	4409: {"superseded", 1001, 1008},
	4410: {"ended", 1001, 0}, // plain: the same as the upstream
	4429: {"too_fast", 1008, 1008},
	4502: {"upstream_lost", 0, 0}, // plain: a drop without Close
	4503: {"draining", 1001, 1012},
	4504: {"node_unreachable", 0, 0},
}

func TestCodesMatchTheProtocol(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(codes)), slices.Sorted(maps.Keys(section6)); !slices.Equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
	for code, want := range section6 {
		if Name(code) != want.name || UpstreamCode(code) != want.upstream || PlainCode(code) != want.plain {
			t.Errorf("%d: %s, upstream %d, plain %d, want %+v", code, Name(code), UpstreamCode(code), PlainCode(code), want)
		}
		for _, c := range []int{code, UpstreamCode(code), PlainCode(code)} {
			if c != 0 && !frame.ValidCode(c) {
				t.Errorf("%d: %d must not travel in a Close frame", code, c)
			}
		}
	}
}

func TestNamesAreOrderedByCode(t *testing.T) {
	var want []string
	for _, code := range slices.Sorted(maps.Keys(section6)) {
		want = append(want, section6[code].name)
	}
	if got := Names(); !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
}

// The names are metric labels, so no two codes may share one.
func TestNamesOfCodesAreUnique(t *testing.T) {
	seen := map[string]int{}
	for code := range 6000 {
		name := Name(code)
		if other, twice := seen[name]; name != "" && twice {
			t.Errorf("%d and %d are both %q", other, code, name)
		}
		seen[name] = code
		if _, known := section6[code]; known == (name == "") {
			t.Errorf("%d is named %q", code, name)
		}
	}
}

func TestConstantsMatchTheirCodes(t *testing.T) {
	for got, want := range map[int]int{
		CodeNormal: 1000, CodeGoingAway: 1001, CodeProtocolError: 1002, CodeInvalidUTF8: 1007, CodePolicyViolation: 1008,
		CodeMessageTooBig: 1009, CodeInternalError: 1011, CodeServiceRestart: 1012, CodeTryAgainLater: 1013,
		CodeProtocolViolation: 4400, CodeBadToken: 4401, CodeNoSession: 4404, CodeWindowExceeded: 4408, CodeSuperseded: 4409,
		CodeEnded: 4410, CodeTooFast: 4429, CodeUpstreamLost: 4502, CodeDraining: 4503, CodeNodeUnreachable: 4504,
	} {
		if got != want {
			t.Errorf("code %d, want %d", got, want)
		}
	}
}
