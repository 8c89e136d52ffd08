package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// The program itself runs behind a stand-in for gateways that die, wake up and hand over: it
// dials as they do, with the numbers that a player has. testdata/peers/counting.test.js runs
// the same tests with the program for Node, which it names in COUNTING_SCRIPT.

const patience = 30 * time.Second

// asGame makes the test binary the program.
const asGame = "COUNTING_GAME"

func TestMain(m *testing.M) {
	if os.Getenv(asGame) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A player's message n says value(n).
func value(n uint64) int64 { return int64(n*n + 1) }

// values is what the messages from the first to the last one say.
func values(first, last uint64) []int64 {
	list := []int64{}
	for n := first; n <= last; n++ {
		list = append(list, value(n))
	}
	return list
}

func total(list []int64) (sum int64) {
	for _, x := range list {
		sum += x
	}
	return sum
}

// A process is the game server that runs, and a session of it.
type process struct {
	t       *testing.T
	addr    string
	session string
}

// start starts the program, which ends with the test. Without a setting the game does nothing
// by itself.
func start(t *testing.T, settings ...string) *process {
	t.Helper()
	if script := os.Getenv("COUNTING_SCRIPT"); script != "" {
		return begin(t, exec.Command("node", script), settings...)
	}
	return begin(t, exec.Command(os.Args[0]), settings...)
}

func begin(t *testing.T, cmd *exec.Cmd, settings ...string) *process {
	t.Helper()
	cmd.Env = append(append(os.Environ(), asGame+"=1", "TICK_MS=0"), append(settings, "PORT=0")...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	var said struct{ Listening struct{ Port int } }
	if err := errors.Join(err, json.Unmarshal(line, &said)); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return &process{t, "127.0.0.1:" + strconv.Itoa(said.Listening.Port), "s"}
}

// report returns what the game reports of the session; nothing if it does not know it.
func (p *process) report() report {
	p.t.Helper()
	resp, err := http.Get("http://" + p.addr + "/report")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var all struct{ Sessions []report }
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || all.Sessions == nil {
		p.t.Fatalf("%+v, %v", all, err)
	}
	for _, r := range all.Sessions {
		if r.Session == p.session {
			return r
		}
	}
	return report{}
}

// until returns the report once it is as wanted.
func (p *process) until(wanted func(report) bool) report {
	p.t.Helper()
	for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
		r := p.report()
		if wanted(r) {
			return r
		}
		if time.Since(began) > patience {
			p.t.Fatalf("the game reports %+v", r)
		}
	}
}

// wantApplied checks that exactly the player's messages up to the last one were applied, in
// order, and that the player has the game's state.
func (p *process) wantApplied(last uint64, player *player) report {
	p.t.Helper()
	r := p.until(func(r report) bool { return r.Received >= last })
	if !slices.Equal(r.Applied, values(1, last)) || r.Received != last || r.Lost != 0 {
		p.t.Errorf("%d messages, lost %d, applied %v, want %v", r.Received, r.Lost, r.Applied, values(1, last))
	}
	if player.received != r.Sent || player.sum != r.Sum {
		p.t.Errorf("the player has %d messages and the sum %d, the game %d and %d", player.received, player.sum, r.Sent, r.Sum)
	}
	return r
}

// A line is a gateway's connection to the game.
type line struct {
	t    *testing.T
	ws   *websocket.Conn
	tcp  *net.TCPConn
	next uint64 // the number of the game's next message on it
}

// dialled is a request of a gateway: its epoch, and what a redial says.
type dialled struct {
	epoch          int
	resumed        string
	upFrom, downTo uint64
}

func (d dialled) header() http.Header {
	h := http.Header{"Reseat-Epoch": {strconv.Itoa(d.epoch)}}
	if d.resumed != "" {
		h.Set("Reseat-Resumed", d.resumed)
		h.Set("Reseat-Up-From", strconv.FormatUint(d.upFrom, 10))
		h.Set("Reseat-Down-From", strconv.FormatUint(d.downTo+1, 10))
	}
	return h
}

// try dials the game as a gateway does, and returns the status of its answer.
func (p *process) try(session string, h http.Header) (*line, int) {
	p.t.Helper()
	h.Set("Reseat-Session", session)
	l := &line{t: p.t, next: 1}
	if n, err := strconv.ParseUint(h.Get("Reseat-Down-From"), 10, 64); err == nil {
		l.next = n
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				l.tcp = c.(*net.TCPConn)
			}
			return c, err
		},
	}}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, "ws://"+p.addr+"/match/7", &websocket.DialOptions{HTTPClient: client, HTTPHeader: h})
	if resp == nil {
		p.t.Fatal(err)
	}
	if err == nil {
		p.t.Cleanup(func() { ws.CloseNow() })
	}
	l.ws = ws
	return l, resp.StatusCode
}

