package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// A codec writes fields to a State, or reads them. One walk over the fields does both, so
// that no field can be written and not read. A field is its number, its kind and a value;
// a zero value is not written. A reader skips numbers that it does not know, and leaves
// missing fields as they are. Therefore a walk visits numbers in increasing order, and
// a number is never reused for another meaning.
type codec struct {
	writing bool
	b       []byte // what has been written, or what remains to be read
	last    uint64 // number of the field visited last
	err     error
}

// The kinds of a field, in its lowest bit.
const (
	varint = 0 // a number
	length = 1 // a length and that many bytes
)

var errTruncated = errors.New("truncated")

// visit notes that field id is next.
func (c *codec) visit(id uint64) {
	if id <= c.last {
		panic(fmt.Sprintf("session: field %d visited after %d", id, c.last))
	}
	c.last = id
}

// field seeks field id in the input. It returns its number or its bytes, and whether it
// is there.
func (c *codec) field(id uint64, kind uint64) (n uint64, p []byte, found bool) {
	c.visit(id)
	for c.err == nil && len(c.b) > 0 {
		head, w := binary.Uvarint(c.b)
		if w <= 0 {
			c.err = errTruncated
			break
		}
		if head>>1 > id {
			break // of a later field
		}
		v, vw := binary.Uvarint(c.b[w:])
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
		c.b = rest
		if head>>1 == id {
			if head&1 != kind {
				c.err = fmt.Errorf("field %d is of another kind", id)
				break
			}
			return v, p, true
		}
	}
	return 0, nil, false
}

// append writes a field's header and its number or length.
func (c *codec) append(id, kind, v uint64) {
	c.visit(id)
	c.b = binary.AppendUvarint(c.b, id<<1|kind)
	c.b = binary.AppendUvarint(c.b, v)
}

// num visits a number. Reading, it refuses values that the field's type cannot hold.
func num[T ~int | ~int64 | ~uint64 | ~uint8](c *codec, id uint64, x *T) {
	if c.writing {
		if *x != 0 {
			c.append(id, varint, uint64(*x))
		}
		return
	}
	if v, _, ok := c.field(id, varint); ok {
		*x = T(v)
		if uint64(*x) != v {
			c.err = fmt.Errorf("field %d is out of range", id)
		}
	}
}

// bool visits a truth value, as 0 or 1.
func (c *codec) bool(id uint64, x *bool) {
	var n uint8
	if *x {
		n = 1
	}
	num(c, id, &n)
	*x = n != 0
}

// float visits a number by its bits, so that no precision is lost.
func (c *codec) float(id uint64, x *float64) {
	n := math.Float64bits(*x)
	num(c, id, &n)
	*x = math.Float64frombits(n)
}

// bytes visits bytes. Reading, it copies them: the input may be reused.
func (c *codec) bytes(id uint64, x *[]byte) {
	if c.writing {
		if len(*x) > 0 {
			c.append(id, length, uint64(len(*x)))
			c.b = append(c.b, *x...)
		}
		return
	}
	if _, p, ok := c.field(id, length); ok {
		*x = append([]byte(nil), p...)
	}
}

// string visits a string.
func (c *codec) string(id uint64, x *string) {
	p := []byte(*x)
	c.bytes(id, &p)
	*x = string(p)
}

// sub visits the fields of a nested value.
func (c *codec) sub(id uint64, walk func(*codec)) {
	if c.writing {
		inner := codec{writing: true}
		if walk(&inner); len(inner.b) > 0 {
			c.bytes(id, &inner.b)
		}
		return
	}
	if _, p, ok := c.field(id, length); ok {
		inner := codec{b: p}
		if walk(&inner); c.err == nil && inner.err != nil {
			c.err = fmt.Errorf("field %d: %w", id, inner.err)
		}
	}
}

// list visits a list; walk visits one element.
func list[T any](c *codec, id uint64, x *[]T, walk func(*codec, *T)) {
	if !c.writing {
		*x = nil
	}
	c.sub(id, func(c *codec) {
		if c.writing {
			for i := range *x {
				inner := codec{writing: true}
				walk(&inner, &(*x)[i])
				c.b = binary.AppendUvarint(c.b, uint64(len(inner.b)))
				c.b = append(c.b, inner.b...)
			}
			return
		}
		for len(c.b) > 0 && c.err == nil {
			n, w := binary.Uvarint(c.b)
			if w <= 0 || n > uint64(len(c.b)-w) {
				c.err = errTruncated
				return
			}
			inner := codec{b: c.b[w : w+int(n)]}
			var v T
			walk(&inner, &v)
			*x, c.b, c.err = append(*x, v), c.b[w+int(n):], inner.err
		}
	})
}

// pointer visits a value that may be absent. It uses two numbers: id for whether it is
// there, id+1 for the value.
func pointer[T any](c *codec, id uint64, x **T, walk func(*T, *codec)) {
	there := *x != nil
	c.bool(id, &there)
	if !there {
		*x = nil
		c.sub(id+1, func(*codec) {})
		return
	}
	if *x == nil {
		*x = new(T)
	}
	c.sub(id+1, func(c *codec) { walk(*x, c) })
}
