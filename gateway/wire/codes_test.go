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
	var names []string
	for _, code := range slices.Sorted(maps.Keys(section6)) {
		names = append(names, section6[code].name)
	}
	if got := Names(); !slices.Equal(got, names) {
		t.Errorf("names %q, want %q, ordered by code", got, names)
	}
}
