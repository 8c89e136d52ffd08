package cluster

import (
	"reflect"
	"testing"
	"time"
)

// Whatever lies in the engine is a seat, or an error. What is one can be written, and is the same then.
func FuzzSeat(f *testing.F) {
	s := seal{func(string, int) ([][]byte, error) {
		return [][]byte{[]byte("0123456789abcdef0123456789abcdef01234567")}, nil
	}}
	stored := StoredSeat{Session: "aaaaaaaa00", Revision: 7, Written: time.Unix(8, 0)}
	for _, seat := range []Seat{
		{Session: stored.Session},
		{Session: stored.Session, Owner: "aaaaaaaa", Epoch: 1 << 40, Handoff: true, Ended: 4404, Reason: "over", Keep: time.Hour, Body: []byte("body")},
	} {
		value, err := s.record(seat)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	f.Add([]byte("\x01\x02\x06\x80"))
	f.Add([]byte("\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add([]byte("\x01\x0a\x0c\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, value []byte) {
		stored := stored
		stored.Value = value
		head, err := readHead(stored)
		seat, sealed := s.seat(stored)
		if err != nil && sealed == nil {
			t.Fatalf("%+v, though its head cannot be read: %v", seat, err)
		}
		if err != nil {
			return
		}
		if head.Keep < 0 || head.Ended < 0 || head.Session != stored.Session || head.Revision != 7 || !head.Written.Equal(stored.Written) || head.Body != nil {
			t.Errorf("head %+v", head)
		}
		if stored.Value, err = s.record(head); err != nil {
			t.Fatal(err)
		}
		again, err := s.seat(stored)
		if err != nil || !reflect.DeepEqual(again, head) {
			t.Errorf("%+v became %+v, %v", head, again, err)
		}
	})
}
