// Package fields fills and compares structs field by field, unexported ones too, so that a
// test notices a field that a walk over the struct has forgotten.
//
// A path names a field: its names with dots between, and [] behind those of slices. A
// list of omitted fields has their paths, and why.
package fields

import (
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// Fill sets each field of *p to a value of its own, but those that omit names, which must exist.
func Fill(t testing.TB, p any, omit map[string]string) {
	t.Helper()
	f := filler{t: t, omit: omit, seen: map[string]bool{}}
	f.fill(reflect.ValueOf(p).Elem(), "")
	for path := range omit {
		if !f.seen[path] {
			t.Errorf("no field is called %s", path)
		}
	}
	if f.n < 40 {
		t.Fatalf("%d fields: the walk over the types is broken", f.n)
	}
}

type filler struct {
	t    testing.TB
	omit map[string]string
	seen map[string]bool
	n    int
}

func (f *filler) fill(v reflect.Value, path string) {
	f.t.Helper()
	f.seen[path] = true
	if f.omit[path] != "" {
		return
	}
	v = open(v)
	f.n++
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(int64(1_000_000+f.n), int64(f.n)).UTC()
		return
	case *http.Header:
		*x = http.Header{"A": {fmt.Sprint("value ", f.n)}, "B": {"b", ""}}
		return
	case *netip.Prefix:
		*x = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(f.n)}), 32)
		return
	}
	if isAtomicString(v) {
		s := fmt.Sprint("value ", f.n)
		v.Addr().MethodByName("Store").Call([]reflect.Value{reflect.ValueOf(&s)})
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if v.Type().PkgPath() == "sync" {
			return
		}
		for i := range v.NumField() {
			f.fill(v.Field(i), join(path, v.Type().Field(i).Name))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i), path+"[]")
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint64, reflect.Uint32, reflect.Uint8:
		most := 200
		if v.Kind() == reflect.Uint8 && v.Type() != reflect.TypeFor[uint8]() {
			most = 2 // of an enumeration
		}
		v.SetUint(uint64(1 + f.n%most))
	case reflect.Float64:
		v.SetFloat(float64(f.n) / 4)
	case reflect.String:
		v.SetString(fmt.Sprint("value ", f.n))
	default:
		f.t.Fatalf("%s is a %v: neither filled nor on the list", path, v.Type())
	}
}

// Same checks that *got is what *want is, but for the fields that omit names.
func Same(t testing.TB, want, got any, omit map[string]string) {
	t.Helper()
	same(t, reflect.ValueOf(want).Elem(), reflect.ValueOf(got).Elem(), "", omit)
}

func same(t testing.TB, want, got reflect.Value, path string, omit map[string]string) {
	t.Helper()
	if omit[path] != "" {
		return
	}
	want, got = open(want), open(got)
	_, isTime := want.Interface().(time.Time)
	_, isPrefix := want.Interface().(netip.Prefix)
	switch {
	case want.Kind() == reflect.Struct && want.Type().PkgPath() == "sync":
	case isAtomicString(want):
		w, g := want.Addr().MethodByName("Load").Call(nil)[0], got.Addr().MethodByName("Load").Call(nil)[0]
		if g.IsNil() || w.Elem().String() != g.Elem().String() {
			t.Errorf("%s is %v, want %v", path, g, w.Elem())
		}
	case want.Kind() == reflect.Struct && !isTime && !isPrefix:
		for i := range want.NumField() {
			same(t, want.Field(i), got.Field(i), join(path, want.Type().Field(i).Name), omit)
		}
	case want.Kind() == reflect.Pointer && !want.IsNil() && !got.IsNil():
		same(t, want.Elem(), got.Elem(), path, omit)
	case want.Kind() == reflect.Slice && want.Type().Elem().Kind() != reflect.Uint8 && want.Len() == got.Len():
		for i := range want.Len() {
			same(t, want.Index(i), got.Index(i), path+"[]", omit)
		}
	default:
		if !reflect.DeepEqual(want.Interface(), got.Interface()) {
			t.Errorf("%s is %v, want %v", path, got.Interface(), want.Interface())
		}
	}
}

func join(path, name string) string { return strings.Trim(path+"."+name, ".") }

// open makes unexported fields readable and settable.
func open(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

func isAtomicString(v reflect.Value) bool {
	return strings.HasPrefix(v.Type().String(), "atomic.Pointer[string]")
}
