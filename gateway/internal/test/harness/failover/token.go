//go:build linux

package failover

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// A token is what a resume token says of its session.
type token struct {
	Gen uint64
	Own string // the node that has it, "" for the one that began it
}

// read returns what is in a token, nothing if there is none.
func read(text string) (t token) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return t
	}
	if b, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
		json.Unmarshal(b, &t)
	}
	return t
}
