package admin

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-chi/chi/v5"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/upgrade"
)

// A description is openapi.json, with the answers that the tests have seen.
type description struct {
	*openapi3.T
	mu   sync.Mutex
	seen map[string]bool // "GET /path 200"
}

var described = describe()

func describe() *description {
	plain := func(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		b, err := io.ReadAll(body)
		return string(b), err
	}
	openapi3filter.RegisterBodyDecoder("text/event-stream", plain)
	for _, kind := range []string{"text/html", "text/javascript", "text/css"} {
		openapi3filter.RegisterBodyDecoder(kind, plain)
	}
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		panic(err)
	}
	return &description{T: doc, seen: map[string]bool{}}
}

// check compares an answer with its description: status, type, headers and schema, and the
// request that caused it. A path that matches no route must be answered by a problem.
func (d *description) check(t *testing.T, admin http.Handler, r *http.Request, body string, rec *httptest.ResponseRecorder) {
	t.Helper()
	route, params := d.route(t, admin, r)
	if route == nil {
		if rec.Code != 404 && rec.Code != 405 && rec.Code != 401 && rec.Code != 403 || r.Method != "HEAD" && rec.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %.100s, which is not described: %d %s", r.Method, r.URL, rec.Code, rec.Body)
		}
		return
	}
	asked := r.Clone(t.Context())
	asked.Body = io.NopCloser(strings.NewReader(body))
	in := &openapi3filter.RequestValidationInput{
		Request: asked, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	if rec.Code < 300 {
		if err := openapi3filter.ValidateRequest(t.Context(), in); err != nil {
			t.Errorf("%s %.100s is answered %d, though it is described otherwise: %v", r.Method, r.URL, rec.Code, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: rec.Code, Header: rec.Header(),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	out.SetBodyBytes(rec.Body.Bytes())
	if err := openapi3filter.ValidateResponse(t.Context(), out); err != nil {
		t.Errorf("%s %.100s: %v", r.Method, r.URL, err)
	}
	d.note(fmt.Sprint(route.Method, " ", route.Path, " ", rec.Code))
}

func (d *description) note(pair string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[pair] = true
}

// route returns the description of the route that a request matches, nil if there is none.
func (d *description) route(t *testing.T, admin http.Handler, r *http.Request) (*routers.Route, map[string]string) {
	t.Helper()
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	ctx := chi.NewRouteContext()
	method := strings.Replace(r.Method, "HEAD", "GET", 1)
	if !admin.(chi.Routes).Match(ctx, method, path) {
		return nil, nil
	}
	pattern := ctx.RoutePattern() // without a trailing slash
	if path != "/" && strings.HasSuffix(path, "/") {
		pattern += "/"
	}
	item := d.Paths.Value(pattern)
	if item == nil || item.GetOperation(method) == nil {
		t.Errorf("%s %s is not described", method, pattern)
		return nil, nil
	}
	params := map[string]string{}
	for i, name := range ctx.URLParams.Keys {
		params[name] = ctx.URLParams.Values[i]
	}
	return &routers.Route{Spec: d.T, Path: pattern, PathItem: item, Method: method, Operation: item.GetOperation(method)}, params
}

// TestMain checks, after a run of all tests, that every described answer was seen.
func TestMain(m *testing.M) {
	status := m.Run()
	if status == 0 && all() {
		status = described.unseen()
	}
	os.Exit(status)
}

func TestDescriptionIsOpenAPI31(t *testing.T) {
	if err := described.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation()); err != nil {
		t.Error(err)
	}
	if described.OpenAPI != "3.1.1" {
		t.Errorf("openapi %s", described.OpenAPI)
	}
	ids := map[string]bool{}
	for path, item := range described.Paths.Map() {
		for method, o := range item.Operations() {
			if o.OperationID == "" || ids[o.OperationID] || o.Summary == "" || len(o.Tags) != 1 {
				t.Errorf("%s %s: id %q, summary %q, tags %v", method, path, o.OperationID, o.Summary, o.Tags)
			}
			ids[o.OperationID] = true
		}
	}
}

func TestRoutesAndDescriptionMatch(t *testing.T) {
	inTown(t, three[:1], func(t *testing.T, nodes []*place) {
		w := nodes[0]
		var served, said []string
		chi.Walk(w.admin.(chi.Routes), func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			served = append(served, method+" "+pattern)
			return nil
		})
		for path, item := range described.Paths.Map() {
			for method := range item.Operations() {
				said = append(said, method+" "+path)
			}
		}
		slices.Sort(served)
		slices.Sort(said)
		if !slices.Equal(served, said) {
			t.Errorf("served\n%s\ndescribed\n%s", strings.Join(served, "\n"), strings.Join(said, "\n"))
		}
	})
}

func TestDescriptionNamesEveryEventAndState(t *testing.T) {
	enum := func(schema *openapi3.SchemaRef) (names []string) {
		for _, v := range schema.Value.Enum {
			names = append(names, v.(string))
		}
		return names
	}
	if got := enum(described.Components.Schemas["Event"].Value.Properties["type"]); !slices.Equal(got, events.Names()) {
		t.Errorf("events %q", got)
	}
	if got := enum(described.Components.Schemas["State"]); !slices.Equal(got, []string{"connecting", "attached", "detached", "ended"}) {
		t.Errorf("states %q", got)
	}
}

// all reports whether this is a run of all tests.
func all() bool {
	is := func(name, value string) bool { return flag.Lookup("test."+name).Value.String() == value }
	return is("run", "") && is("skip", "") && is("list", "") && is("short", "false") && is("count", "1")
}

// unseen lists described answers that no test got. A 500 is not among them: no test can
// cause one.
func (d *description) unseen() (status int) {
	for path, item := range d.Paths.Map() {
		for method, o := range item.Operations() {
			for code := range o.Responses.Map() {
				if pair := method + " " + path + " " + code; !d.seen[pair] && code != "500" {
					fmt.Println("no test was given the answer that is described:", pair)
					status = 1
				}
			}
		}
	}
	return status
}

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

// frozenPath is a described path with values for its parameters.
var frozenPath = strings.NewReplacer("{id}", strings.Repeat("0", 32), "{group}", "red", "{name}", "ann")

func TestEveryCallOfTheAPIIsRefusedDuringFreeze(t *testing.T) {
	inTown(t, three[:1], func(t *testing.T, nodes []*place) {
		w := nodes[0]
		frozen, err := w.gw.Upgrade().Freeze(t.Context(), session.Formats[0], 0, func(upgrade.FrozenSession) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		for path, item := range described.Paths.Map() {
			if !strings.HasPrefix(path, "/api/v1/") || path == "/api/v1/events" {
				continue
			}
			for method := range item.Operations() {
				calls++
				rec := w.call(method, frozenPath.Replace(path))
				wantProblem(t, rec, http.StatusServiceUnavailable, "upgrade")
				if got := rec.Header().Get("Retry-After"); got != "1" {
					t.Errorf("%s %s: Retry-After %q", method, path, got)
				}
			}
		}
		if calls < 15 {
			t.Errorf("only %d calls", calls)
		}
		for _, path := range []string{"/healthz", "/readyz", "/"} {
			if rec := w.call("GET", path); rec.Code != http.StatusOK {
				t.Errorf("%s: %d", path, rec.Code)
			}
		}
		frozen.Thaw()
		w.wantObject("GET", "/api/v1/drain", "", "draining", false)
	}, func(c *gateway.Config, _ *Options) { c.Driver = transport.Net }) // an event loop waits outside the bubble
}

func TestLastUpgradeIsDescribed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.wantObject("GET", "/api/v1/upgrade", "", "state", "none", "from", "", "error", "")
	})
	last := upgrade.Status{State: "ok", From: "v1.0.0", To: "v1.1.0", Sessions: upgrade.StatusSessions{Moved: 40, Pumped: 2, Kept: 1}, FreezeMS: 12.5}
	inWorld(t, func(t *testing.T, w *world) {
		for _, last = range []upgrade.Status{last, {State: "running", From: "v1.1.0"}, {State: "refused", From: "v1.1.0", Error: "draining"}, {State: "aborted", From: "v1.1.0", To: "v1.2.0", Error: "offer: no room"}} {
			for name, body := range map[string][]byte{
				"upgrade":  w.call("GET", "/api/v1/upgrade").Body.Bytes(),
				"overview": member(t, w.call("GET", "/api/v1/overview").Body.Bytes(), "upgrade"),
			} {
				var got upgrade.Status
				if err := json.Unmarshal(body, &got); err != nil || got != last {
					t.Errorf("%s: %s, want %+v", name, body, last)
				}
			}
		}
	}, func(_ *gateway.Config, o *Options) { o.Upgrade = func() upgrade.Status { return last } })
}

