package gateway_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// T15: the connection is closed after a refusal, even if the announced body never arrives.
func TestRefusedHandshakeDoesNotWaitForItsBody(t *testing.T) {
	for name, header := range map[string]string{
		"a length":              "Content-Length: 600\r\n",
		"in chunks":             "Transfer-Encoding: chunked\r\n",
		"a foreign Origin, too": "Origin: http://elsewhere.example\r\nContent-Length: 600\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, testPolicy())
				conn, br, resp, err := w.Handshake("/match/7", nil, header)
				if err != nil || resp.StatusCode != http.StatusBadRequest {
					t.Fatalf("%v %v, want 400", resp, err)
				}
				began := time.Now()
				conn.SetDeadline(began.Add(time.Minute))
				if _, err := io.Copy(io.Discard, br); err != nil || time.Since(began) > 2*time.Second {
					t.Errorf("the connection ended with %v after %v, want it closed within 2s", err, time.Since(began))
				}
			})
		})
	}
}
