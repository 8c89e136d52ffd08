package admin

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"reseat/gateway"
)

func TestDataIsReturnedVerbatim(t *testing.T) {
	var every [256]byte
	for i := range every {
		every[i] = byte(i)
	}
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		w.wantProblem("GET", path(p)+"/data", http.StatusNotFound, "no data")
		tags := map[string]bool{}
		for _, body := range []string{"seat 3", "<script>alert(1)</script>", string(every[:]), "", strings.Repeat("x", gateway.MaxData), "seat 3"} {
			rec := w.send("PUT", path(p)+"/data", body)
			tag := rec.Header().Get("ETag")
			if rec.Code != http.StatusNoContent || tags[tag] || tag == "" {
				t.Fatalf("%d %s, ETag %s", rec.Code, rec.Body, tag)
			}
			tags[tag] = true
			got := w.call("GET", path(p)+"/data")
			if got.Code != http.StatusOK || got.Body.String() != body || got.Header().Get("ETag") != tag || got.Header().Get("Content-Type") != "application/octet-stream" || got.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%d %v, %d bytes of %d", got.Code, got.Header(), got.Body.Len(), len(body))
			}
		}
		w.wantRefused("PUT", path(p)+"/data", strings.Repeat("x", gateway.MaxData+1), http.StatusRequestEntityTooLarge, "65536")
		if rec := w.call("GET", path(p)+"/data"); rec.Body.String() != "seat 3" {
			t.Errorf("what was too large left %q", rec.Body)
		}
		other, _ := w.play("")
		w.wantProblem("GET", path(other)+"/data", http.StatusNotFound, "no data")
	})
}

func TestDataEndsWithItsSession(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		p, _ := w.play("")
		w.send("PUT", path(p)+"/data", "x")
		p.Drop()
		w.send("PUT", path(p)+"/data", "y") // while its client is detached
		w.wantStatus("DELETE", path(p), http.StatusNoContent)
		w.wantProblem("GET", path(p)+"/data", http.StatusNotFound, "deleted")
		w.wantRefused("PUT", path(p)+"/data", "z", http.StatusConflict, "ended")
		w.wantProblem("GET", sessions+"/x/data", http.StatusNotFound, "no such session")
		w.wantRefused("PUT", sessions+"/x/data", "z", http.StatusNotFound, "no such session")
	})
}

func TestConditionalRequestsAreHonoured(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		data := path(p) + "/data"
		put := func(status int, header ...string) string {
			t.Helper()
			rec := w.send("PUT", data, "x", header...)
			if rec.Code != status {
				t.Errorf("PUT with %q: %d %s, want %d", header, rec.Code, rec.Body, status)
			}
			return rec.Header().Get("ETag")
		}
		get := func(status int, header ...string) {
			t.Helper()
			if rec := w.send("GET", data, "", header...); rec.Code != status || status == http.StatusNotModified && (rec.Body.Len() > 0 || rec.Header().Get("ETag") == "") {
				t.Errorf("GET with %q: %d %s, want %d", header, rec.Code, rec.Body, status)
			}
		}
		put(412, "If-Match: *")
		put(412, `If-Match: "1"`)
		first := put(204, "If-None-Match: *")
		put(412, "If-None-Match: *")
		put(412, "If-None-Match: "+first)
		put(412, "If-None-Match: W/"+first)
		put(412, `If-None-Match: "a", `+first)
		second := put(204, "If-Match: "+first, `If-None-Match: "a"`)
		put(412, "If-Match: "+first)
		put(412, "If-Match: W/"+second)
		put(412, "If-Match: "+first, "If-None-Match: *")
		get(412, "If-Match: "+first)
		get(200, "If-Match: "+second)
		get(304, "If-None-Match: "+second)
		get(304, "If-None-Match: W/"+second)
		get(304, "If-None-Match: *")
		get(200, "If-None-Match: "+first)
		third := put(204, "If-Match: *")
		fourth := put(204, `If-Match: "a", W/"b", `+third+` ,"c"`)
		put(204, `If-Match: "a"`, "If-Match: "+fourth)
	})
}

func TestMalformedConditionsAreRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		tag := w.send("PUT", path(p)+"/data", "x").Header().Get("ETag")
		for _, v := range []string{"", " ", ",", strings.Trim(tag, `"`), `"a`, `a"`, `"a" "b"`, `*, "a"`, `w/"a"`, `W/a`, `"a";`} {
			for _, name := range []string{"If-Match: ", "If-None-Match: "} {
				w.wantRefused("PUT", path(p)+"/data", "y", http.StatusBadRequest, "in their quotes", name+v)
				w.wantRefused("GET", path(p)+"/data", "", http.StatusBadRequest, "in their quotes", name+v)
			}
		}
		if rec := w.call("GET", path(p)+"/data"); rec.Body.String() != "x" {
			t.Errorf("data is %q", rec.Body)
		}
	})
}

func TestEntityTagListsAreParsed(t *testing.T) {
	for value, want := range map[string][]string{
		"*": {"*"}, " * ": {"*"}, `"a"`: {`"a"`}, `W/"a"`: {`W/"a"`}, `"a","b"`: {`"a"`, `"b"`}, `"a" , W/"b",, "c" `: {`"a"`, `W/"b"`, `"c"`}, `""`: {`""`}, `"a,b"`: {`"a,b"`}, `"*"`: {`"*"`},
	} {
		got, err := readTags(http.Header{"If-Match": {value}}, "If-Match")
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", value, got, err)
		}
	}
}

// Of concurrent writers with the same tag, exactly one succeeds.
func TestExactlyOneConcurrentConditionalWriteSucceeds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		first := w.send("PUT", path(p)+"/data", "0").Header().Get("ETag")
		done := make(chan int)
		for range 50 {
			go func() {
				tag, o := w.gw.SetData(p.Hello.Session, []byte("x"), func(tag uint64) bool { return etag(tag) == first })
				if o == gateway.Done && tag > 0 {
					done <- 1
					return
				}
				done <- 0
			}()
		}
		won := 0
		for range 50 {
			won += <-done
		}
		if won != 1 {
			t.Errorf("%d of 50 were first", won)
		}
	})
}
