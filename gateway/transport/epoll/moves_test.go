//go:build linux

package epoll

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/session"
)

func plain(c *session.Config) { c.Resumable = false }

// twoLoops returns a session on the first of two loops.
func twoLoops(t *testing.T) (r *rig, from, to *Loop) {
	clock := new(handClock)
	all := newLoops(t, clock, 2)
	ours, client := socketPair(t)
	r = newRigOn(t, all.list[0], clock, ours, client, plain)
	return r, all.list[0], all.list[1]
}

// relays checks that a message passes each way.
func (r *rig) relays(t *testing.T, text string) {
	t.Helper()
	tb := &table{t: t}
	sent, got := fromClient(text)
	tb.send(r.client, sent)
	tb.wants(r.game, got)
	tb.send(r.game, fromGame(text))
	tb.wants(r.client, fromGame(text))
}

// What was posted to a session before it left, and what is posted afterwards, is done by its new loop, once and in
// order, after the session has joined that.
func TestLettersFollowASession(t *testing.T) {
	r, from, to := twoLoops(t)
	var got []int
	letter := func(i int) func() {
		return func() {
			got = append(got, i)
			if r.loop != to || r.away || to.legs[r.down.fd] != r.down {
				t.Errorf("letter %d is read before the session has joined its loop", i)
			}
		}
	}
	var other bool
	gate := make(chan struct{})
	to.post(func() { <-gate })
	from.call(func() {
		r.post(letter(0))
		from.post(func() { other = true })
		r.post(letter(1))
		from.hand([]*Session{r.Session}, to)
		r.post(letter(2))
	})
	if from.call(func() {}); !other {
		t.Error("a letter of the loop's own has gone with the session")
	}
	close(gate)
	if !r.Do(func(*session.Session, session.Time) {}) || !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("letters %v, want 0, 1, 2", got)
	}
	r.relays(t, "there")
	if n, m := from.load.Load(), to.load.Load(); n != 0 || m != 1 || from.sessions != 0 || to.sessions != 1 {
		t.Errorf("the loops count %d and %d sessions, %d and %d; want 0 and 1", n, m, from.sessions, to.sessions)
	}
}

// The alarm of a session that has moved fires on its new loop, and only there.
func TestAlarmsFollowASession(t *testing.T) {
	clock := new(handClock)
	all := newLoops(t, clock, 2)
	ours, client := socketPair(t)
	r := newRigOn(t, all.list[0], clock, ours, client, func(*session.Config) {})
	client.Read(make([]byte, 4096)) // the hello
	all.list[0].call(func() { all.list[0].hand([]*Session{r.Session}, all.list[1]) })
	r.Do(func(*session.Session, session.Time) {})
	if n, m := len(all.list[0].due), len(all.list[1].due); n != 0 || m != 1 {
		t.Fatalf("%d and %d alarms are set, want 0 and 1", n, m)
	}
	r.pass(15*time.Second + 100*time.Millisecond)
	b := make([]byte, 4096)
	if n, err := client.Read(b); err != nil || string(b[:n]) != "\x81\x07\x10ping 1" {
		t.Fatalf("got %q, %v; want a ping", b[:n], err)
	}
}

// A session's time never goes back, though the clock that a loop has read last may be older than another's.
func TestTimeOfASessionNeverGoesBackWhenItMoves(t *testing.T) {
	r, from, to := twoLoops(t)
	var before, after session.Time
	from.call(func() {
		before = from.now
		r.clock.now.Add(int64(-time.Minute))
		from.hand([]*Session{r.Session}, to)
	})
	if r.Do(func(_ *session.Session, now session.Time) { after = now }); after < before {
		t.Errorf("it went back by %v", before.Sub(after))
	}
}

// What was in the sockets, or in the queue, when the session left is relayed.
func TestSessionLeavesNothingBehind(t *testing.T) {
	r, from, to := twoLoops(t)
	sent, got := fromClient("unread")
	from.call(func() {
		r.client.Write(sent)
		r.game.Write(fromGame("too"))
		r.down.noteEvents(unix.EPOLLIN)
		from.enqueue(r.down)
		from.hand([]*Session{r.Session}, to)
		if len(from.queue) != 0 {
			t.Error("the loop still queues a session that has left")
		}
	})
	tb := &table{t: t}
	tb.wants(r.game, got)
	tb.wants(r.client, fromGame("too"))
}

// leave has the loop choose r for to, and end its turn.
func (r *rig) leaves(from, to *Loop) (left bool) {
	from.call(func() {
		from.plan = plan{to: to, left: 100, any: true}
		from.choose(r.Session)
		from.handOn()
		from.plan = plan{}
	})
	return r.home.Load() == to
}

