package admin

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// busyFor is when a caller may try again who was told that it is too much now.
const busyFor = 5 * time.Second

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func text(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	w.Write([]byte(s + "\n"))
}

// A details is an error as RFC 9457 has it.
type details struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Upstream is the game server's own status, where it refused a session.
	Upstream int `json:"upstream_status,omitempty"`
}

// problem answers with an error, and says in a sentence what is wrong.
func problem(w http.ResponseWriter, status int, detail string) {
	details{Status: status, Detail: detail}.write(w)
}

func (d details) write(w http.ResponseWriter) {
	d.Title = http.StatusText(d.Status)
	if d.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(int(busyFor.Seconds())))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(d.Status)
	json.NewEncoder(w).Encode(d)
}
