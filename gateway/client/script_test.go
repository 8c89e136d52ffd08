package client_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/wire"
)

// A script is what a gateway and the application do, and what the client makes of it. Its steps are separated by
// semicolons; connections are counted from 1, ^ stands for DLE.
type script struct {
	name    string
	members map[string]any // of each hello
	steps   string
}

const (
	final4404 = `^close {"code":4404,"retry":false}`
	final4409 = `^close {"code":4409,"retry":false}`
	suspected = "lively; mark; conn at 4s; "
)

const failover = `hello {"moved":"failover","durable":true}`

var resuming = map[string]any{"part_bytes": 4, "partial": map[string]any{}}

var large, part = strings.Repeat("x", 64<<10), strings.Repeat("x", 4096)

var scripts = []script{
	// Acks.
	{"acks are due by count, bytes and time", nil, "1< ^ack 0; 1> x; reads x; +700ms; 1<; +300ms; 1< ^ack 1; " + strings.Repeat("1> x; reads x; ", 32) + "1< ^ack 33; " +
		"1> " + large + "; reads " + large + "; 1< ^ack 34; 1> x; reads x; 1> ^ping are you there; 1< ^ack 35 | ^pong are you there"},
	{"an ack that has waited goes with data", nil, // protocol section 5.2: what is sent together costs the gateway one read
		"1< ^ack 0; 1> x; reads x; +400ms; say early; 1< early; +200ms; 1> y; reads y; say later; say more; 1< ^ack 2 | later | more; +1s; 1<"},
	{"a pong follows the delivery of earlier messages", nil, // the pings show that the client lives, and promise nothing
		"1< ^ack 0; 1> unread; 1> ^ping older; 1> ^ping newer; 1< ^ping 1 | ^ping 2; reads unread; 1< ^ack 1 | ^pong newer"},
	{"unknown verbs and members are ignored", map[string]any{"news": 1},
		`1> ^sing {a song}; 1> ^sing; 1> ^token {"token":"newer","news":[]}; 1> still here; reads still here; 1 drops; conn; states true newer 1`},
	{"duplicates are discarded and acked", nil, // 2 and 3 have arrived, and nothing has read them
		`1> 1; 1> 2; 1> 3; reads 1; 1 drops; conn; states 1; hello {"replay":3}; 2> 2; 2> 3; 2> 4; reads 2; reads 3; reads 4; +1s; 2< ^ack 1 | ^ack 4`},

	// The end.
	{"a close message is final, with a Close frame", nil, `1> ^close {"code":4410,"reason":"ended","retry":false}; 1 closes 4410; ends 4410; dials 1`},
	{"a close message is final, without one", nil, `1> ^close {"code":4410,"reason":"ended","retry":false}; ends 4410; dials 1`},
	{"a connection that the gateway half-closes is closed", nil, "1 half-closes; conn; 1< ^ack 0 | the end"},
	{"superseded by its own abandoned attempt, the client resumes", nil, // section 6; the next time it must be another client
		"1 drops; conn; 2 drops; conn; hello; 3> " + final4409 + "; conn; hello; 4> here again; reads here again; 4> " + final4409 + "; ends 4409"},
	{"an error concerns what the attempt stated", nil,
		`1> unread; 1 drops; conn; reads unread; 2> ^close {"code":4400,"retry":false}; conn; states 1; 3> ` + final4404 + "; ends 4404"},

	{"a retryable close is retried after retry_after_ms, though that is longer than the grace period", nil,
		`mark; 1> ^close {"code":4503,"reason":"draining","retry":true,"retry_after_ms":70000}; conn after 70s within 76s; ` +
			`mark; 2> ^close {"code":4429,"retry":true,"retry_after_ms":3000}; conn after 3s; hello`},

	// Moves.
	{"a move uses the old connection until the new hello", nil, // and acks nothing beyond what was stated
		`1< ^ack 0; mark; 1> ^move {"within_ms":10000,"reason":"drain"}; conn within 10s; 1> one; reads one; say up; +2s; 1< up; hello {"received":1,"replay":1}; ` +
			"2> one; 1> never; 2> two; reads two; +1s; 2< ^ack 0 | ^ack 2; lost 1; away 0s"},
	{"a refused move changes nothing", nil, `1> ^move {"within_ms":1000}; conn; 2> ^close {"code":4401,"retry":false}; 1> still here; reads still here`},
	{"a move has more time than a resume", nil, `late 8s; 1> ^move {"within_ms":0}; conn; hello; lost 1; dials 2`},
	{"a failover is not taken after an ack on the older connection", nil, `say a; 1> ^move {"within_ms":1}; conn; 1> ^ack 1; hello {"moved":"failover"}; 2< the end`},

	{"each handshake says what is settled", nil, // protocol section 5.6: without it no session is durable
		`settled 0 0; say a; say b; say c; 1> ^ack 1; 1 drops; conn; settled 1 3; hello {"received":2}; 2 drops; conn; settled 2 3`},
	{"a failover counts from what its handshake stated", nil,
		"1> 1; 1> 2; 1> 3; reads 1; 1 drops; conn; " + failover + "; 2> of the next; reads of the next; moved failover; resumes 1"},
	{"a failover is not taken after a message was handed over meanwhile", nil,
		"1> 1; 1> 2; 1> 3; reads 1; 1 drops; conn; reads 2; " + failover + "; 2< the end; conn; states 2; " + failover + "; 3> of the next; reads of the next; moved failover; resumes 1"},

	{"a message in parts is read whole, with control messages in between", map[string]any{"part_bytes": 4096}, // and an ack each second says that it comes
		`1> ^parts {"bytes":8200,"text":true,"later":1}; 1>> ` + "\x10\x10" + part[2:] + "; 1> ^ping 7; +1s; +1s; +1s; 1>> " + part + "; 1< ^ack 0 | ^pong 7 | ^ack 0; " +
			"1>> yyyyyyyy; 1> small; reads \x10" + part[2:] + part + "yyyyyyyy; reads small; +1s; 1< ^ack 2"},
	{"a message in parts begins anew after a resume", nil, `1> ^parts {"bytes":6}; 1>> one; 1 drops; conn; hello; 2> ^parts {"bytes":6}; 2>> one; 2>> two; reads onetwo`},

	{"a message goes on where its connection was cut", resuming,
		`1> ^parts {"bytes":8,"text":true}; 1>> abcd; 1>> ef; 1 drops; conn; states 0; holds 6; hello {"partial":{"down":6},"replay":1}; ` +
			`2> ^parts {"bytes":8,"text":true,"from":6}; 2>> gh; 2> small; reads abcdefgh; reads small; +1s; 2< ^ack 0 | ^ack 2`},
	{"a message begins anew where the gateway says so, and is stated no more", resuming,
		`1> ^parts {"bytes":8}; 1>> abcd; 1 drops; conn; holds 4; hello; 2 drops; conn; holds 0; hello; 3> ^parts {"bytes":4}; 3>> new!; reads new!; 3 drops; conn; states 1; holds 0`},
	{"an attempt that stated less than came meanwhile goes on from there", resuming,
		`1> ^parts {"bytes":8}; 1>> ab; 1> ^move {"within_ms":0}; conn; holds 2; 1>> cdef; hello {"partial":{"down":2}}; 2> ^parts {"bytes":8,"from":2}; 2>> cdef; 2>> gh; reads abcdefgh`},
	{"a message that came whole on the older connection meanwhile is discarded", resuming,
		`1> ^parts {"bytes":4}; 1>> ab; 1> ^move {"within_ms":0}; conn; 1>> cd; reads abcd; 1> ^parts {"bytes":4}; 1>> ef; hello {"partial":{"down":2}}; ` +
			`2> ^parts {"bytes":4,"from":2}; 2>> cd; 2> ^parts {"bytes":4}; 2>> efgh; reads efgh; +1s; 2< ^ack 0 | ^ack 2`},
	{"of a message that is known nothing is stated", resuming,
		`1> ^parts {"bytes":4}; 1>> ab; 1> ^move {"within_ms":0}; conn; 1>> cd; reads abcd; hello {"partial":{"down":2}}; 2> ^parts {"bytes":4,"from":2}; 2>> c; 2 drops; conn; states 1; holds 0`},
	{"of a message behind unread ones nothing is stated", resuming, // N is that of the unread
		`1> unread; 1> ^parts {"bytes":4}; 1>> ab; 1 drops; conn; states 0; holds 0; hello; 2> unread; 2> ^parts {"bytes":4}; 2>> abcd; reads unread; reads abcd`},
	{"parts are answered after 32 KiB, after 250 ms, and before each pong", map[string]any{"part_bytes": 4096, "partial": map[string]any{}},
		`1> ^parts {"bytes":61440}; ` + strings.Repeat("1>> "+part+"; ", 7) + "1< ^ack 0; 1>> " + part + "; 1< ^part 32768; 1>> " + part + "; +249ms; 1<; +2ms; 1< ^part 36864; " +
			"1>> " + part + "; 1> ^ping x; 1< ^part 40960 | ^pong x; 1> ^ping y; 1< ^pong y; +1s; 1>> " + part + "; 1< ^part 45056; " +
			strings.Repeat("1>> "+part+"; ", 4) + "reads " + large[:61440] + "; 1<; +251ms; 1< ^ack 1"},
	{"a large message is sent in parts, of its type and bytes", resuming,
		`say abcd; say abcdefghi; say ` + "\x10abc" + `; 1< ^ack 0 | abcd | ^parts {"bytes":9,"text":true} | abcd | efgh | i | ^parts {"bytes":5,"text":true} | ^^ab | c`},
	{"an older gateway gets no parts", map[string]any{"part_bytes": 4}, `say abcdefghi; 1< ^ack 0 | abcdefghi`},
	{"of a large message a window is sent; control messages pass the rest", map[string]any{"part_bytes": 4096, "partial": map[string]any{}},
		"say " + part + part + part + "; say after it; 1< ^ack 0 | ^parts {" + `"bytes":12288,"text":true}` + strings.Repeat(" | "+part[:1024], 8) + " | ^ping 1; 1> ^ping x; 1< ^pong x; 1> ^part 1024; 1< " + part[:1024] +
			"; 1> ^part 9216; 1< " + part[:3072] + " | after it; 1 drops; conn; " + `hello {"received":1}; 2< ^ack 0 | after it`},
	{"a large message goes on at the byte that the gateway names", resuming,
		`say abcdefghijk; say next; 1 drops; conn; hello {"partial":{"up":6}}; 2< ^ack 0 | ^parts {"bytes":11,"text":true,"from":6} | ghij | k | next`},

	{"skipped messages count as if they had come", nil,
		`1> one; reads one; 1> ^skip 3; 1> five; reads five; skips 3; +1s; 1< ^ack 0 | ^ack 5; 1 drops; conn; states 5; hello {"replay":1,"skipped":7}; skipped 7; ` +
			"2> ^skip 7; 2> last; reads last; skips 3 7; +1s; 2< ^ack 5 | ^ack 13"},
	{"numbers that the application has are not skipped", nil,
		`1> ^move {"within_ms":0}; conn; 1> one; 1> two; reads one; reads two; hello {"skipped":5,"replay":1}; 2> ^skip 5; skips 3; 2> six; reads six`},
	{"a resume may state a number among unread and skipped ones", nil, // only what was read before them is stated
		`1> one; 1> ^skip 2; 1> four; reads one; 1 drops; conn; states 3; hello {"replay":1}; 2> four; reads four; skips 2`},

	// The answer rule.
	{"dead under traffic", answering, // away since the last sign of life
		"1< ^ack 0; +1s; mark; say up; 1< up; +2.5s; 1< ^ping 1; conn at 5s; lost 0: no answer for 5s; hello; lost 1: no answer for 5s; away 6s; 2< ^ack 0 | up"},
	{"dead and idle", answering, "1< ^ack 0; mark; +17.5s; 1< ^ping 1; conn at 20s; hello; lost 1: no answer for 5s; away 20s; 2< ^ack 0"},
	{"dead without answer_ms", nil, "mark; say up; conn at 30s; 1< ^ack 0 | up | the end; lost 0: nothing heard for 30s"},
	{"a withheld ack does not disconnect", answering, "1< ^ack 0; say up; 1< up; answers 40 every 2.5s; 1> ^ack 1; +10s; 1<; lost 0"},
	{"writing a small message is no activity: it fits into the send buffer", answering,
		"mark; say up; +1s; say up; +1s; say up; +1s; say up; +1s; conn at 5s; lost 0: no answer for 5s"},
	{"what hello counts as received is not unanswered", answering,
		`say up; 1 drops; conn; hello {"received":1}; +17.5s; 2< ^ack 0 | ^ping 1; 2> ^pong 1; +14s; 2<`},
	{"timeouts double after a dead connection, until new data arrives", answering,
		"mark; say up; conn at 5s; hello; conn at 15s; hello; 3> new; reads new; conn at 20s; hello; lost 3: no answer for 5s | no answer for 10s | no answer for 5s"},
	{"a heartbeat ends the doubling", answering,
		`mark; say up; conn at 5s; hello {"received":1}; 2> ^ping 1; mark; say up; conn at 5s; lost 1: no answer for 5s | no answer for 5s`},

	// Suspicion.
	{"a silent lively line starts an attempt beside it, and continues", suspicious,
		"lively; mark; +2s; 1< ^ack 10 | ^ping 1; lost 0; conn at 4s; lost 0: nothing heard for 4s; +1s; say up; 1< up; hello; 2< ^ack 10 | up; 1< the end; " +
			"lost 1: nothing heard for 4s; away 5s"},
	{"a sign of life before the 101 drops the attempt", suspicious,
		"lively; late 2s; say one; +4.5s; lost 0: nothing heard for 4s; 1> y; lost 1: nothing heard for 4s; away 4.5s; reads y; +1s; say two; " +
			"1< one | ^ack 10 | ^ping 1 | ^ack 11 | two; lost 1: nothing heard for 4s"},
	{"an ack held back for an attempt is sent after it", suspicious,
		"lively; 1> eleven; late 1h; +4.5s; reads eleven; +1s; 1< ^ack 10 | ^ping 1; 1> ^pong 1; 1< ^ack 11"},
	{"a takeover of a silent line may mean that it is slower", answering, "lively; say up; mark; conn at 4s; mark; hello; conn at 10s"},
	{"a takeover of a line that spoke was a false alarm", suspicious, // the next attempt is not 4 s after the last data
		suspected + `mark; 1> eleven; reads eleven; hello {"replay":1}; 2> eleven; lively; conn at 8s`},
	{"a final refusal keeps a live connection", suspicious,
		suspected + `1> ^grace 30000; 2> ^close {"code":4401,"retry":false}; lost 1: nothing heard for 4s; 1> eleven; reads eleven`},
	{"a sign of life after the 101 lets the attempt finish", suspicious, // the gateway may have sent the hello: the next message comes on both
		suspected + "states 10; 1> eleven; reads eleven; say one; +1.5s; 1< ^ack 10 | ^ping 1 | one; lost 0: nothing heard for 4s; " +
			`hello {"received":1,"replay":1}; 2> eleven; 1> never; 2> twelve; reads twelve; say two; +1s; 2< ^ack 10 | two | ^ack 12; lost 1: nothing heard for 4s; away 1.5s; replay 1`},
	{"the answer rule applies under suspicion, and one loss is reported", answering,
		"lively; say up; mark; conn at 4s; +1.5s; 1< up | ^ack 10 | ^ping 1 | ^ping 2 | the end; hello; lost 1: nothing heard for 4s; 2< ^ack 10 | up"},
	{"an attempt beside without a 101 times out", suspicious, "lively; mark; dark; +5s; lit; conn at 8s; hello; lost 1: nothing heard for 4s"},
	{"a refused attempt beside is not repeated at once", suspicious,
		suspected + "2 drops; conn at 8s; 3> " + final4404 + `; conn at 12s; 4> ^close {"code":4503,"retry":true,"retry_after_ms":9000}; conn at 21s; lost 0: nothing heard for 4s`},
}