func (p *process) dial(d dialled) *line {
	p.t.Helper()
	l, status := p.try(p.session, d.header())
	if status != http.StatusSwitchingProtocols {
		p.t.Fatalf("the game answers %d", status)
	}
	return l
}

// write writes the player's messages from the first to the last one.
func (l *line) write(first, last uint64) {
	l.t.Helper()
	for _, x := range values(first, last) {
		l.text(strconv.FormatInt(x, 10))
	}
}

func (l *line) text(s string) {
	l.t.Helper()
	if err := l.ws.Write(l.t.Context(), websocket.MessageText, []byte(s)); err != nil {
		l.t.Fatal(err)
	}
}

// A sent is a message of the game's, and its number on the connection.
type sent struct {
	number uint64
	message
}

// read returns the next n messages of the game's.
func (l *line) read(n int) (list []sent) {
	l.t.Helper()
	for range n {
		m, err := l.one(patience)
		if err != nil {
			l.t.Fatalf("after %d messages, want %d: %v", len(list), n, err)
		}
		list = append(list, m)
	}
	return list
}

func (l *line) one(within time.Duration) (sent, error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), within)
	defer cancel()
	_, data, err := l.ws.Read(ctx)
	if err != nil {
		return sent{}, err
	}
	m := sent{number: l.next}
	l.next++
	return m, json.Unmarshal(data, &m.message)
}

// hearsNothing returns nil if the game has written no message: a Pong comes behind all that was
// written before it.
func (l *line) hearsNothing() error {
	heard, pong := make(chan error, 1), make(chan error, 1)
	go func() {
		m, err := l.one(patience)
		heard <- fmt.Errorf("it has brought %+v, %v", m, err)
	}()
	go func() { pong <- l.ws.Ping(l.t.Context()) }()
	select {
	case err := <-heard:
		return err
	case err := <-pong:
		return err
	}
}

// die lets the gateway die while it writes a message: some bytes of a frame are the last.
func (l *line) die(bytes int) {
	l.t.Helper()
	frame := append([]byte{0x81, 0x80 + 9, 0, 0, 0, 0}, "123456789"...)
	_, err := l.tcp.Write(frame[:bytes])
	if err := errors.Join(err, l.tcp.SetLinger(0), l.tcp.Close()); err != nil {
		l.t.Fatal(err)
	}
}

// A player gives each message a number, and takes each message once.
type player struct {
	t        *testing.T
	received uint64
	sum      int64
}

// take takes what a gateway's connection has brought, in order.
func (p *player) take(list []sent) {
	p.t.Helper()
	for _, m := range list {
		if m.number != p.received+1 || m.N != m.number {
			p.t.Fatalf("message %d is number %d of the connection, after message %d", m.N, m.number, p.received)
		}
		p.received++
		switch {
		case m.Add != nil:
			p.sum += *m.Add
		case m.Sum != nil:
			p.sum = *m.Sum
		}
	}
}

func TestMessagesAreAppliedAndArriveOnceWhereverGatewayDies(t *testing.T) {
	all := start(t)
	for written := range uint64(13) {
		t.Run(fmt.Sprint(written), func(t *testing.T) {
			game, player := &process{t, all.addr, fmt.Sprint(written)}, &player{t: t}
			acked := written * 5 / 7 // to the player, who sends the later ones again
			had := written * 3 / 8   // by the player; the gateway had read more
			first := game.dial(dialled{epoch: 1})
			first.write(1, written)
			player.take(first.read(int(had)))
			game.until(func(r report) bool { return r.Received >= acked }) // a reset takes what is unread with it
			first.die(int(written))
			second := game.dial(dialled{2, "failover", acked + 1, had})
			second.write(acked+1, 20)
			player.take(second.read(int(20 - had)))
			game.wantApplied(20, player)
			if r := game.until(func(r report) bool { return r.Repeats == int(written-acked) }); r.Connections != 2 {
				t.Errorf("%d connections", r.Connections)
			}
		})
	}
}

func TestDialWithoutPlayerDoesNoHarm(t *testing.T) {
	game, player := start(t), &player{t: t}
	first := game.dial(dialled{epoch: 1})
	first.write(1, 9)
	player.take(first.read(9)[:4])
	first.die(0)
	for epoch := range 3 {
		unused := game.dial(dialled{2 + epoch, "failover", 7, 4})
		unused.write(7, uint64(9+epoch))
		unused.read(5)
		unused.die(3)
	}
	last := game.dial(dialled{1005, "failover", 7, 4})
	last.write(7, 15)
	player.take(last.read(11))
	game.wantApplied(15, player)
}

