package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// step does one thing with the Buffer that its owner may do now.
func (m *model) step() {
	switch op := m.next() % 32; {
	case op < 6:
		m.stepRoom()
	case op < 12:
		m.stepFill()
	case op < 18:
		m.stepScan(1000)
		m.stepSettle()
	case op < 20:
		m.stepScan(1 + m.next()&3)
	case op < 21:
		m.stepSettle()
	case op < 25:
		m.stepAck()
	case op < 26:
		m.stepAfter()
	case op < 28:
		m.stepAround()
	case op < 29:
		m.stepSlices()
	case op < 30:
		m.stepNewest()
	case op < 31:
		m.stepUnpin()
	default:
		m.stepRare(m.next())
	}
}

func (m *model) stepRoom() {
	if m.room != nil || m.scanning {
		return
	}
	frugal := m.next()&1 == 0
	want := smallChunk
	if m.burst && !frugal && m.b.store.Used()+bigChunk <= m.b.store.Limit() {
		want = bigChunk
	}
	fresh := m.b.tail == nil || len(m.b.tail.buf)-m.b.hi < minRoom
	exhausted := fresh && m.b.store.Used()+int64(want) > m.b.store.Limit() && m.b.Memory()+int64(want) > m.b.store.reserve.Load()
	m.room = m.b.Room(frugal)
	m.note("room(%t) of %d", frugal, len(m.room))
	switch {
	case exhausted != (m.room == nil), m.room != nil && len(m.room) < minRoom:
		m.failf("room of %d bytes, store exhausted: %t", len(m.room), exhausted)
	case fresh && m.room != nil && len(m.b.tail.buf) < want, fresh && m.room != nil && frugal && len(m.raw)+minRoom <= smallChunk && len(m.b.tail.buf) != smallChunk:
		m.failf("a chunk of %d bytes for %d raw ones, want %d", len(m.b.tail.buf), len(m.raw), want)
	}
}

func (m *model) stepFill() {
	if m.room == nil {
		return
	}
	n := m.upTo(len(m.room))
	for len(m.feed) < n {
		m.feed = append(m.feed, m.nextFrame()...)
	}
	copy(m.room, used[:]) // a read may use all of it
	copy(m.room, m.feed[:n])
	m.raw = append(slices.Clip(m.raw), m.feed[:n]...)
	m.feed = m.feed[n:]
	m.note("fill(%d)", n)
	m.b.Fill(n)
	m.burst = n == len(m.room)
	m.room = nil
}

func (m *model) stepScan(pieces int) {
	if m.room != nil {
		return
	}
	m.scanning = true
	m.note("scan of %d raw bytes", len(m.raw))
	for range pieces {
		if !m.piece() {
			return
		}
	}
}

func (m *model) stepSettle() {
	if m.room == nil {
		m.note("settle")
		m.b.Settle()
		m.scanning = false
	}
}

func (m *model) stepAck() {
	base := m.mark(m.base).N
	n := int(base) + m.upTo(int(m.mark(len(m.msgs)).N-base))
	if m.next()&15 == 0 {
		n = m.upTo(int(base))
	}
	within := m.lastOff()
	if m.next()&1 == 0 {
		within = m.upTo(len(m.stream))
	}
	ok := m.b.Ack(uint64(n), uint64(within))
	m.note("ack(%d, %d) %t", n, within, ok)
	i := m.holding(n)
	if want := n <= int(base) || m.msgs[i-1].end <= within; ok != want {
		m.failf("ack of %d with %d sent is %t", n, within, ok)
	}
	if ok {
		m.base = max(m.base, i)
	}
}

func (m *model) stepAfter() {
	base := m.mark(m.base).N
	n := int(base) + m.upTo(int(m.mark(len(m.msgs)).N-base))
	m.note("after(%d)", n)
	if got, want := m.b.After(uint64(n)), m.mark(m.holding(n)).Off; got != want {
		m.failf("message %d ends at %d, want %d", n, got, want)
	}
}

