package admin

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// retryAfter is when a caller may try again after a 503.
const retryAfter = 5 * time.Second

// answer sends v as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// text sends s as a line of plain text.
func text(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	w.Write([]byte(s + "\n"))
}

// details is an error in the format of RFC 9457.
type details struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Upstream is the game server's status if it refused a session.
	Upstream int `json:"upstream_status,omitempty"`
	// Sessions counts those that were changed although nodes did not answer.
	Sessions *int `json:"sessions,omitempty"`
	// Missing are the nodes that did not answer.
	Missing []string `json:"nodes_missing,omitempty"`
}

// problem answers with an error; detail is a sentence that says what is wrong.
func problem(w http.ResponseWriter, status int, detail string) {
	details{Status: status, Detail: detail}.write(w)
}

func (d details) write(w http.ResponseWriter) {
	d.Title = http.StatusText(d.Status)
	if d.Status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(d.Status)
	json.NewEncoder(w).Encode(d)
}