func TestSessionLeavesOnlyAtRest(t *testing.T) {
	r, from, to := twoLoops(t)
	for name, c := range map[string]struct{ begin, end func() }{
		"while loops are paused":             {func() { from.all.paused.Add(1) }, func() { from.all.paused.Add(-1) }},
		"while its Observer has an event":    {func() { r.pending.Add(1) }, func() { r.pending.Add(-1) }},
		"while it has a superseded leg":      {func() { r.older = append(r.older, &leg{fd: -1}) }, func() { r.older = nil }},
		"while the loop waits for its end":   {func() { from.closing = true }, func() { from.closing = false }},
		"after another process has taken it": {func() { r.dropped = true }, func() { r.dropped = false }},
		"to the loop that it is on":          {func() { to = from }, func() { to = from.all.list[1] }},
	} {
		from.call(c.begin)
		target := to
		if r.leaves(from, target) && target != from || r.home.Load() != from || r.chosen {
			t.Errorf("a session leaves %s", name)
		}
		from.call(c.end)
	}
	if !r.leaves(from, to) {
		t.Error("a session at rest stays")
	}
	r.relays(t, "there")
}

func TestSessionStaysWhereTheOtherLoopHasStopped(t *testing.T) {
	r, from, to := twoLoops(t)
	to.close()
	to.running.Wait()
	if r.leaves(from, to) {
		t.Error("it has moved to a loop that has stopped")
	}
	r.relays(t, "here")
	if n := from.load.Load(); n != 1 || from.sessions != 1 {
		t.Errorf("the loop counts %d sessions, %d; want 1", n, from.sessions)
	}
}

// A session that is on its way when loops pause has arrived when they are paused.
func TestPauseWaitsForASessionOnItsWay(t *testing.T) {
	r, from, to := twoLoops(t)
	gate := make(chan struct{})
	to.post(func() { <-gate })
	from.call(func() { from.hand([]*Session{r.Session}, to) })
	paused := make(chan func())
	go func() { paused <- from.all.Pause() }()
	select {
	case <-paused:
		t.Fatal("Pause has not waited")
	case <-time.After(20 * time.Millisecond):
	}
	close(gate)
	resume := <-paused
	if _, up, _, err := r.Freeze(session.Formats[0]); err != nil || r.away || r.loop != to || to.legs[up.FD] != r.up {
		t.Errorf("the session has not joined its loop: %v", err)
	}
	resume()
	r.relays(t, "there")
}

// Infos describes a session that has left the loop that it was looked for at.
func TestInfosFindASessionThatMoves(t *testing.T) {
	r, from, to := twoLoops(t)
	gate, asked := make(chan struct{}), make(chan int)
	from.post(func() { <-gate })
	go func() {
		n := 0
		Infos([]*Session{nil, r.Session}, func(i int, info session.Info) { n += i })
		asked <- n
	}()
	for waits := false; !waits; { // until Infos asks from
		from.mu.Lock()
		waits = len(from.mail) > 0
		from.mu.Unlock()
	}
	from.mu.Lock()
	from.mail = slices.Insert(from.mail, 0, letter{f: func() { from.hand([]*Session{r.Session}, to) }})
	from.mu.Unlock()
	close(gate)
	if n := <-asked; n != 1 {
		t.Errorf("%d, want the second session's", n)
	}
}

func TestNumberOfLoopsFollowsTheLoad(t *testing.T) {
	for _, c := range []struct{ total, n, want int64 }{
		{0, 1, 1}, {700, 1, 1}, {701, 1, 2}, {1000, 1, 2}, {2000, 2, 4}, {4000, 4, 8}, {8000, 8, 8},
		{1400, 2, 2}, {350, 2, 2}, {349, 2, 1}, {0, 3, 2}, {600, 3, 2}, {700, 3, 3},
	} {
		if got := loopsFor(c.total, c.n, 8); got != c.want {
			t.Errorf("%d loops for a share of %d in place of %d, want %d", got, c.total, c.n, c.want)
		}
	}
}

// By auto one loop is used until it is busy; then others take new sessions, too, and old ones.
func TestBusyLoopTakesAnotherIntoUse(t *testing.T) {
	clock := new(handClock)
	all := newLoops(t, clock, 3)
	all.auto = true
	all.inUse.Store(1)
	first := all.list[0]
	report := func(share int64) {
		first.call(func() {
			clock.now.Add(int64(window))
			for _, l := range all.list {
				l.share.Store(0)
			}
			first.share.Store(share)
			first.asOf.Store(clock.now.Load())
			all.review(clock.Now())
		})
	}
	if report(600); all.inUse.Load() != 1 || all.Place() != first {
		t.Error("a second loop is in use though the first one is not busy")
	}
	first.load.Add(3)
	if report(900); all.inUse.Load() != 2 || all.Place() != all.list[1] {
		t.Errorf("%d loops are in use though the only one is busy, want 2", all.inUse.Load())
	}
	first.load.Add(-3)
	if report(100); all.inUse.Load() != 1 {
		t.Error("two loops are in use though one is enough")
	}
}