func TestGatewayThatWasAsleepRepeatsNothingAndHearsNothing(t *testing.T) {
	game, player := start(t), &player{t: t}
	asleep := game.dial(dialled{epoch: 1})
	asleep.write(1, 5)
	player.take(asleep.read(5)[:3])
	second := game.dial(dialled{2, "failover", 4, 3})
	second.write(4, 8)
	player.take(second.read(5))
	asleep.write(6, 9) // the player's, which they have sent to both: 9 is new to the game
	game.until(func(r report) bool { return r.Received == 9 })
	second.write(9, 12)
	player.take(second.read(4))
	if r := game.wantApplied(12, player); r.Repeats != 2+3+1 {
		t.Errorf("%d repeats", r.Repeats)
	}
	if err := asleep.hearsNothing(); err != nil {
		t.Errorf("the connection of the gateway that was asleep: %v", err)
	}
}

func TestOlderConnectionIsClosedIfItsGatewayDoesNot(t *testing.T) {
	game := start(t, "LINGER_MS=50")
	older := game.dial(dialled{epoch: 1})
	newer := game.dial(dialled{2, "upstream", 1, 0})
	if _, err := older.one(patience); errors.Is(err, context.DeadlineExceeded) {
		t.Error("it is open")
	}
	newer.write(1, 3)
	newer.read(3)
}

func TestAckedMessagesStillUnderWayComeFirst(t *testing.T) {
	game, player := start(t, "WAIT_MS=60000", "LINGER_MS=60000"), &player{t: t}
	slow := game.dial(dialled{epoch: 1})
	slow.write(1, 5)
	slow.read(5)
	second := game.dial(dialled{2, "failover", 8, 0})
	second.write(8, 9)
	player.take(second.read(5))
	if r := game.report(); !slices.Equal(r.Applied, values(1, 5)) {
		t.Errorf("applied %v: message 8 must wait for 6 and 7", r.Applied)
	}
	slow.write(6, 6)
	slow.write(7, 7)
	player.take(second.read(4))
	game.wantApplied(9, player)
}

func TestAckedMessagesThatDiedWithMachineAreReported(t *testing.T) {
	for how, end := range map[string]func(*line){
		"WAIT_MS=60000": func(l *line) { l.die(0) },
		"WAIT_MS=100":   func(*line) {}, // a lost machine says nothing
	} {
		t.Run(how, func(t *testing.T) {
			game, player := start(t, how, "LINGER_MS=60000"), &player{t: t}
			first := game.dial(dialled{epoch: 1})
			first.write(1, 5)
			player.take(first.read(5))
			second := game.dial(dialled{2, "failover", 8, 5})
			second.write(8, 9)
			end(first)
			came := second.read(3)
			player.take(came)
			if m := came[0]; m.N != 6 || m.Sum == nil || *m.Sum != total(values(1, 5)) || m.Lost != 2 {
				t.Errorf("%+v", m)
			}
			r := game.report()
			if want := append(values(1, 5), values(8, 9)...); !slices.Equal(r.Applied, want) || r.Received != 9 || r.Lost != 2 || r.Sum != player.sum {
				t.Errorf("%+v, want %v applied, and the player's sum %d", r, want, player.sum)
			}
		})
	}
}

func TestRequestOfLowerEpochIsRefused(t *testing.T) {
	game, player := start(t), &player{t: t}
	newest := game.dial(dialled{epoch: 7})
	newest.write(1, 3)
	player.take(newest.read(3))
	late := dialled{6, "upstream", 1, 0}.header()
	for range 2 {
		if _, status := game.try("s", late); status != http.StatusConflict {
			t.Errorf("status %d", status)
		}
		newest.tcp.Close()
	}
	if r := game.wantApplied(3, player); r.Refused != 2 {
		t.Errorf("%d refused", r.Refused)
	}
}

func TestHandOffRepeatsNothing(t *testing.T) {
	game, player := start(t), &player{t: t}
	first := game.dial(dialled{epoch: 1})
	first.write(1, 6)
	player.take(first.read(2))
	if err := first.ws.Close(websocket.StatusGoingAway, "moved"); err != nil {
		t.Fatal(err)
	}
	second := game.dial(dialled{2, "handoff", 7, player.received})
	second.write(7, 9)
	player.take(second.read(9 - int(player.received)))
	if r := game.wantApplied(9, player); r.Repeats != 0 || r.Resyncs != 0 {
		t.Errorf("%+v", r)
	}
}

func TestNextConnectionBringsWhatWasSaidWithoutOne(t *testing.T) {
	game, player := start(t, "TICK_MS=5"), &player{t: t}
	first := game.dial(dialled{epoch: 1})
	player.take(first.read(2))
	first.die(0)
	r := game.until(func(r report) bool { return r.Sent > player.received+20 })
	second := game.dial(dialled{2, "failover", 1, 2})
	player.take(second.read(int(r.Sent)))
	if uint64(player.sum) != player.received {
		t.Errorf("%d messages, each of which adds 1, add %d", player.received, player.sum)
	}
}

