package watch

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	"reseat/gateway/handshake"
	"reseat/upstream"
)

// noSetting begins a hint if no flag would change the refusal.
const noSetting = "no setting: "

// Hint says which flag would change a refusal: by its label and fault, or by its label
// alone, with the flag ready to paste if the fault is its value.
func Hint(label, fault string) string {
	if h, ok := Hints[label+": "+fault]; ok {
		return h
	}
	h := Hints[label]
	switch pattern := handshake.OriginPattern(fault); {
	case label == "origin" && pattern != "":
		h = strings.Replace(h, "its origin", "--origin "+pattern, 1)
	case label == "host_not_allowed" && hostForm.MatchString(fault):
		h = strings.Replace(h, "this name", "--host "+fault, 1)
	}
	return h
}

// hostForm matches a Host that --host takes, without anything that a shell would read.
var hostForm = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]+)?$`)

// Hints begin with a flag. The labels are those of RefusalReasons, and of resumes the
// names of wire.Names that a resume can be refused by.
var Hints = map[string]string{
	"bad_handshake":             noSetting + "the client's handshake violates RFC 6455; does a proxy in front remove headers?",
	"buffer_total":              "--buffer-total: raise it, or lower --buffer-bytes or --grace",
	"descriptors":               noSetting + "raise the limit of open files (ulimit -n, LimitNOFILE)",
	"draining":                  noSetting + "the gateway is draining; DELETE /api/v1/drain cancels that",
	"duplicate":                 "--duplicate: takeover lets the newer session of a player win, allow keeps both",
	"host_not_allowed":          "--host: if it is yours, add this name",
	"internal_error":            noSetting + "see the log",
	"loop":                      "--upstream: it, or a --route, leads back to this gateway",
	"max_sessions":              "--max-sessions: raise it",
	"max_sessions_per_ip":       "--max-sessions-per-ip: raise it; if peer is a proxy's address, set --trusted-proxy",
	"node_unreachable":          noSetting + "the session's node does not answer; see the line \"resume.not_forwarded\" and GET /api/v1/nodes",
	"no_route":                  "--route: no pattern matches this path",
	"origin":                    "--origin: if the page is yours, add its origin; if a proxy changes Host, it must send X-Forwarded-Host, and needs --trusted-proxy",
	"unauthorized":              "--auth-key-file: this login does not pass; --auth-jwks, --auth-issuer and --auth-audience decide too",
	"unauthorized: missing":     "--auth-from: there is no login where it looks",
	"unauthorized: expired":     noSetting + "the page needs a newer login",
	"unauthorized: foreign":     "--auth-audience: the login is for or from another; --auth-issuer decides too",
	"unauthorized: unknown_key": "--auth-jwks: it, or --auth-key-file, lacks the key of this login",
	"unauthorized: no_keys":     "--auth-jwks: its keys could not be fetched",
	"unsafe_path":               noSetting + "the page, or a proxy, must ask for the path without such characters",
	"upstream":                  "--upstream: the game server cannot be reached; reseat check says why",
	"upstream: " + refusedThere: "--upstream: the game server refused the handshake; it may expect another path, --upstream-host or login",
	"upstream: " + busyThere:    "--upstream: the game server is starting, restarting or overloaded",
	"upstream: " + tooSlow:      "--dial-timeout: the game server did not answer within it",

	"bad_token":                 "--token-key-file: use the same for all gateways and across restarts",
	"bad_token: expired":        "--token-ttl: the client was away for longer than its token lives",
	"bad_token: foreign":        "--token-audience: the token is of another environment",
	"bad_token: superseded":     noSetting + "the client kept an older token, or somebody else has it",
	"bad_token: " + OtherPlayer: "--origin: the resume comes from another origin, or with another player's login",
	"no_session: grace_over":    "--grace: the client was away for longer",
	"no_session":                noSetting + "the session has ended, was in a process that is gone, or is in another of several gateways",
	"window_exceeded":           "--buffer-bytes: the session's buffer overflowed; --buffer-messages, --buffer-total and --overflow decide too",
	"superseded":                noSetting + "a newer connection of this client, or a newer session of this player, has replaced it",
	"ended":                     noSetting + "the session has ended; its history says why",
	"too_fast":                  noSetting + "more than 20 takeovers in 10 s: do two tabs share a token?",
	"upstream_lost":             "--upstream: the connection to the game server is lost, and it could not be reached again",
	"protocol_violation":        noSetting + "the client violates the reseat.v1 protocol",
}

// Faults that hints tell apart.
const (
	refusedThere = "refused there"
	busyThere    = "busy there"
	tooSlow      = "too slow"
	// OtherPlayer refuses a resume with a valid token of another player or origin.
	OtherPlayer = "for another player or origin"
)

// upstreamFault returns the fault of an error of a first dial, which selects its hint.
func upstreamFault(err error) string {
	var refusal *upstream.Refusal
	switch {
	case errors.As(err, &refusal) && (refusal.Status >= 500 || refusal.Status == http.StatusTooManyRequests):
		return busyThere
	case refusal != nil:
		return refusedThere
	case upstream.Status(err) == http.StatusGatewayTimeout:
		return tooSlow
	}
	return ""
}
