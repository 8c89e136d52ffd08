package tlv

import "testing"

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
