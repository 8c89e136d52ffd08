package server

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"reseat/gateway/client"
	proto "reseat/gateway/wire"
)

// claims are statements that were true once, and are still where they are qualified: a paragraph, list item or row
// that says the one must say the other.
var claims = []struct{ said, qualified string }{
	{`resumes? must reach|as a resume of Reseat must`, `[Cc]luster`},
	{`[Ss]essions? (live|lives) in`, `[Cc]luster|durable`},
	{`one (ordinary )?WebSocket( connection)? per session`, `dial`},
	{`do(es)? not move between`, `between regions`},
	{`SIGHUP\W+reloads`, `cluster|operating\.md#signals`},
	{`(?i)token\b.*kept (only )?in memory`, `sessionStorage`},
	{`stays open while the client is away`, `by default`},
	{`all sessions( are)? lost`, `durable`},
}

var unitForm = regexp.MustCompile(`\n\n|\n *[-|] `)

func unqualified(text string) (list []string) {
	for _, unit := range unitForm.Split(text, -1) {
		for _, c := range claims {
			if regexp.MustCompile(c.said).MatchString(unit) && !regexp.MustCompile(c.qualified).MatchString(unit) {
				list = append(list, c.said)
			}
		}
	}
	return list
}

func TestPagesSayNothingThatHasCeasedToHold(t *testing.T) {
	for _, page := range append(pages(t), "SECURITY.md", "CONTRIBUTING.md", "web/README.md") {
		for _, said := range unqualified(readPage(t, page)) {
			t.Errorf("%s says %q without what limits it", page, said)
		}
	}
	got := unqualified("With Reseat a resume must reach the process that holds the session.\n- in a cluster a resume must reach a node\n| token | kept in memory |")
	if len(got) != 2 {
		t.Errorf("found %q", got)
	}
}

// The protocol's page is complete: it has every member of hello, and every word of an offer.
func TestProtocolPageNamesAllOfHelloAndOffer(t *testing.T) {
	page := readPage(t, "docs/protocol.md")
	for f := range reflect.TypeFor[proto.Hello]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("hello has %q, and the page does not", name)
		}
	}
	offers := regexp.MustCompile(`"(reseat\.[a-z]+)\.?"`).FindAllStringSubmatch(readPage(t, "gateway/wire/offer.go"), -1)
	if len(offers) < 4 {
		t.Errorf("%d words of an offer were found", len(offers))
	}
	for _, m := range offers {
		if m[1] != "reseat." && !strings.Contains(page, m[1]) {
			t.Errorf("a client may offer %q, and the page does not say so", m[1])
		}
	}
}

// A client's session can be durable if the client says what is settled: the page names those that do.
func TestClusterPageNamesTheClientsOfDurableSessions(t *testing.T) {
	page := readPage(t, "docs/cluster.md")
	row := regexp.MustCompile(`(?m)^\| .--durable .*$`).FindString(page)
	for name, source := range map[string]struct{ file, does string }{
		"the Go client": {"gateway/client/link.go", `"Reseat-Settled"`},
		"ReseatSocket":  {"web/client/session.js", "reseat.settled."},
	} {
		if does := strings.Contains(readPage(t, source.file), source.does); does != strings.Contains(row, name) {
			t.Errorf("%s says what is settled: %v. The page: %s", name, does, row)
		}
	}
}

// The pages of both clients have all that they report.
func TestPagesOfTheClientsNameTheirEvents(t *testing.T) {
	page := readPage(t, "docs/go-client.md")
	for f := range reflect.TypeFor[client.Options]().Fields() {
		if f.Type.Kind() == reflect.Func && !strings.Contains(page, "`Options."+f.Name+"`") {
			t.Errorf("docs/go-client.md lacks Options.%s", f.Name)
		}
	}
	page = readPage(t, "web/README.md")
	events := regexp.MustCompile(`(?m)^  (\w+): CustomEvent<`).FindAllStringSubmatch(readPage(t, "web/reseat.d.ts"), -1)
	if len(events) < 4 {
		t.Errorf("%d events were found", len(events))
	}
	for _, m := range events {
		if !strings.Contains(page, "event `"+m[1]+"`") && m[1] != "close" { // that of WebSocket
			t.Errorf("web/README.md lacks the event %s", m[1])
		}
	}
}
