// Package tlv encodes state that another process is to read: numbered fields with their
// lengths. One walk over the fields of a value writes them or reads them.
package tlv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// A Codec writes fields, or reads them. One walk over the fields does both, so
// that no field can be written and not read. A field is its number, its kind and a value;
// a zero value is not written. A reader skips numbers that it does not know, and leaves
// missing fields as they are. Therefore a walk visits numbers in increasing order, and
// a number is never reused for another meaning.
type Codec struct {
	writing bool
	b       []byte // what has been written, or what remains to be read
	last    uint64 // number of the field visited last
	ahead   uint64 // reading: number of the field that b begins with, 0 if that is not known
	err     error
}

// usualSize is the capacity to begin with: most sessions fit.
const usualSize = 512

// Write returns the fields that walk visits.
func Write(walk func(*Codec)) []byte { return Append(make([]byte, 0, usualSize), walk) }

// Append appends the fields that walk visits to b.
func Append(b []byte, walk func(*Codec)) []byte {
	c := Codec{writing: true, b: b}
	walk(&c)
	return c.b
}

// Read reads b, which Write has written, into the fields that walk visits.
func Read(b []byte, walk func(*Codec)) error {
	c := Codec{b: b}
	walk(&c)
	return c.err
}

// Writing reports whether the walk writes its fields. Otherwise it reads them.
func (c *Codec) Writing() bool { return c.writing }

// Fail notes that a value read cannot be right, if err is not nil. The first error counts.
func (c *Codec) Fail(err error) {
	if c.err == nil && err != nil {
		c.err = err
	}
}

// The kinds of a field, in its lowest bit.
const (
	varint = 0 // a number
	length = 1 // a length and that many bytes
)

var errTruncated = errors.New("truncated")

// visit notes that field id is next.
func (c *Codec) visit(id uint64) {
	if id <= c.last {
		c.misplaced(id)
	}
	c.last = id
}

//go:noinline
func (c *Codec) misplaced(id uint64) {
	panic(fmt.Sprintf("tlv: field %d visited after %d", id, c.last))
}

// field seeks field id in the input. It returns its number or its bytes, and whether it
// is there.
func (c *Codec) field(id uint64, kind uint64) (n uint64, p []byte, found bool) {
	c.visit(id)
	for c.err == nil && len(c.b) > 0 {
		head, w := uvarint(c.b)
		if w <= 0 {
			c.err = errTruncated
			break
		}
		if c.ahead = head >> 1; c.ahead > id {
			return 0, nil, false
		}
		v, vw := uvarint(c.b[w:])
		if vw <= 0 {
			c.err = errTruncated
			break
		}
		rest := c.b[w+vw:]
		if head&1 == length {
			if v > uint64(len(rest)) {
				c.err = errTruncated
				break
			}
			p, rest = rest[:v], rest[v:]
		}
		c.b, c.ahead = rest, 0
		if head>>1 == id {
			if head&1 != kind {
				c.err = fmt.Errorf("field %d is of another kind", id)
				break
			}
			return v, p, true
		}
	}
	c.ahead = math.MaxUint64 // there are no more
	return 0, nil, false
}

// absent reports whether it is known that field id is not in the input. It is the fast way
// past the many fields that have their zero value.
func (c *Codec) absent(id uint64) bool { return c.ahead > id && id > c.last }

// uvarint is binary.Uvarint, faster for the most frequent numbers.
func uvarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}

// raw writes bytes, or nothing where there are none.
func raw[T []byte | string](c *Codec, id uint64, p T) {
	if len(p) > 0 {
		c.append(id, length, uint64(len(p)))
		c.b = append(c.b, p...)
	}
}

// append writes a field's header and its number or length.
func (c *Codec) append(id, kind, v uint64) {
	c.visit(id)
	if id < 0x40 && v < 0x80 {
		c.b = append(c.b, byte(id<<1|kind), byte(v))
		return
	}
	c.b = binary.AppendUvarint(c.b, id<<1|kind)
	c.b = binary.AppendUvarint(c.b, v)
}

