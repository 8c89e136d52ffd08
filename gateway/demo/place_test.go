package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"reseat/gateway"
	"reseat/gateway/cluster"
	"reseat/gateway/demo"
	"reseat/gateway/owner"
	"reseat/tokens"
)

const (
	here, there, lost = "aaaaaaaa", "bbbbbbbb", "cccccccc"
	session           = there + "00000000000000000000000000000000"
)

// A fake is a cluster of three nodes, of which one does not answer.
type fake struct {
	nodes []demo.Node
	asked []string
}

func (f *fake) Nodes() []demo.Node { return append([]demo.Node(nil), f.nodes...) }

func (f *fake) Do(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, _ := io.ReadAll(r.Body)
		body = " " + string(b)
	}
	f.asked = append(f.asked, r.Method+" "+r.URL.Host+r.URL.RequestURI()+body)
	answer := httptest.NewRecorder()
	switch {
	case r.URL.Host != there:
		return nil, errors.New("no answer")
	case r.Method == http.MethodGet:
		answer.WriteString(`{"url": "http://127.0.0.1:8082/", "front": "` + here + `"}`)
	default:
		answer.WriteHeader(http.StatusNoContent)
	}
	return answer.Result(), nil
}

func (f *fake) ID() string                                          { return here }
func (f *fake) Dial(context.Context, string) (net.Conn, error)      { return nil, errors.New("not here") }
func (f *fake) Judge(context.Context, string) (v cluster.Judgement) { return v }

// newPage serves the demo at a node of a cluster, or without one if f is nil.
func newPage(t *testing.T, f *fake) http.Handler {
	t.Helper()
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := gateway.Config{Keys: keys}
	show, err := demo.Start(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(show.Close)
	var place *demo.Place
	if f != nil {
		cfg.Cluster = f
		place = &demo.Place{Cluster: f, URL: "http://127.0.0.1:8081/", Origins: []string{"http://127.0.0.1:8082"}}
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	demo.Serve(g, place)
	return g
}

func newFake() *fake {
	return &fake{nodes: []demo.Node{{ID: here, Name: "n1", State: "up"}, {ID: there, Name: "n2", State: "up"}, {ID: lost, Name: "n3", State: "gone"}}}
}

func ask(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:8081"+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPageLearnsWhichNodesThereAre(t *testing.T) {
	f := newFake()
	w := ask(newPage(t, f), http.MethodGet, "/demo/nodes?session="+session, "")
	var got struct {
		Self, Owner, Front string
		Nodes              []demo.Node
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Self != here || got.Owner != there || got.Front != here || len(got.Nodes) != 3 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []string{"http://127.0.0.1:8081/", "http://127.0.0.1:8082/", ""} {
		if got.Nodes[i].URL != want {
			t.Errorf("node %d is at %q, want %q", i, got.Nodes[i].URL, want)
		}
	}
	if len(f.asked) != 1 {
		t.Errorf("asked %q, want the living node alone", f.asked)
	}
}

// A page that a node does not allow to connect does not offer to carry on there.
func TestNodeIsNotOfferedToPagesOfOtherOrigins(t *testing.T) {
	f := newFake()
	place := &demo.Place{Cluster: f, URL: "http://127.0.0.1:8082/", Origins: []string{"http://127.0.0.1:8081"}}
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{Keys: keys, Cluster: f})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	for host, want := range map[string]string{"127.0.0.1:8081": place.URL, "127.0.0.1:8083": ""} {
		f.asked = nil
		r := httptest.NewRequest(http.MethodGet, "http://"+host+"/demo/nodes", nil)
		newPage(t, f).ServeHTTP(httptest.NewRecorder(), r)
		_, path, _ := strings.Cut(f.asked[0], there)
		var got struct{ URL string }
		if w := ask(place.NodeHandler(g), http.MethodGet, path, ""); json.Unmarshal(w.Body.Bytes(), &got) != nil || got.URL != want {
			t.Errorf("a page of %s: %s, want %q", host, w.Body, want)
		}
	}
}

func TestPageWithoutClusterHasNoNodes(t *testing.T) {
	w := ask(newPage(t, nil), http.MethodGet, "/demo/nodes?session="+session, "", "Origin", "http://127.0.0.1:8082")
	if w.Code != http.StatusNoContent || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("status %d, %v", w.Code, w.Header())
	}
}

// The Content-Security-Policy of the page is as strict as before, but in a cluster.
func TestPageMayAskOtherNodesInAClusterAlone(t *testing.T) {
	for _, f := range []*fake{nil, newFake()} {
		policy := ask(newPage(t, f), http.MethodGet, "/", "").Header().Get("Content-Security-Policy")
		if _, sources, ok := strings.Cut(policy, "connect-src 'self' ws: wss:"); !ok || strings.HasPrefix(sources, " http: https:;") != (f != nil) {
			t.Errorf("in a cluster: %v, policy %q", f != nil, policy)
		}
	}
}

func TestOnlyPagesOfAllowedOriginsReadTheNodes(t *testing.T) {
	page := newPage(t, newFake())
	for origin, want := range map[string]string{"http://127.0.0.1:8082": "http://127.0.0.1:8082", "http://evil.example": ""} {
		for _, method := range []string{http.MethodGet, http.MethodOptions} {
			if got := ask(page, method, "/demo/nodes", "", "Origin", origin).Header().Get("Access-Control-Allow-Origin"); got != want {
				t.Errorf("%s from %s: allowed %q, want %q", method, origin, got, want)
			}
		}
	}
}

func (f *fake) Takers(string) []string { return nil }
func (f *fake) HandOff(context.Context, string, *owner.Handoff) error {
	return errors.New("not here")
}