func TestBusyLoopPlansToHandOnHalfOfWhatItHasMore(t *testing.T) {
	clock := new(handClock)
	all := newLoops(t, clock, 3)
	a, b, c := all.list[0], all.list[1], all.list[2]
	for _, k := range []struct {
		shares [3]int64
		inUse  int32
		want   plan
	}{
		{[3]int64{1000, 200, 0}, 3, plan{to: c, left: 50}},
		{[3]int64{1000, 200, 0}, 2, plan{to: b, left: 40}},
		{[3]int64{700, 0, 0}, 3, plan{}},
		{[3]int64{900, 701, 701}, 3, plan{}},
		{[3]int64{1000, 0, 0}, 1, plan{}},
	} {
		a.call(func() {
			all.inUse.Store(k.inUse)
			for i, l := range all.list {
				l.share.Store(k.shares[i])
				l.asOf.Store(int64(a.now))
			}
			got := a.newPlan(a.now, 100)
			if got != k.want {
				t.Errorf("shares %v, %d in use: to loop %v, cost %d", k.shares, k.inUse, got.to, got.left)
			}
			if got.to != nil && got.to.share.Load() != k.shares[got.to.index]+(k.shares[0]-k.shares[got.to.index])/2 {
				t.Error("others do not see what the loop is about to take")
			}
		})
	}
	c.call(func() {
		if p := c.newPlan(c.now, 100); p.to != a || !p.any {
			t.Error("a loop that is not in use keeps its sessions")
		}
	})
}

// A session that costs more than a loop wants to be rid of would only be another's burden.
func TestSessionThatCostsTooMuchStays(t *testing.T) {
	r, from, to := twoLoops(t)
	from.call(func() {
		for _, c := range []struct {
			last, left int64
			want       bool
		}{{51, 50, false}, {0, 50, false}, {50, 50, true}} {
			from.plan = plan{to: to, left: c.left}
			r.last = uint32(c.last)
			from.choose(r.Session)
			if r.chosen != c.want {
				t.Errorf("a session of cost %d: chosen %v, want %v", c.last, r.chosen, c.want)
			}
		}
		if from.plan.left != 0 {
			t.Errorf("%d are left, want 0", from.plan.left)
		}
		from.handOn()
		from.plan = plan{}
	})
}

// One loop is in use until it is busy. Then there are two, and the sessions that were there before are shared.
func TestBusyLoopSharesItsSessions(t *testing.T) {
	for name, c := range map[string]struct {
		part   int64 // of the time in which a processor works for it
		shares bool
	}{"with a processor": {1, true}, "without one": {4, false}} {
		t.Run(name, func(t *testing.T) { busyLoop(t, c.part, c.shares) })
	}
}

func busyLoop(t *testing.T, part int64, shares bool) {
	const sessions = 12
	clock := new(handClock)
	all := newLoops(t, clock, 2)
	all.list[0].call(func() {
		all.auto = true
		all.use(1)
		all.threadTime = func() int64 { return clock.now.Load() / part }
	})
	all.list[1].call(func() {})
	var running sync.WaitGroup
	rigs := make([]*rig, sessions)
	for i := range rigs {
		ours, client := socketPair(t)
		rigs[i] = newRigOn(t, all.list[0], clock, ours, client, func(c *session.Config) {
			c.Resumable = false
			c.Key = func() [4]byte { clock.now.Add(int64(time.Millisecond)); return [4]byte{} } // what a message takes
		})
		running.Go(func() { io.Copy(io.Discard, rigs[i].game) })
	}
	sent, _ := fromClient("x")
	shared := func() bool {
		stats := all.Stats()
		return stats[0].Moved > 0 && stats[1].Sessions > 0 && all.inUse.Load() == 2
	}
	for i := 0; i < 60 || shares && !shared() && i < 6000; i++ { // a loop that starves makes few turns
		for _, r := range rigs {
			r.client.Write(sent)
		}
		for _, r := range rigs {
			r.Do(func(*session.Session, session.Time) {})
		}
	}
	if shared() != shares {
		t.Errorf("%+v; want that the sessions are on two loops: %v", all.Stats(), shares)
	}
	for _, r := range rigs {
		r.game.Close()
	}
	running.Wait()
}

