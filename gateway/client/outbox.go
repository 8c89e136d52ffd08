package client

// An outbox holds what the application wrote and the gateway has not acked.
// Messages are numbered from 1.
//
// Invariant: acked <= received <= cursor <= last and received <= handed <= last,
// where received is the gateway's count from hello, cursor the newest number given to
// the present connection, and handed the newest ever given to any.
type outbox struct {
	kept []entry // numbers acked+1 to last

	acked, received, cursor, handed uint64

	total    int64 // bytes of kept
	inFlight int64 // bytes of acked+1 to cursor
}

// An entry is a message, or only its size once the gateway has received it.
type entry struct {
	typ   MessageType
	data  []byte
	bytes int64
}

// window bounds the unacked messages: hello.limits. Zero is no limit.
type window struct{ messages, bytes int64 }

func (o *outbox) last() uint64 { return o.acked + uint64(len(o.kept)) }

// room reports whether another message may be queued: a single one always may.
func (o *outbox) room(w window) bool {
	return len(o.kept) == 0 || (w.messages <= 0 || int64(len(o.kept)) < w.messages) && (w.bytes <= 0 || o.total < w.bytes)
}

func (o *outbox) add(m message) {
	o.kept = append(o.kept, entry{m.typ, m.data, int64(len(m.data))})
	o.total += int64(len(m.data))
}

// ready returns the next message for the present connection, if the window allows it.
func (o *outbox) ready(w window) (e entry, ok bool) {
	if o.cursor == o.last() {
		return entry{}, false
	}
	e = o.kept[o.cursor-o.acked]
	unacked := int64(o.cursor - o.acked)
	if unacked > 0 && (w.messages > 0 && unacked >= w.messages || w.bytes > 0 && o.inFlight+e.bytes > w.bytes) {
		return entry{}, false
	}
	return e, true
}

// next takes the message that is ready.
func (o *outbox) next(w window) (e entry, ok bool) {
	if e, ok = o.ready(w); ok {
		o.cursor++
		o.inFlight += e.bytes
		o.handed = max(o.handed, o.cursor)
	}
	return e, ok
}

// ack removes the messages up to n. It returns false if n was never sent.
func (o *outbox) ack(n uint64) bool {
	if n > o.cursor {
		return false
	}
	for ; o.acked < n; o.acked++ {
		o.total -= o.kept[0].bytes
		o.inFlight -= o.kept[0].bytes
		o.kept[0] = entry{}
		o.kept = o.kept[1:]
	}
	o.received = max(o.received, o.acked)
	return true
}

// admits reports whether n is a possible received count of a hello, and part as how much
// the gateway has of the message after it.
func (o *outbox) admits(n uint64, part int64) bool {
	return n >= o.received && n <= o.handed && (part == 0 || n < o.handed && part <= o.kept[n-o.acked].bytes)
}

// rewind starts a new connection after message n, which the gateway has received. Data
// up to n is released, sizes are kept: only an ack frees the window.
func (o *outbox) rewind(n uint64) {
	o.received, o.cursor, o.inFlight = n, n, 0
	for i := range o.kept[:n-o.acked] {
		o.kept[i].data = nil
		o.inFlight += o.kept[i].bytes
	}
}

// unacked reports whether a message sent on the present connection is unacked. What
// the gateway's hello reported as received was not sent on it.
func (o *outbox) unacked() bool { return o.cursor > o.received }

// drained reports whether the present connection was given everything.
func (o *outbox) drained() bool { return o.cursor == o.last() }