func (m *model) stepAround() {
	off := m.baseOff() + m.upTo(m.lastOff()-m.baseOff())
	i, whole := slices.BinarySearchFunc(m.msgs, off, func(x msg, off int) int { return x.end - off })
	before, after := m.mark(i), uint64(off)
	switch {
	case whole:
		before = m.mark(i + 1)
	case off > 0:
		after = uint64(m.msgs[i].end)
	}
	from := m.mark(m.upTo(i))
	m.note("around(%v, %d)", from, off)
	if gotBefore, gotAfter := m.b.Around(from, uint64(off)); gotBefore != before || gotAfter != after {
		m.failf("around %d from %v: %v and %d, want %v and %d", off, from, gotBefore, gotAfter, before, after)
	}
}

// holding returns how many messages and runs there are up to the one with message n.
func (m *model) holding(n int) int {
	if n == 0 {
		return 0
	}
	i, _ := slices.BinarySearchFunc(m.msgs, uint64(n), func(x msg, n uint64) int { return cmp.Compare(x.n, n) })
	return i + 1
}

// stepNewest replaces messages, and removes them behind what Slices has returned, or puts the Buffer away and restores it.
func (m *model) stepNewest() {
	for range m.next() % 8 {
		i := m.base + m.upTo(max(len(m.msgs)-m.base-1, 0))
		if i < len(m.msgs) && m.msgs[i].gone == 0 {
			x := &m.msgs[i]
			m.note("replace(%d)", x.n)
			m.b.Replace(x.n, x.payload)
			x.payload, x.gone = 0, 1
		}
	}
	m.stepWalks()
	free := m.baseOff()
	for _, p := range m.pins {
		free = max(free, p.to)
	}
	i := m.base
	for i < len(m.msgs) && m.mark(i).Off < uint64(free) {
		i++
	}
	from := i + m.upTo(len(m.msgs)-i)
	if c := m.next(); c < 128 {
		m.stepCompact(from)
	} else if c < 160 && !m.scanning && m.room == nil && !m.pinned {
		m.stepCompact(m.base)
		m.restore()
	}
}

// stepWalks checks what walks over the messages say.
func (m *model) stepWalks() {
	n := int(m.mark(len(m.msgs)).N) - m.upTo(int(m.mark(len(m.msgs)).N))
	after := uint64(0)
	for _, x := range m.msgs[m.base:] {
		if x.n > uint64(n) {
			after += min(x.gone, x.n-uint64(n))
		}
	}
	if got := m.b.ReplacedAfter(uint64(n)); got != after {
		m.failf("%d replaced after %d, want %d", got, n, after)
	}
	if m.base == len(m.msgs) {
		return
	}
	if end, gone := m.b.Oldest(); end != m.mark(m.base+1) || gone != (m.msgs[m.base].gone > 0) {
		m.failf("the oldest ends at %v, replaced %t", end, gone)
	}
	i := m.base
	m.b.Each(m.b.Base(), func(begin uint64, end Mark, payload int64) {
		for m.msgs[i].gone > 0 {
			i++
		}
		if begin != m.mark(i).Off || end != m.mark(i+1) || payload != m.msgs[i].payload {
			m.failf("a message from %d to %v with %d bytes, want %v to %v with %d", begin, end, payload, m.mark(i), m.mark(i+1), m.msgs[i].payload)
		}
		i++
	})
	for _, x := range m.msgs[i:] {
		if x.gone == 0 {
			m.failf("message %d is left out", x.n)
		}
	}
	off := m.baseOff() + m.upTo(m.lastOff()-m.baseOff())
	i, _ = slices.BinarySearchFunc(m.msgs, off, func(x msg, off int) int { return x.end - off })
	if off == m.baseOff() {
		i = m.base - 1
	}
	if got := m.b.Boundary(m.mark(m.base), uint64(off)); got != m.mark(i+1) {
		m.failf("the boundary after %d is %v, want %v", off, got, m.mark(i+1))
	}
}