// Sessions move at each turn, with traffic both ways, calls in order, and pauses as for upgrades.
func TestSessionsMoveAtEachTurnUnharmed(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { moveAtEachTurn(t, seed) })
	}
}

func moveAtEachTurn(t *testing.T, seed uint64) {
	everyTurn = seed
	defer func() { everyTurn = 0 }()
	const sessions, wanted = 8, 150
	clock := new(handClock)
	all := newLoops(t, clock, 4)
	rigs := make([]*rig, sessions)
	for i := range rigs {
		ours, client := socketPair(t)
		rigs[i] = newRigOn(t, all.Place(), clock, ours, client, plain)
	}
	var over atomic.Bool
	var beside sync.WaitGroup
	for _, r := range rigs {
		beside.Go(func() { r.callInOrder(t, &over) })
	}
	frozen := 0
	beside.Go(func() {
		for !over.Load() {
			frozen += freezeAll(t, all, rigs)
			time.Sleep(5 * time.Millisecond)
		}
	})
	moved := uint64(0)
	for moved < wanted && !t.Failed() {
		var traffic sync.WaitGroup
		for i, r := range rigs {
			r.traffic(t, &traffic, func(n int) string { return fmt.Sprint("message ", n, " of ", i, string(make([]byte, n*37%3000))) })
		}
		traffic.Wait()
		moved = 0
		for _, s := range all.Stats() {
			moved += s.Moved
		}
	}
	over.Store(true)
	beside.Wait()
	if frozen == 0 {
		t.Error("no session was frozen meanwhile")
	}
}

// traffic begins to send messages both ways, and to check that they arrive.
func (r *rig) traffic(t *testing.T, running *sync.WaitGroup, text func(n int) string) {
	const messages = 200
	expect := func(conn io.Reader, want func(n int) []byte) {
		for n := range messages {
			w := want(n)
			got := make([]byte, len(w))
			if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, w) {
				t.Errorf("message %d: %.40q, %v; want %.40q", n, got, err, w)
				return
			}
		}
	}
	running.Go(func() { expect(r.game, func(n int) []byte { _, got := fromClient(text(n)); return got }) })
	running.Go(func() { expect(r.client, func(n int) []byte { return fromGame(text(n)) }) })
	running.Go(func() {
		for n := range messages {
			sent, _ := fromClient(text(n))
			r.client.Write(sent)
			runtime.Gosched()
		}
	})
	running.Go(func() {
		for n := range messages {
			r.game.Write(fromGame(text(n)))
			runtime.Gosched()
		}
	})
}

