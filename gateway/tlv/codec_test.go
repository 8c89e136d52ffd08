package tlv

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// everything has a field of each kind, nested and in lists.
type everything struct {
	Small   uint8
	Large   uint64
	Below   int
	Yes     bool
	Float   float64
	Bytes   []byte
	Text    string
	List    []everything
	Pointer *everything
	Last    int
}

func (e *everything) walk(c *Codec) {
	Num(c, 1, &e.Small)
	Num(c, 2, &e.Large)
	Num(c, 3, &e.Below)
	c.Bool(4, &e.Yes)
	c.Float(5, &e.Float)
	c.Bytes(6, &e.Bytes)
	c.String(7, &e.Text)
	List(c, 8, &e.List, func(c *Codec, e *everything) { e.walk(c) })
	Pointer(c, 9, &e.Pointer, (*everything).walk)
	c.Sub(63, func(c *Codec) { Num(c, 200, &e.Last) })
}

func filled() *everything {
	inner := everything{Small: 255, Text: "inner", Last: 7}
	return &everything{
		Small: 200, Large: 1 << 63, Below: -5, Yes: true, Float: -0.25, Bytes: []byte("bytes"), Text: strings.Repeat("text", 100),
		List: []everything{{}, inner, {Bytes: make([]byte, 200)}}, Pointer: &inner, Last: 1 << 40,
	}
}

func TestFieldsRoundTrip(t *testing.T) {
	for _, want := range []*everything{{}, {Pointer: new(everything)}, filled()} {
		got := new(everything)
		if err := Read(Write(want.walk), got.walk); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if b := Write(new(everything).walk); len(b) > 0 {
		t.Errorf("zero values take % x", b)
	}
}

// A reader leaves fields as they are that an older process did not know. Only lists begin anew.
func TestMissingFieldsStayAsTheyAre(t *testing.T) {
	got, want := filled(), filled()
	want.List = nil
	if err := Read(nil, got.walk); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// A newer process writes fields that an older one does not know.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	one, two, three := 1, 2, []byte("three")
	b := Write(func(c *Codec) {
		Num(c, 1, &one)
		Num(c, 2, &two)
		c.Bytes(3, &three)
		c.Sub(4, func(c *Codec) { Num(c, 1, &two) })
		Num(c, 5, &two)
	})
	var got struct{ one, five int }
	err := Read(b, func(c *Codec) {
		Num(c, 1, &got.one)
		Num(c, 5, &got.five)
	})
	if err != nil || got.one != 1 || got.five != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Input is truncated between two fields at most: anywhere else that is noticed, whether the field is known or not.
func TestTruncatedFieldIsRefused(t *testing.T) {
	for name, field := range map[string]func(e, from *everything){
		"a number": func(e, from *everything) { e.Large = from.Large },
		"bytes":    func(e, from *everything) { e.Bytes = from.Bytes },
		"a string": func(e, from *everything) { e.Text = from.Text },
		"a list":   func(e, from *everything) { e.List = from.List },
		"a nested": func(e, from *everything) { e.Last = from.Last },
	} {
		e := new(everything)
		field(e, filled())
		b := Write(e.walk)
		for n := 1; n < len(b); n++ {
			for reader, walk := range map[string]func(*Codec){
				"that knows it": new(everything).walk, "that does not": func(c *Codec) { Num(c, 100, new(int)) },
			} {
				if err := Read(b[:n:n], walk); !errors.Is(err, errTruncated) {
					t.Errorf("%d of %d bytes of %s, for a reader %s: %v, want %v", n, len(b), name, reader, err, errTruncated)
				}
			}
		}
	}
}

func TestInvalidFieldIsRefused(t *testing.T) {
	for name, b := range map[string]string{
		"a number too large":        "\x02\x80\x02",
		"a number of another kind":  "\x03\x01x",
		"bytes of another kind":     "\x0c\x05",
		"a string of another kind":  "\x0e\x05",
		"a list of another kind":    "\x10\x05",
		"a truth of another kind":   "\x09\x01x",
		"a length beyond the end":   "\x0d\x06bytes",
		"a length beyond all":       "\x0d\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01bytes",
		"an element beyond its end": "\x11\x03\x05\x02\x01",
		"an element beyond all":     "\x11\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a field in an element":     "\x11\x04\x03\x02\x80\x02",
		"a field in a nested":       "\x12\x01\x15\x02\x02\x80",
		"a number without an end":   "\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"a field without an end":    "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		if err := Read([]byte(b), new(everything).walk); err == nil {
			t.Errorf("%s: % x is accepted", name, b)
		}
	}
}

// A number that is used twice would make a walk read what another field has written.
func TestWalkMustVisitNumbersInOrder(t *testing.T) {
	for _, second := range []uint64{1, 2} {
		func() {
			defer func() {
				if e := fmt.Sprint(recover()); e != fmt.Sprintf("tlv: field %d visited after 2", second) {
					t.Errorf("field %d after field 2: %s", second, e)
				}
			}()
			n := 1
			Write(func(c *Codec) {
				Num(c, 2, &n)
				Num(c, second, &n)
			})
		}()
	}
}
