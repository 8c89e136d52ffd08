package admin

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzBodies sends any body and query to any call that takes one. Nothing panics, no answer
// is 500, and every refusal is a JSON problem that says what is wrong.
func FuzzBodies(f *testing.F) {
	calls := []string{"POST /api/v1/sessions", "PATCH /api/v1/sessions/ID", "PUT /api/v1/sessions/ID/data", "DELETE /api/v1/sessions/ID", "GET /api/v1/sessions", "POST /api/v1/groups/g/start"}
	for i := range calls {
		for _, body := range []string{``, `{}`, `{"grace":"2m","overflow":"end","group":"x","started":true}`, `{"path":"/a","player":"p","group":"g","subprotocols":["a"],"data":{"k":[1]}}`,
			`{"grace":1}`, `{"grace":"2m","grace":"3m"}`, `[]`, `null`, "\xff", `{"group":"\ud800"}`, `{"a":` + strings.Repeat("[", 2000)} {
			f.Add(uint8(i), body, "limit=3&state=ended&code=1000")
		}
		f.Add(uint8(i), `{"path":"//evil.example/../x"}`, "code=99999&reason=\x00&limit=-1&cursor=%ff")
	}
	f.Fuzz(func(t *testing.T, call uint8, body, query string) {
		inWorld(t, func(t *testing.T, w *world) {
			p, _ := w.play("")
			method, at, _ := strings.Cut(calls[int(call)%len(calls)], " ")
			r := httptest.NewRequest(method, strings.Replace(at, "ID", p.Hello.Session, 1), strings.NewReader(body))
			r.URL.RawQuery = query
			r.Host = "127.0.0.1:8081"
			r.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			w.admin.ServeHTTP(answer, r)
			checkAnswer(t, answer)
		})
	})
}

func checkAnswer(t *testing.T, answer *httptest.ResponseRecorder) {
	t.Helper()
	if answer.Code < 400 {
		return
	}
	var problem struct {
		Status int
		Detail string
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &problem); err != nil || problem.Status != answer.Code || answer.Code >= 500 && answer.Code != 502 && answer.Code != 503 {
		t.Errorf("answered %d: %.300s (%v)", answer.Code, answer.Body, err)
	}
}
