package session

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"reseat/gateway/replay"
	"reseat/gateway/tlv"
)

// notInState names the fields that the state omits, and why.
var notInState = map[string]string{
	"cfg.Store":         "the new process has its own",
	"cfg.Key":           "a function",
	"events":            "Freeze refuses while there are any",
	"ring":              "replay.State and its content",
	"up":                "always first afterwards",
	"writer":            "Freeze refuses while a write is in flight",
	"charged":           "Restore counts again",
	"gen":               "by Issued and Confirmed",
	"att.flight":        "Freeze refuses while a write is in flight",
	"att.rest":          "of released connections, which stay with their process",
	"first.flight":      "Freeze refuses while a write is in flight",
	"first.final":       "only while a write is in flight",
	"q.pieces":          "joined",
	"q.borrowed":        "Freeze retains what is borrowed",
	"q.charge":          "the length of the pieces",
	"q.units[0].to":     "a pointer: present or not",
	"q.units[1].to":     "a pointer: present or not",
	"outcome":           "an ended session is not restored",
	"takeovers[0]":      "", // checked below: every name here must exist
	"keepalives.due[0]": "",
	"keepalives.seen":   "the new process learns them again, within three keepalives",
	"futile.since":      "",
	"att.closing.code":  "",
	"att.parts.next":    "only while a write is in flight",
}

// eachField calls f with the path and value of each field of v.
func eachField(v reflect.Value, path string, f func(path string, v reflect.Value)) {
	if why := notInState[path]; why != "" {
		return
	}
	v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem() // unexported, too
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if v.Type().Field(i).Anonymous {
				name = ""
			}
			eachField(v.Field(i), strings.Trim(path+"."+name, "."), f)
		}
	case reflect.Pointer:
		eachField(v.Elem(), path, f)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			f(path, v)
			return
		}
		for i := range v.Len() {
			eachField(v.Index(i), fmt.Sprintf("%s[%d]", path, i), f)
		}
	default:
		f(path, v)
	}
}

// everyField returns a session whose fields are all nonzero, and as different from each
// other as their types allow.
func everyField(t *testing.T) *Session {
	t.Helper()
	s := &Session{
		att: &Attachment{closing: new(relayedClose), pings: make([]probe, 2), wsPongs: pongs{make([][]byte, 2)}, news: make([]news, 2), parts: new(parts)},
		cfg: Config{KeepaliveReplies: make([]KeepaliveReply, 2), Keepalives: make([]Keepalive, 2)}, keepalives: &keepalives{due: make([]Time, 2)}, takeovers: make([]Time, 2),
		durable: new(durable), q: upqueue{units: make([]unit, 2)}, first: Upstream{pongs: pongs{make([][]byte, 2)}},
	}
	s.up = &s.first
	n := int64(0)
	eachField(reflect.ValueOf(s).Elem(), "", func(path string, v reflect.Value) {
		n++
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(n)
		case reflect.Uint32, reflect.Uint64:
			v.SetUint(uint64(n))
		case reflect.Uint8:
			v.SetUint(uint64(1 + n%2))
		case reflect.Float64:
			v.SetFloat(float64(n) / 4)
		case reflect.String:
			v.SetString(fmt.Sprint(n))
		case reflect.Slice:
			v.SetBytes(fmt.Append(nil, n))
		default:
			t.Fatalf("%s is a %v: neither in the State nor on the list", path, v.Kind())
		}
	})
	s.q.pieces = [][]byte{[]byte("queued "), []byte("frames")}
	s.q.units[1].to = s.up
	s.gen.Restore(7, 5)
	if n < 120 {
		t.Fatalf("%d fields: the walk over the types is broken", n)
	}
	return s
}

// A forgotten field would be lost in an upgrade.
func TestStateHasEveryFieldOrNamesReason(t *testing.T) {
	s := everyField(t)
	ring := replay.State{Base: replay.Mark{Off: 1, N: 2}, Last: replay.Mark{Off: 3, N: 4}, End: 5, Held: 6, Raw: 7, Free: 8, Burst: true}
	out := tlv.Write(func(c *tlv.Codec) { s.walk(c) })
	rings := tlv.Write(func(c *tlv.Codec) { walkRing(&ring, c) })

	got := &Session{}
	got.up = &got.first
	if err := tlv.Read(out, func(c *tlv.Codec) { got.walk(c) }); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	eachField(reflect.ValueOf(s).Elem(), "", func(path string, v reflect.Value) { want[path] = v.Interface() })
	eachField(reflect.ValueOf(got).Elem(), "", func(path string, v reflect.Value) {
		if !reflect.DeepEqual(want[path], v.Interface()) {
			t.Errorf("%s is %v, want %v", path, v.Interface(), want[path])
		}
		delete(want, path)
	})
	for path := range want {
		t.Errorf("%s is missing", path)
	}
	if got.gen != s.gen || got.q.units[0].to != nil || got.q.units[1].to != got.up {
		t.Errorf("generations %+v, want %+v; units for %p and %p", got.gen, s.gen, got.q.units[0].to, got.q.units[1].to)
	}
	if all := slices.Concat(got.q.pieces...); string(all) != "queued frames" || got.q.charge != len(all) || got.q.borrowed != 1 {
		t.Errorf("queue %q, charge %d, borrowed %d", all, got.q.charge, got.q.borrowed)
	}
	var ringGot replay.State
	if err := tlv.Read(rings, func(c *tlv.Codec) { walkRing(&ringGot, c) }); err != nil {
		t.Fatal(err)
	}
	if ringGot != ring {
		t.Errorf("ring %+v, want %+v", ringGot, ring)
	}
}

// An entry for a field that does not exist would hide a renamed one.
func TestListOfOmittedFieldsNamesFields(t *testing.T) {
	s := everyField(t)
	seen := map[string]bool{}
	list := notInState
	notInState = nil
	defer func() { notInState = list }()
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		seen[path] = true
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				name := v.Type().Field(i).Name
				if v.Type().Field(i).Anonymous {
					name = ""
				}
				walk(v.Field(i), strings.Trim(path+"."+name, "."))
			}
		case reflect.Pointer:
			if !v.IsNil() && path != "up" && !strings.HasSuffix(path, ".to") {
				walk(v.Elem(), path)
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
			}
		}
	}
	walk(reflect.ValueOf(s).Elem(), "")
	for path := range list {
		if !seen[path] {
			t.Errorf("no field is called %s", path)
		}
	}
}

// Input from a socket may be truncated anywhere, or come from another program.
func FuzzRestore(f *testing.F) {
	store := replay.NewStore(1<<30, nil)
	s := New(Config{ID: "s", Resumable: true, Heartbeat: 1, BufferBytes: 1 << 20, BufferMessages: 10, MaxMessage: 1 << 20, Store: store, Key: func() [4]byte { return [4]byte{} }}, 1, []byte{0x82, 1, 'x', 0x82})
	frozen, err := s.Freeze(Formats[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frozen.State, slices.Concat(frozen.Content...))
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0xff}, []byte{1})
	f.Fuzz(func(t *testing.T, state, content []byte) {
		s, err := Restore(Formats[0], state, content, store, func() [4]byte { return [4]byte{} })
		if err != nil {
			return
		}
		now := Time(1 << 50)
		s.Tick(now)
		s.Out(now, s.Upstream(), nil)
		if a := s.Attachment(); a != nil {
			s.Out(now, a, nil)
		}
		s.Fail(now)
	})
}
