package client

import "reseat/gateway/wire"

// An outbox holds what the application wrote and the gateway has not acked.
// Messages are numbered from 1.
//
// Invariant: acked <= received <= cursor <= last and received <= handed <= last,
// where received is the gateway's count from hello, cursor the newest number given to
// the present connection, and handed the newest ever given to any.
type outbox struct {
	kept []message // numbers acked+1 to last

	acked, received, cursor, handed uint64

	total    int64 // bytes of kept
	inFlight int64 // bytes of acked+1 to cursor
}

func (o *outbox) last() uint64 { return o.acked + uint64(len(o.kept)) }

// room reports whether another message may be queued: a single one always may. Of the limits of hello zero is none.
func (o *outbox) room(w wire.Limits) bool {
	return len(o.kept) == 0 || (w.UnackedMessages <= 0 || int64(len(o.kept)) < w.UnackedMessages) && (w.UnackedBytes <= 0 || o.total < w.UnackedBytes)
}

func (o *outbox) add(m message) {
	o.kept = append(o.kept, m)
	o.total += m.bytes()
}

// ready returns the next message for the present connection, if the limits allow it.
func (o *outbox) ready(w wire.Limits) (m message, ok bool) {
	if o.cursor == o.last() {
		return message{}, false
	}
	m = o.kept[o.cursor-o.acked]
	unacked := int64(o.cursor - o.acked)
	if unacked > 0 && (w.UnackedMessages > 0 && unacked >= w.UnackedMessages || w.UnackedBytes > 0 && o.inFlight+m.bytes() > w.UnackedBytes) {
		return message{}, false
	}
	return m, true
}

// next takes the message that is ready.
func (o *outbox) next(w wire.Limits) (m message, ok bool) {
	if m, ok = o.ready(w); ok {
		o.cursor++
		o.inFlight += m.bytes()
		o.handed = max(o.handed, o.cursor)
	}
	return m, ok
}

// ack removes the messages up to n. It returns false if n was never sent.
func (o *outbox) ack(n uint64) bool {
	if n > o.cursor {
		return false
	}
	for ; o.acked < n; o.acked++ {
		o.total -= o.kept[0].bytes()
		o.inFlight -= o.kept[0].bytes()
		o.kept[0] = message{}
		o.kept = o.kept[1:]
	}
	o.received = max(o.received, o.acked)
	return true
}

// admits reports whether n is a possible received count of a hello, and part as how much
// the gateway has of the message after it.
func (o *outbox) admits(n uint64, part int64) bool {
	return n >= o.received && n <= o.handed && (part == 0 || n < o.handed && part <= o.kept[n-o.acked].bytes())
}

// rewind starts a new connection after message n, which the gateway has received. Only an ack
// frees the window.
func (o *outbox) rewind(n uint64) {
	o.received, o.cursor, o.inFlight = n, n, 0
	for _, m := range o.kept[:n-o.acked] {
		o.inFlight += m.bytes()
	}
}

// unacked reports whether a message sent on the present connection is unacked. What
// the gateway's hello reported as received was not sent on it.
func (o *outbox) unacked() bool { return o.cursor > o.received }

// drained reports whether the present connection was given everything.
func (o *outbox) drained() bool { return o.cursor == o.last() }