func init() {
	// What a gateway must not send: the client closes the connection and resumes.
	for what, says := range map[string]string{
		"an empty control message": "1> ^", "an ack of nothing": "1> ^ack 1", "a bye": "1> ^bye", "a second hello": `1> ^hello {"session":"s1","token":"t"}`,
		"another session": `1> ^hello {"session":"s2","token":"t"}`, "no UTF-8": "1> ^\xff", "a text for a part": `1> ^parts {"bytes":10,"text":true}; 1> part`,
		"too large a part": `1> ^parts {"bytes":3,"text":true}; 1>> part`, "an empty part": `1> ^parts {"bytes":3,"text":true}; 1>> `,
		"a skip of nothing": "1> ^skip 0", "a skip inside parts": `1> ^parts {"bytes":4}; 1> ^skip 1`, "parts from elsewhere": `1> ^parts {"bytes":4,"from":2}`,
		"a hello of what was not stated": `1 drops; conn; hello {"partial":{"down":3}}`, "a hello of what was not sent": `1 drops; conn; hello {"partial":{"up":3}}`,
		"parts in parts": `1> ^parts {"bytes":9}; 1> ^parts {"bytes":9}`, "parts of nothing": "1> ^parts", "parts over the limit": `1> ^parts {"bytes":99999999999}`,
	} {
		scripts = append(scripts, script{what + " breaks the connection", nil, says + "; conn; states 0; hello; losses 1; resumes 1"})
	}
	// The attempt fails after a sign of life, and the old connection continues.
	for how, fails := range map[string]string{
		"is reset": "2 drops", "is refused": "2> " + final4404, "stays silent": strings.TrimSuffix(strings.Repeat("1> ^grace 30000; +1s; ", 16), "; "),
	} {
		scripts = append(scripts, script{"an attempt that " + how + " keeps an older connection that spoke", suspicious,
			suspected + "1> eleven; reads eleven; +1s; 1< ^ack 10 | ^ping 1; " + fails + "; lost 1: nothing heard for 4s; 1< ^ack 11; 1> twelve; reads twelve; dials 2"})
	}
	// The suspected connection ends, which is no sign of life: its loss has been reported.
	for how, ends := range map[string]string{"reset": "1 drops", "superseded": "1> " + final4409 + "; 1 closes 4409", "broken": "1> ^ack 99"} {
		for when, late := range map[string]string{"with a 101": "", "without": "late 2s; "} {
			scripts = append(scripts, script{"the loss of a suspected connection is reported once: " + how + ", " + when, suspicious,
				"lively; " + late + "+4.5s; " + ends + "; lost 0: nothing heard for 4s; conn; hello; lost 1: nothing heard for 4s; away at least 4.5s; 2> eleven; reads eleven; dials 2"})
		}
	}
}

