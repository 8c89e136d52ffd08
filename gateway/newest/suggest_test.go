package newest

import (
	"fmt"
	"strings"
	"testing"
)

// samples returns n messages of a format with the number of each; b: is binary.
func samples(n int, format string) (list []Sample) {
	for i := range n {
		body, binary := strings.CutPrefix(format, "b:")
		text := strings.ReplaceAll(body, "N", fmt.Sprint(i))
		list = append(list, Sample{!binary, []byte(strings.ReplaceAll(text, "E", fmt.Sprint(i%7)))})
	}
	return list
}

func TestRuleIsSuggestedForMessagesThatLookLikeStates(t *testing.T) {
	for name, tt := range map[string]struct {
		formats []string // with how often each in front
		want    string
	}{
		"JSON of one type":                     {[]string{`40 {"type":"state","tick":N}`, `9 {"type":"chat","text":"N"}`}, "json:/type=state"},
		"JSON of one type, of entities":        {[]string{`40 {"t":"pos","id":E,"x":N}`}, "json:/t=pos&/id"},
		"JSON of entities without a type":      {[]string{`40 {"player":"E","x":N}`}, "json:/player"},
		"JSON that says nothing":               {[]string{`40 {"x":N}`}, ""},
		"each message of an entity of its own": {[]string{`40 {"type":"spawn","id":N}`}, "json:/type=spawn"},
		"an event of Socket.IO":                {[]string{`40 42["state",{"tick":N}]`, `30 42["chat","N"]`}, `42["state"`},
		"a word":                               {[]string{`40 pos|N`}, "pos|"},
		"a word that reads as another form":    {[]string{`40 hex:N`}, "text:hex:"},
		"binary":                               {[]string{"40 b:\x07N", "10 b:\x08N"}, "hex:07"},
		"none that is more than half":          {[]string{`40 pos|N`, `40 chat N`}, ""},
		"few":                                  {[]string{`19 pos|N`}, ""},
		"numbers":                              {[]string{`40 N`}, ""},
		"nothing":                              {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var list []Sample
			for _, f := range tt.formats {
				var n int
				count, format, _ := strings.Cut(f, " ")
				fmt.Sscan(count, &n)
				list = append(list, samples(n, format)...)
			}
			got, n := Suggest(list)
			if got != tt.want {
				t.Errorf("%q for %d of %d messages, want %q", got, n, len(list), tt.want)
			}
			if got == "" {
				return
			}
			rules, err := Parse([]string{"state=" + got})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				if _, ok := rules.AppendKey(nil, m.Text, m.Payload, true); ok {
					n--
				}
			}
			if n != 0 {
				t.Errorf("%q does not match as many messages as it was suggested for: %d more or less", got, n)
			}
		})
	}
}