// stepCompact compacts the Buffer behind the first n messages and runs.
func (m *model) stepCompact(n int) {
	from, last := m.mark(n), m.lastOff()
	dead := 0 // up to there
	for i, x := range m.msgs {
		if x.gone == 1 && !m.isRun(i) {
			dead = i + 1
		}
	}
	var ends []uint64
	for _, x := range m.msgs {
		ends = append(ends, uint64(x.end))
	}
	moved := m.b.Compact(from)
	m.note("compact(%v) %t", from, moved != nil)
	if done := dead > n; moved == nil && done && !m.scanning || moved != nil && !done {
		m.failf("compacted: %t; the last replaced one is %d, from %d", moved != nil, dead, n)
	}
	if moved == nil {
		return
	}
	stream, msgs := slices.Clone(m.stream[:from.Off]), slices.Clone(m.msgs[:n])
	now := slices.Clone(ends[:n]) // where each end is now
	for i := n; i < len(m.msgs); {
		x, begin := m.msgs[i], int(m.mark(i).Off)
		j := i + 1
		if x.gone > 0 {
			for x.gone = 0; j <= len(m.msgs) && m.msgs[j-1].gone > 0; j++ {
				x.gone += m.msgs[j-1].gone
				x.n = m.msgs[j-1].n
			}
			j--
			run := fmt.Sprint("\x10skip ", x.gone)
			stream = append(append(stream, 0x81, byte(len(run))), run...)
		} else {
			stream = append(stream, m.stream[begin:x.end]...)
		}
		x.end = len(stream)
		msgs = append(msgs, x)
		for ; i < j; i++ {
			now = append(now, uint64(x.end))
		}
	}
	for i, end := range ends {
		if got := moved(end); got != now[i] {
			m.failf("offset %d has moved to %d, want %d", end, got, now[i])
		}
	}
	m.stream, m.msgs = append(stream, m.stream[last:]...), msgs
}

// isRun reports whether message i is a run of the stream.
func (m *model) isRun(i int) bool {
	begin := int(m.mark(i).Off)
	return m.msgs[i].gone > 0 && bytes.HasPrefix(m.stream[begin:m.msgs[i].end], append([]byte{0x81, byte(m.msgs[i].end - begin - 2)}, runText...))
}

// restore goes on with a copy of the Buffer.
func (m *model) restore() {
	m.note("restore")
	st, content := m.b.State(), bytes.Join(m.b.Content(), nil)
	store := m.b.store
	m.b.Release()
	b, err := Restore(store, st, content)
	if err != nil {
		m.failf("%v", err)
	}
	m.b = b
}

func (m *model) stepSlices() {
	from := m.baseOff()
	if m.pinned {
		from = m.pin
	}
	from += m.upTo(len(m.stream) - from)
	to := from + m.upTo(len(m.stream)-from)
	m.note("slices(%d, %d)", from, to)
	first := []byte("before")
	got := m.b.Slices([][]byte{first}, uint64(from), uint64(to))
	if len(got) < 1 || &got[0][0] != &first[0] || !bytes.Equal(bytes.Join(got[1:], nil), m.stream[from:to]) {
		m.failf("slices from %d to %d hold other bytes than were stored", from, to)
	}
	at := from
	for _, p := range got[1:] {
		if len(p) == 0 {
			m.failf("a slice of nothing")
		}
		m.pins = append(m.pins, hold{p, m.stream[at : at+len(p)], at + len(p)})
		at += len(p)
	}
	if from < to && !m.pinned {
		m.pinned, m.pin = true, from
	}
}

func (m *model) stepUnpin() {
	m.note("unpin")
	m.b.Unpin()
	m.pinned, m.pins = false, nil
}

func (m *model) stepRare(c int) {
	switch {
	case c&1 == 0:
		m.note("abandon")
		m.b.Abandon()
		m.abandon()
	case c < 32:
		m.release()
	case c < 160 && !m.scanning:
		m.cut()
	}
}