func TestClientFollowsScripts(t *testing.T) {
	for _, c := range scripts {
		t.Run(c.name, func(t *testing.T) {
			onStage(t, c.members, func(s *stage, g *wstest.Peer) {
				p := &play{stage: s, script: c, conns: []*wstest.Peer{g}, mark: time.Now()}
				for i, step := range strings.Split(c.steps, "; ") {
					synctest.Wait()
					if p.step(step); s.Failed() {
						s.Fatalf("step %d: %.200s", i+1, step)
					}
				}
			})
		})
	}
}

// A play is a script on its stage.
type play struct {
	*stage
	script
	conns []*wstest.Peer
	mark  time.Time
}

func (p *play) newest() *wstest.Peer { return p.conns[len(p.conns)-1] }

func (p *play) step(step string) {
	verb, rest, _ := strings.Cut(step, " ")
	if n, err := strconv.Atoi(strings.TrimRight(verb, "<>")); err == nil {
		p.onConn(p.conns[n-1], strings.TrimLeft(verb, "0123456789"), rest)
		return
	}
	switch verb {
	case "say":
		p.say(rest)
	case "reads":
		p.want(rest)
	case "ends":
		p.wantClose(p.number(rest), false)
	case "mark":
		p.mark = time.Now()
	case "lively":
		p.lively(p.newest())
	case "late":
		p.late.Store(int64(p.duration(rest)))
	case "dark", "lit":
		p.dark.Store(verb == "dark")
	case "conn": // at, after or within TIME since the mark
		p.conns = append(p.conns, p.door.Next())
		took, how := time.Since(p.mark), strings.Fields(rest)
		for ; len(how) > 1; how = how[2:] {
			if d := p.duration(how[1]); how[0] != "within" && took < d || how[0] != "after" && took > d {
				p.Errorf("a handshake after %v", took)
			}
		}
	case "settled":
		if o := wire.ParseOffer(p.newest().Req.Header); !o.SettledOK || fmt.Sprint(o.Settled.Acked, o.Settled.Sent) != rest {
			p.Errorf("settled %+v", o.Settled)
		}
	case "states":
		if got := stated(p.newest()); !strings.HasSuffix(" "+got, " "+rest) {
			p.Errorf("the handshake states %s", got)
		}
	case "holds":
		offered := strings.Join(wire.Protocols(p.newest().Req.Header), " ") + " "
		if !strings.Contains(offered, wire.PrefixPartial+rest+" ") {
			p.Errorf("the handshake offers %s", offered)
		}
	case "skips":
		if got := fmt.Sprint(p.skips); got != "["+rest+"]" {
			p.Errorf("skipped %s", got)
		}
	case "skipped":
		if got := p.resumes[len(p.resumes)-1].Skipped; got != uint64(p.number(rest)) {
			p.Errorf("%d messages skipped", got)
		}
	case "hello":
		m := map[string]any{"resumed": true}
		maps.Copy(m, p.members)
		if rest != "" {
			if err := json.Unmarshal([]byte(rest), &m); err != nil {
				p.Fatal(err)
			}
		}
		hello(p.newest(), m)
	case "answers": // N every TIME: so many pings
		how := strings.Fields(rest)
		for i := range p.number(how[0]) {
			time.Sleep(p.duration(how[2]))
			p.heard(p.newest(), fmt.Sprint("^ping ", i+1))
			p.newest().Control(fmt.Sprint("pong ", i+1))
		}
	case "lost": // RESUMES: the losses
		resumes, losses, _ := strings.Cut(rest, ": ")
		p.wantLost(p.number(resumes), list(losses)...)
	case "away":
		least, ok := strings.CutPrefix(rest, "at least ")
		if away := p.resumes[len(p.resumes)-1].Away; ok && away < p.duration(least) || !ok && away != p.duration(rest) {
			p.Errorf("away for %v", away)
		}
	case "moved":
		if got := p.resumes[len(p.resumes)-1].Moved; got != rest {
			p.Errorf("moved by %q", got)
		}
	case "replay", "dials", "losses", "resumes":
		got := map[string]int{"dials": int(p.dials.Load()), "losses": len(p.lost), "resumes": len(p.resumes)}[verb]
		if verb == "replay" {
			got = int(p.resumes[len(p.resumes)-1].Replay)
		}
		if got != p.number(rest) {
			p.Errorf("there are %d", got)
		}
	default:
		if d, ok := strings.CutPrefix(verb, "+"); ok {
			time.Sleep(p.duration(d))
			return
		}
		p.Fatal("no such step")
	}
}

// onConn is a step of a connection.
func (p *play) onConn(g *wstest.Peer, verb, rest string) {
	control, isControl := strings.CutPrefix(rest, "^")
	switch {
	case verb == "<":
		p.heard(g, list(rest)...)
	case verb == ">" && isControl:
		g.Control(control)
	case verb == ">":
		g.Text(rest)
	case verb == ">>":
		g.Binary(rest)
	case rest == "drops":
		g.Drop()
	case rest == "half-closes":
		g.Conn.CloseWrite()
	default:
		code, ok := strings.CutPrefix(rest, "closes ")
		if !ok {
			p.Fatal("no such step")
		}
		g.Close(p.number(code), "")
	}
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, " | ")
}

func (p *play) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		p.Fatal(err)
	}
	return n
}

func (p *play) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		p.Fatal(err)
	}
	return d
}
