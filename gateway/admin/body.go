package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"reseat/gateway"
	"reseat/tokens/strict"
)

const (
	// maxJSON is the max size of a JSON body in bytes. A session's data fits in any escaping.
	maxJSON = 6*gateway.MaxData + 16<<10
	// bodyTimeout limits the time in which a caller sends a body.
	bodyTimeout = 10 * time.Second
)

// A fault is an error in a request, and the status of the answer.
type fault struct {
	status int
	detail string
}

func (f *fault) Error() string { return f.detail }

func badRequest(format string, args ...any) error {
	return &fault{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// refuse answers with a fault, or with 400 for any other error.
func refuse(w http.ResponseWriter, err error) {
	var f *fault
	if errors.As(err, &f) {
		problem(w, f.status, f.detail)
		return
	}
	problem(w, http.StatusBadRequest, err.Error())
}

// readBody reads a whole body of up to limit bytes. Without an error it is never nil.
func readBody(w http.ResponseWriter, r *http.Request, limit int) ([]byte, error) {
	if _, ok := r.Body.(bodyRead); !ok { // net/http removes the deadline once the body has been read
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &large):
		return nil, &fault{http.StatusRequestEntityTooLarge, fmt.Sprintf("want a body of at most %d bytes", limit)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &fault{http.StatusRequestTimeout, "the body did not arrive in time"}
	}
	return nil, badRequest("the body is incomplete")
}

// A bodyRead is the body of a request that has been read from its connection already.
type bodyRead struct{ *bytes.Reader }

// Close implements io.Closer.
func (bodyRead) Close() error { return nil }

// A textOrJSON is a member that holds text, or any other JSON value, which is kept verbatim.
type textOrJSON struct{ text *string }

// UnmarshalJSON implements json.Unmarshaler.
func (t *textOrJSON) UnmarshalJSON(raw []byte) error {
	if kind(raw) == "a string" {
		return json.Unmarshal(raw, &t.text)
	}
	s := string(raw)
	t.text = &s
	return nil
}

// maxMembers is more than any body has, so that the error names the unknown member.
const maxMembers = 32

// readObject reads a JSON object and decodes each member into its destination: a pointer
// to a pointer, to a list, or to a textOrJSON. Members are optional. Unknown and
// repeated members, null, and values of another type are faults.
func readObject(w http.ResponseWriter, r *http.Request, members map[string]any) error {
	body, err := readBody(w, r, maxJSON)
	if err != nil {
		return err
	}
	object, err := strict.ParseObject(body, maxMembers)
	if err != nil {
		return badRequest("want one JSON object: %v", err)
	}
	for _, m := range object {
		into, known := members[m.Name]
		if !known {
			return badRequest("unknown member %.100q; known are %s", m.Name, strings.Join(slices.Sorted(maps.Keys(members)), ", "))
		}
		if err := decodeMember(m, into); err != nil {
			return err
		}
	}
	return nil
}

func decodeMember(m strict.Member, into any) error {
	if string(m.Value) == "null" || json.Unmarshal(m.Value, into) != nil {
		return badRequest("%s: want %s, got %s", m.Name, wanted(into), kind(m.Value))
	}
	if hasLoneSurrogate(m.Value) {
		return badRequest("%s: want Unicode text", m.Name)
	}
	return nil
}

// wanted describes the type of a destination.
func wanted(into any) string {
	switch into.(type) {
	case **bool:
		return "true or false"
	case *[]string, **[]string:
		return "a list of strings"
	case *textOrJSON:
		return "a string or another JSON value"
	}
	return "a string"
}

// kind describes the type of a JSON value.
func kind(raw json.RawMessage) string {
	switch raw[0] {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '[':
		return "a list"
	case '{':
		return "an object"
	}
	return "a number"
}

// hasLoneSurrogate reports whether a value has an escape for half a character, which
// package json would silently replace by U+FFFD.
func hasLoneSurrogate(raw json.RawMessage) bool {
	var v any
	json.Unmarshal(raw, &v)
	text, _ := json.Marshal(v)
	own := bytes.Count(raw, []byte("\uFFFD")) + strings.Count(strings.ToLower(string(raw)), `\ufffd`)
	return bytes.Count(text, []byte("\uFFFD"))+bytes.Count(text, []byte(`\ufffd`)) > own
}
