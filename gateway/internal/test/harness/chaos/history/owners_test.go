package history

import "testing"

func TestOwners(t *testing.T) {
	for name, c := range map[string]struct {
		did  func(o *Owners)
		want bool
	}{
		"claims one after the other": {func(o *Owners) {
			o.Took(1, "b", 10, 20)
			o.Took(2, "c", 30, 40)
			o.Hello(0, "a", 1, 5)
			o.Hello(1, "b", 12, 25)
			o.Hello(2, "c", 31, 45)
		}, true},
		"a hand-over that only the hello tells of, and a claim that nothing tells of": {func(o *Owners) {
			o.Took(3, "d", 50, 60)
			o.Hello(1, "b", 12, 25)
			o.Hello(3, "d", 51, 65)
		}, true},
		"the older owner serves until a hello of the newer is taken": {func(o *Owners) {
			o.Took(1, "b", 10, 20)
			o.Hello(0, "a", 25, 26)
			o.Hello(1, "b", 27, 28)
		}, true},
		"an older owner afterwards": {func(o *Owners) {
			o.Took(1, "b", 10, 20)
			o.Hello(1, "b", 21, 22)
			o.Hello(0, "a", 25, 26)
		}, false},
		"a hello before the claim": {func(o *Owners) {
			o.Took(1, "b", 10, 20)
			o.Hello(1, "b", 5, 6)
		}, false},
		"a hello of another than the owner": {func(o *Owners) {
			o.Took(1, "b", 10, 20)
			o.Hello(1, "c", 21, 22)
		}, false},
		"a claim before an older one": {func(o *Owners) {
			o.Took(2, "c", 10, 20)
			o.Took(1, "b", 30, 40)
		}, false},
	} {
		var o Owners
		if c.did(&o); o.Check() != c.want {
			t.Errorf("%s: %v, want %v", name, !c.want, c.want)
		}
	}
	var o Owners
	if !o.Took(1, "b", 1, 2) || o.Took(1, "c", 3, 4) {
		t.Error("two nodes take a session in one epoch")
	}
}