// callInOrder posts letters to r, and makes calls between them, and checks that none is lost or overtaken.
func (r *rig) callInOrder(t *testing.T, over *atomic.Bool) {
	posted, done := 0, 0
	for !over.Load() {
		for range 5 {
			n := posted
			posted++
			r.post(func() {
				if done != n || r.away || r.loop != r.home.Load() {
					t.Errorf("letter %d comes after %d others", n, done)
				}
				done++
			})
		}
		here := r.Do(func(*session.Session, session.Time) {
			if done != posted {
				t.Errorf("a call overtakes %d letters", posted-done)
			}
		})
		if !here {
			t.Error("the session is gone")
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// freezeAll pauses the loops and freezes sessions, as for an upgrade that is given up. It returns how many were at rest.
func freezeAll(t *testing.T, all *Loops, rigs []*rig) (frozen int) {
	defer all.Pause()()
	for i, r := range rigs {
		if r.away || r.loop != r.home.Load() || r.loop.legs[r.up.fd] != r.up {
			t.Errorf("session %d is on no loop during a pause", i)
		}
		_, _, _, err := r.Freeze(session.Formats[0])
		switch {
		case err == nil:
			frozen++
		case !errors.Is(err, session.ErrBusy) && !errors.Is(err, session.ErrLater):
			t.Error(err)
		}
	}
	return frozen
}

// A turn serves a bounded number of sockets; the others are served next, without another event.
func TestTurnServesABoundedNumberOfSockets(t *testing.T) {
	const more = 20
	tb := newTable(t, maxLegs+more)
	sent, got := fromClient("x")
	left := 0
	tb.then = func() { left = len(tb.loop.queue) }
	tb.turn(func() {
		for _, r := range tb.all {
			tb.send(r.client, sent)
		}
	}, downLeg)
	if left < more {
		t.Errorf("%d sockets wait for the next turn, want %d at least", left, more)
	}
	for _, r := range tb.all {
		tb.wants(r.game, got)
	}
}

// What a turn leaves is served without another event.
func TestSocketsLeftByATurnAreServedNext(t *testing.T) {
	tb := newTable(t, 3*maxLegs/2)
	sent, got := fromClient("x")
	tb.loop.call(func() {
		for _, r := range tb.all {
			tb.send(r.client, sent)
		}
	})
	for i, r := range tb.all { // not by reading, which makes an event; after 15 s an alarm wakes the loop
		raw, _ := r.game.(*net.UnixConn).SyscallConn()
		for n, end := 0, time.Now().Add(10*time.Second); n < len(got); {
			raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
			if time.Now().After(end) {
				t.Fatalf("session %d waits for an event", i)
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// A turn ends after a bounded number of bytes, of any sessions, and the next turn begins with the next socket.
func TestTurnMovesABoundedNumberOfBytes(t *testing.T) {
	tb := newTable(t, 16)
	large, _ := fromClient(string(make([]byte, 150<<10)))
	spent, left := 0, 0
	tb.turn(func() {
		for _, r := range tb.all {
			r.client.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			r.client.Write(large) // as much as the socket takes
		}
		spent = -tb.loop.effort
		tb.then = func() { spent, left = spent+tb.loop.effort, len(tb.loop.queue) }
	}, downLeg)
	if spent > maxEffort+2*sessionEffort || left == 0 {
		t.Errorf("a turn has moved %d bytes, and %d sockets wait; want at most %d", spent, left, maxEffort+2*sessionEffort)
	}
}

// What a session has sent for a client with a layer is written in parts, one each turn, while others are served.
func TestSessionIsServedInPartsOfATurn(t *testing.T) {
	clock := new(handClock)
	tb := &table{t: t, loop: newLoop(t, clock), then: func() {}}
	ours, client := socketPair(t)
	r := newRigOn(t, tb.loop, clock, ours, client, func(*session.Config) {})
	h, theirs := layered(t, nil)
	t.Cleanup(func() { theirs.Close() })
	r.attach(t, h, theirs)
	tb.hello(theirs)
	const messages = 3
	msg := fromGame(string(make([]byte, 60<<10)))
	received := func() (n uint64) {
		r.Do(func(core *session.Session, _ session.Time) {
			r.down.full = true // so that nothing is written yet
			n = core.Info().Sent
		})
		return n
	}
	received()
	go func() {
		for range messages {
			r.game.Write(msg)
		}
	}()
	for received() < messages {
		runtime.Gosched()
	}
	tb.loop.call(func() {
		unix.SetsockoptInt(r.down.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
		r.down.full = false
		before := tb.loop.effort
		r.settle()
		if n := tb.loop.effort - before; n < sessionEffort || n > sessionEffort+layerPiece*layerFactor || len(tb.loop.queue) == 0 {
			t.Errorf("an effort of %d at once, and %d are queued; want about %d, and the session", n, len(tb.loop.queue), sessionEffort)
		}
	})
	theirs.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := io.CopyN(io.Discard, theirs, messages*int64(len(msg))); err != nil {
		t.Errorf("%d bytes of %d, %v", n, messages*len(msg), err)
	}
}

// A full mailbox holds up sessions for a bounded number of calls.
func TestTurnMakesABoundedNumberOfCalls(t *testing.T) {
	clock := new(handClock)
	l := newLoop(t, clock)
	ours, client := socketPair(t)
	calls, before := 0, -1
	r := newRigOn(t, l, clock, ours, client, func(c *session.Config) {
		c.Resumable = false
		c.Key = func() [4]byte { before = calls; return [4]byte{} }
	})
	sent, _ := fromClient("x")
	l.call(func() {
		r.client.Write(sent)
		for range 5 * maxMail {
			l.post(func() { calls++ })
		}
	})
	r.Do(func(*session.Session, session.Time) {})
	if calls != 5*maxMail || before < 0 || before > 2*maxMail {
		t.Errorf("%d of %d calls came before a message, want at most %d", before, calls, 2*maxMail)
	}
}

// New calls come before the sockets that were ready before them.
func TestCallComesBeforeSocketsThatWait(t *testing.T) {
	tb := newTable(t, 4*maxLegs)
	sent, _ := fromClient("x")
	left := -1
	tb.turn(func() {
		for _, r := range tb.all {
			tb.send(r.client, sent)
		}
		tb.loop.post(func() { left = len(tb.loop.queue) })
	}, downLeg)
	tb.loop.call(func() {})
	if left < 2*maxLegs {
		t.Errorf("a call waited until %d sockets were left, want %d", left, 3*maxLegs)
	}
}