func TestPlayerWhoLacksMoreThanIsKeptGetsState(t *testing.T) {
	game, player := start(t, "KEPT_MESSAGES=4"), &player{t: t}
	first := game.dial(dialled{epoch: 1})
	for n := range uint64(9) {
		first.write(n+1, n+1)
		first.read(1)
	}
	second := game.dial(dialled{2, "failover", 10, 0})
	second.write(10, 12)
	came := second.read(4)
	player.take(came)
	if m := came[0]; m.N != 1 || m.Sum == nil || *m.Sum != total(values(1, 9)) {
		t.Errorf("%+v", m)
	}
	game.wantApplied(12, player)
	third := game.dial(dialled{3, "failover", 13, 0}) // the oldest that is kept
	for i, m := range third.read(4) {
		if m.N != came[i].N || (m.Sum == nil) != (i > 0) {
			t.Errorf("%+v, want %+v", m, came[i])
		}
	}
	if r := game.report(); r.Resyncs != 1 {
		t.Errorf("%+v", r)
	}
}

func TestRestartedGameSaysWhatItHasLostAndCountsOn(t *testing.T) {
	game, player := start(t), &player{t: t, received: 6}
	l := game.dial(dialled{2, "upstream", 5, 6})
	l.write(5, 6)
	came := l.read(4)
	player.take(came)
	if came[0].Lost != 0 || came[0].Sum == nil || came[1].Lost != 4 || came[1].Sum == nil || player.sum != total(values(5, 6)) {
		t.Errorf("%+v", came)
	}
	if r := game.report(); !slices.Equal(r.Applied, values(5, 6)) || r.Received != 6 || r.Lost != 4 {
		t.Errorf("%+v", r)
	}
}

func TestMessageThatIsNoNumberIsCounted(t *testing.T) {
	game := start(t)
	first := game.dial(dialled{epoch: 1})
	for _, s := range []string{"1", "2", "three"} {
		first.text(s)
	}
	first.read(2)
	first.die(0)
	second := game.dial(dialled{2, "failover", 4, 2})
	second.text("4")
	second.read(1)
	if r := game.report(); !slices.Equal(r.Applied, []int64{1, 2, 4}) || r.Received != 4 || r.Lost != 0 {
		t.Errorf("%+v", r)
	}
}

func TestRequestThatCannotBeCountedIsRefused(t *testing.T) {
	game := start(t)
	if _, status := game.try("", http.Header{}); status != http.StatusBadRequest {
		t.Errorf("not through a gateway: status %d", status)
	}
	if _, status := game.try("s", http.Header{"Reseat-Resumed": {"hard"}, "Reseat-Epoch": {"2"}}); status != http.StatusBadRequest {
		t.Errorf("not a durable session: status %d", status)
	}
}

func TestPlayerIsForgottenAfterTime(t *testing.T) {
	game := start(t, "KEPT_SEAT_MS=50")
	first := game.dial(dialled{epoch: 1})
	first.write(1, 1)
	first.read(1)
	first.die(0)
	game.until(func(r report) bool { return r.Session == "" })
}

func TestPlayerWhoIsBackIsNotForgotten(t *testing.T) {
	const kept = time.Second
	game := start(t, "KEPT_SEAT_MS=1000", "TICK_MS=50")
	for try := 1; ; try++ {
		game.session = fmt.Sprint(try)
		first := game.dial(dialled{epoch: 1})
		away := time.Now()
		first.die(0)
		game.until(func(r report) bool { return r.Connections == 1 })
		game.dial(dialled{2, "failover", 1, 0})
		back := time.Now()
		if back.Sub(away) > kept/2 {
			continue // too busy a machine: the seat may be forgotten by now
		}
		r := game.until(func(r report) bool { return r.Session == "" || time.Since(back) > 2*kept && r.Sent > 0 })
		if r.Connections != 2 {
			t.Errorf("%s after the player came back, the game reports %+v", time.Since(back), r)
		}
		return
	}
}

// docs/games/README.md starts the program by this command.
func TestCommandOfPageStartsGame(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^PORT=[0-9]+ go run (\S+)$`).FindSubmatch(page)
	if m == nil {
		t.Fatal("the page shows no go run")
	}
	program := filepath.Join(t.TempDir(), "game.exe") // Windows wants the suffix
	build := exec.Command("go", "build", "-o", program, string(m[1]))
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l := begin(t, exec.Command(program)).dial(dialled{epoch: 1})
	l.write(1, 1)
	l.read(1)
}
