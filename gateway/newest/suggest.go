package newest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// A Sample is a message of a game server.
type Sample struct {
	Text    bool
	Payload []byte
}

const (
	minAlike     = 20 // messages that look like states, for a suggestion
	maxTextMatch = 32 // bytes of a prefix
)

// Suggest returns the MATCH of --newest for the messages among list that look like one state after another, and how many
// they are; "" if they are less than half of the list, or few. They begin alike, or are JSON objects of one type.
func Suggest(list []Sample) (match string, n int) {
	groups := make(map[string][]Sample)
	for _, m := range list {
		if k := kindOf(m); k != "" {
			groups[k] = append(groups[k], m)
		}
	}
	for k, g := range groups {
		if len(g) >= max(minAlike, len(list)/2+1) {
			match, n = k, len(g)
			if fields, ok := strings.CutPrefix(k, "json:"); ok {
				match = "json:" + fields + entityOf(g, fields)
			}
		}
	}
	if match == "json:" {
		return "", 0
	}
	return match, n
}

// typeNames are the members by which JSON messages of one kind are told apart, the commonest first.
var typeNames = []string{"type", "t", "event", "op", "kind", "cmd", "action", "msg", "method"}

// kindOf returns the MATCH for messages of m's kind, "" if none shows.
func kindOf(m Sample) string {
	if !m.Text {
		if len(m.Payload) == 0 {
			return ""
		}
		return "hex:" + hex.EncodeToString(m.Payload[:1])
	}
	if o := objectOf(m); o != nil {
		for _, name := range typeNames {
			if v, ok := o[name].(string); ok && len(v) <= maxTextMatch && !strings.ContainsAny(v, "&") {
				return "json:/" + name + "=" + v
			}
		}
		return "json:"
	}
	begin := m.Payload[:min(len(m.Payload), maxTextMatch)]
	end := textKind.FindIndex(begin)
	if end == nil {
		return ""
	}
	return quoted(string(begin[:end[1]]))
}

// textKind matches the beginning of a text message up to where its arguments begin: an event of Socket.IO with its name,
// or a word and what ends it.
var textKind = regexp.MustCompile(`^(?:\d+\["[^"]+"|[A-Za-z_]+[|:, ;=\[{\t])`)

// quoted returns the MATCH for a text prefix.
func quoted(prefix string) string {
	if form.MatchString(prefix) {
		return "text:" + prefix
	}
	return prefix
}

// form matches prefixes that read as another form of MATCH.
var form = regexp.MustCompile(`^(?:text|hex|json):`)

// entityName matches names of members that say whose state a message is.
var entityName = regexp.MustCompile(`(?i)^(?:.*_)?(?:id|entity|player|unit|object|name|key|slot)$|Id$`)

// entityOf returns the pointer to the member that says whose state each message of a group is, for messages that name others
// each time as well as the same again.
func entityOf(g []Sample, fields string) string {
	values := make(map[string]map[string]int)
	for _, m := range g {
		for name, v := range objectOf(m) {
			b, err := json.Marshal(v)
			if err != nil || !entityName.MatchString(name) || strings.ContainsAny(name, "~/=&") || bytes.ContainsAny(b[:1], "{[n") {
				continue
			}
			if values[name] == nil {
				values[name] = make(map[string]int)
			}
			values[name][string(b)]++
		}
	}
	var found []string
	for name, of := range values {
		total := 0
		for _, n := range of {
			total += n
		}
		if total == len(g) && len(of) > 1 && len(of) <= len(g)/2 {
			found = append(found, name)
		}
	}
	if found == nil {
		return ""
	}
	slices.Sort(found)
	if fields == "" {
		return "/" + found[0]
	}
	return "&/" + found[0]
}

// objectOf returns m as a JSON object, nil if it is none.
func objectOf(m Sample) (o map[string]any) {
	if !m.Text || !bytes.HasPrefix(m.Payload, []byte("{")) || json.Unmarshal(m.Payload, &o) != nil {
		return nil
	}
	return o
}