// member returns a member of a JSON object.
func member(t *testing.T, object []byte, name string) []byte {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		t.Fatal(err)
	}
	return all[name]
}

// commands returns the command lines in a page's shell blocks, and the statuses in the
// comments after them; 0 stands for any successful one.
func commands(t *testing.T, page string) (lines []string, statuses []int) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			line, comment, _ := strings.Cut(strings.TrimSpace(line), " # ")
			status := 0
			if comment != "" {
				if status, err = strconv.Atoi(comment); err != nil {
					t.Fatalf("%s # %s: %v", line, comment, err)
				}
			}
			lines, statuses = append(lines, line), append(statuses, status)
		}
	}
	return lines, statuses
}

// A curl is a command line of that program.
type curl struct {
	method, target, body string
	header               []string
	stream               bool
}

var word = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)

// parseCurl parses the options of curl that the page uses. Any other fails the test.
func parseCurl(t *testing.T, line string, values map[string]string) (c curl) {
	t.Helper()
	words := word.FindAllString(line, -1)
	for i, w := range words {
		quoted := strings.HasPrefix(w, "'")
		if quoted || strings.HasPrefix(w, `"`) {
			words[i] = w[1 : len(w)-1]
		}
		if !quoted {
			words[i] = os.Expand(words[i], func(name string) string {
				v, ok := values[name]
				if !ok {
					t.Fatalf("%s: $%s is nothing yet", line, name)
				}
				return v
			})
		}
	}
	if words[0] != "curl" {
		t.Fatalf("%q is no curl", line)
	}
	for words = words[1:]; len(words) > 0; words = words[1:] {
		switch w := words[0]; w {
		case "-N":
			c.stream = true
			continue
		case "-X":
			c.method = words[1]
		case "-H":
			c.header = append(c.header, words[1])
		case "-d", "--data-binary", "--json":
			c.body = words[1]
		default:
			if c.target != "" || !strings.HasPrefix(w, "http://admin/") {
				t.Fatalf("%s: what is %s?", line, w)
			}
			c.target = strings.TrimPrefix(w, "http://admin")
			continue
		}
		words = words[1:]
	}
	if c.method == "" {
		c.method = http.MethodGet
		if c.body != "" {
			c.method = http.MethodPost
		}
	}
	return c
}