func (m *model) abandon() {
	m.kept = append(m.kept, m.pins...)
	m.pinned, m.pins = false, nil
}

// cut switches to a new upstream. The old one's incomplete message is discarded, and a
// read in flight keeps its room.
func (m *model) cut() {
	m.note("abandon and cut")
	m.b.Abandon() // the session has no client then
	m.abandon()
	m.b.Truncate()
	m.keepRoom()
	m.stream = slices.Clip(m.stream[:m.lastOff()])
	m.raw, m.feed, m.open, m.burst = nil, nil, false, false
	m.rem, m.fin, m.payload = 0, false, 0
}

// keepRoom keeps the room for a read in flight.
func (m *model) keepRoom() {
	if m.room != nil {
		copy(m.room, noise[:])
		m.kept = append(m.kept, hold{m.room, noise[:min(len(m.room), len(noise))], 0})
	}
	m.room = nil
}

// release releases the Buffer; reads and writes in flight keep their memory.
func (m *model) release() {
	m.note("release")
	m.b.Release()
	m.abandon()
	m.keepRoom()
	m.stream, m.base = slices.Clip(m.stream[:m.lastOff()]), len(m.msgs) // the memory in use still points past it
	m.raw, m.feed, m.open, m.burst = nil, nil, false, false
	m.scanning, m.rem, m.fin, m.payload = false, 0, false, 0
}

// checkPools overwrites the chunks in the pools: no Buffer, and no read or write in
// flight, may be using one of them.
func checkPools(t testing.TB, s *Store, models ...*model) {
	t.Helper()
	taken := map[*chunk]bool{}
	for _, m := range models {
		for c := m.b.head; c != nil; c = c.next {
			taken[c] = true
		}
	}
	for _, pool := range []interface {
		Get() any
		Put(any)
	}{&s.small, &s.big} {
		var free []*chunk
		for c, _ := pool.Get().(*chunk); c != nil; c, _ = pool.Get().(*chunk) {
			if taken[c] || c.keep || c.next != nil || c.n != 0 {
				models[0].failf("a chunk lies ready that is in use, or not empty: %t %t %d", taken[c], c.keep, c.n)
			}
			taken[c] = true
			copy(c.buf, used[:])
			free = append(free, c)
		}
		for _, c := range free {
			pool.Put(c)
		}
	}
}

// play runs two Buffers that share a Store through input.
func play(t testing.TB, input []byte) {
	s := &script{b: input}
	limit := []int64{96 << 10, 512 << 10, 64 << 20}[s.next()%3]
	refused := 0
	store := NewStore(limit, func() { refused++ })
	models := []*model{{t: t, script: s, b: New(store)}, {t: t, script: s, b: New(store), seed: 99}}
	for len(s.b) > 0 {
		i := s.next() & 1
		s.note("buffer %d:", i)
		m, before := models[i], refused
		wanted := m.room == nil
		m.step()
		if refused > before && (!wanted || m.room != nil || refused > before+1) {
			m.failf("the store's refusal was reported %d times", refused-before)
		}
		for _, m := range models {
			m.check()
		}
		if want := int64(models[0].held() + models[1].held()); store.Used() != want {
			m.failf("the store counts %d bytes, %d are held", store.Used(), want)
		}
		checkPools(t, store, models...)
	}
	for _, m := range models {
		m.release()
		m.check()
	}
	if store.Used() != 0 {
		models[0].failf("the store counts %d bytes after everything was released", store.Used())
	}
	checkPools(t, store, models...)
	models[0].check()
	models[1].check()
}

func TestBufferMatchesAListOfMessages(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			input := make([]byte, 3000)
			for i := range input {
				input[i] = byte(r.Uint32())
			}
			play(t, input)
		})
	}
}

func FuzzBuffer(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 2))
		input := make([]byte, 60<<(seed&3))
		for i := range input {
			input[i] = byte(r.Uint32())
		}
		f.Add(input)
	}
	f.Fuzz(func(t *testing.T, input []byte) { play(t, input[:min(len(input), 4096)]) })
}
