package gateway

import (
	"net/http"
	"reflect"
	"testing"
)

// A redial adds to the headers of a handshake that the session keeps, and that may have none.
func TestKeptHandshakeIsNotChangedByARedial(t *testing.T) {
	for _, kept := range []http.Header{nil, {"Cookie": {"a=1"}, "Reseat-Resumed": {"hard"}}} {
		before := kept.Clone()
		got := with(kept, http.Header{"Reseat-Resumed": {"upstream"}})
		want := http.Header{"Reseat-Resumed": {"upstream"}}
		if kept != nil {
			want["Cookie"] = []string{"a=1"}
		}
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(kept, before) {
			t.Errorf("%v became %v, for %v", before, kept, got)
		}
	}
}