func TestDocumentedCommandsWork(t *testing.T) {
	inTown(t, []string{"n1", "n2"}, func(t *testing.T, nodes []*place) {
		w := nodes[0].world
		s := w.serve()
		values := map[string]string{"ADMIN": "http://admin", "TOKEN": adminToken}
		lines, statuses := commands(t, "../../docs/control-api.md")
		used := map[string]bool{}
		for i, line := range lines {
			c := parseCurl(t, line, values)
			if c.stream {
				s.listen(strings.TrimPrefix(c.target, "/api/v1/events")).Close()
				used["GET /api/v1/events"] = true
				continue
			}
			rec := w.send(c.method, c.target, c.body, c.header...)
			if want := statuses[i]; rec.Code != want && (want > 0 || rec.Code >= 300) {
				t.Errorf("%s: %d %s, want %d", line, rec.Code, rec.Body, want)
			}
			var made created
			if json.Unmarshal(rec.Body.Bytes(), &made); rec.Code == http.StatusCreated {
				values["ID"] = made.ID
			}
			target, _, _ := strings.Cut(c.target, "?")
			target = regexp.MustCompile(`sessions/[0-9a-f]+`).ReplaceAllString(target, "sessions/{id}")
			target = regexp.MustCompile(`nodes/[^/]*`).ReplaceAllString(target, "nodes/{name}")
			target = regexp.MustCompile(`groups/[^/]*`).ReplaceAllString(target, "groups/{group}")
			used[c.method+" "+regexp.MustCompile(`pprof/.*`).ReplaceAllString(target, "pprof/{profile}")] = true
		}
		for path, item := range described.Paths.Map() {
			for method := range item.Operations() {
				if !used[method+" "+path] && !strings.HasPrefix(path, "/debug/") && !isDashboard(path) {
					t.Errorf("%s %s has no line in the page", method, path)
				}
			}
		}
	})
}