// Num visits a number. Reading, it refuses values that the field's type cannot hold.
func Num[T ~int | ~int32 | ~int64 | ~uint64 | ~uint32 | ~uint16 | ~uint8](c *Codec, id uint64, x *T) {
	if c.writing {
		if *x != 0 {
			c.append(id, varint, uint64(*x))
		}
		return
	}
	if c.absent(id) {
		c.last = id
		return
	}
	if v, _, ok := c.field(id, varint); ok {
		*x = T(v)
		if uint64(*x) != v {
			c.err = fmt.Errorf("field %d is out of range", id)
		}
	}
}

// Bool visits a truth value, as 0 or 1.
func (c *Codec) Bool(id uint64, x *bool) {
	if !c.writing && c.absent(id) {
		c.last = id
		return
	}
	var n uint8
	if *x {
		n = 1
	}
	Num(c, id, &n)
	*x = n != 0
}

// Float visits a number by its bits, so that no precision is lost.
func (c *Codec) Float(id uint64, x *float64) {
	if !c.writing && c.absent(id) {
		c.last = id
		return
	}
	n := math.Float64bits(*x)
	Num(c, id, &n)
	*x = math.Float64frombits(n)
}

// Bytes visits bytes. Reading, it copies them: the input may be reused.
func (c *Codec) Bytes(id uint64, x *[]byte) {
	if c.writing {
		raw(c, id, *x)
	} else if c.absent(id) {
		c.last = id
	} else if _, p, ok := c.field(id, length); ok {
		*x = append([]byte(nil), p...)
	}
}

// String visits a string.
func (c *Codec) String(id uint64, x *string) {
	if c.writing {
		raw(c, id, *x)
	} else if c.absent(id) {
		c.last = id
	} else if _, p, ok := c.field(id, length); ok {
		*x = string(p)
	}
}

// Sub visits the fields of a nested value.
func (c *Codec) Sub(id uint64, walk func(*Codec)) {
	if c.writing {
		c.visit(id)
		start := len(c.b)
		c.b = binary.AppendUvarint(c.b, id<<1|length)
		if c.nested(walk) == 0 {
			c.b = c.b[:start]
		}
		return
	}
	_, p, ok := c.field(id, length)
	if !ok {
		return
	}
	if err := c.within(p, func() { walk(c) }); err != nil {
		c.Fail(fmt.Errorf("field %d: %w", id, err))
	}
}

// nested writes the fields that walk visits, behind their length, and returns that.
func (c *Codec) nested(walk func(*Codec)) int {
	mark, last := len(c.b), c.last
	c.b, c.last = append(c.b, 0), 0
	walk(c)
	c.last = last
	n := len(c.b) - mark - 1
	if n < 0x80 {
		c.b[mark] = byte(n)
		return n
	}
	var size [binary.MaxVarintLen64]byte
	w := binary.PutUvarint(size[:], uint64(n))
	c.b = slices.Replace(c.b, mark, mark+1, size[:w]...)
	return n
}

// within reads p by walk, and then continues with the present input.
func (c *Codec) within(p []byte, walk func()) error {
	outer := *c
	*c = Codec{b: p}
	walk()
	failed := c.err
	*c = outer
	return failed
}

// List visits a list; walk visits one element.
func List[T any](c *Codec, id uint64, x *[]T, walk func(*Codec, *T)) {
	if !c.writing {
		*x = nil
	}
	c.Sub(id, func(c *Codec) {
		if c.writing {
			for i := range *x {
				c.nested(func(c *Codec) { walk(c, &(*x)[i]) })
			}
			return
		}
		for len(c.b) > 0 && c.err == nil {
			n, w := binary.Uvarint(c.b)
			if w <= 0 || n > uint64(len(c.b)-w) {
				c.err = errTruncated
				return
			}
			var v T
			c.Fail(c.within(c.b[w:w+int(n)], func() { walk(c, &v) }))
			*x, c.b = append(*x, v), c.b[w+int(n):]
		}
	})
}

// Pointer visits a value that may be absent. It uses two numbers: id for whether it is
// there, id+1 for the value.
func Pointer[T any](c *Codec, id uint64, x **T, walk func(*T, *Codec)) {
	there := *x != nil
	c.Bool(id, &there)
	if !there {
		*x = nil
		c.Sub(id+1, func(*Codec) {})
		return
	}
	if *x == nil {
		*x = new(T)
	}
	c.Sub(id+1, func(c *Codec) { walk(*x, c) })
}
