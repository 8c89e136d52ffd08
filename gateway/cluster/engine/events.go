package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
	"reseat/gateway/events"
)

// The stream NAME_events has what is published to NAME.ev.NODE, for 10 minutes. NATS publishes each
// message once more as it is stored, with its number, to NAME.evs.NODE: a reader of the stream
// subscribes to that, and gets what it has missed by number. There is no consumer.
//
// A number is never used twice: the first is the time in microseconds. Where NATS has lost what it had,
// Advance goes on from the time.
const (
	eventsIn  = "ev."
	eventsOut = "evs."

	eventsAge = 10 * time.Minute
	// A stream that could not be made is tried again after eventsAgain, and after twice as long each time, up to eventsLast.
	eventsAgain, eventsLast = time.Second, time.Minute
	// A message that is stored once more within eventsTwice is recognised.
	eventsTwice = time.Minute
	sequence    = "Nats-Sequence"
)

// eventsSizes are the bytes that the stream may have. The second is tried where the servers have not as
// much. NATS reserves them, and reserves more than there is if it is asked quickly: then a bucket that was
// lost can't be made again, and a cluster needs that. So they are few, and a smaller stream is tried before
// one with fewer replicas, which would take them all from one server.
var eventsSizes = []int64{32 << 20, 8 << 20}

// An eventsState is the state of the stream, as far as it is known.
type eventsState struct {
	there bool
	err   error // why not, if that is known

	denied error     // a right that is missing
	again  time.Time // when it is tried again
	wait   time.Duration
	stop   context.CancelFunc
}

// openEvents makes or finds the stream. Nothing else depends on it.
func (e *Engine) openEvents() {
	ctx, cancel := context.WithTimeout(e.ctx, 2*opTimeout)
	defer cancel()
	e.mu.Lock()
	due := e.nodes != nil && !e.events.there && !time.Now().Before(e.events.again)
	if due {
		wait := min(max(2*e.events.wait, eventsAgain), eventsLast)
		e.events = eventsState{err: e.events.err, again: time.Now().Add(wait), wait: wait, stop: cancel}
	}
	e.mu.Unlock()
	if !due {
		return
	}
	err := e.makeEvents(ctx)
	e.mu.Lock()
	denied := e.events.denied
	switch {
	case !e.status.Up || e.nodes == nil:
		err = nil // it is tried again
		e.events = eventsState{}
	case denied != nil:
		err = denied
		e.events.there, e.events.err = false, err
	case err != nil && !final(err):
		e.o.Log.Debug("engine.error", "stream", e.bucket("events"), "err", err)
		err = nil
	default:
		e.events.there, e.events.err = err == nil, err
	}
	e.events.stop = nil
	say := err != nil && err.Error() != e.noEventsSaid
	if e.events.there {
		e.noEventsSaid = ""
	} else if say {
		e.noEventsSaid = err.Error()
	}
	e.mu.Unlock()
	if say {
		e.o.Log.Warn("engine.no_events", "stream", e.bucket("events"), "err", err, "text", "the event stream of each node has its own events alone")
	}
}

// errForeign means that there is a stream of this name that is not a cluster's.
var errForeign = errors.New("it was made for something else")

// final reports whether a retry would fail the same way: the servers have answered, and not that they
// have no leader.
func final(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, errForeign) || errors.As(err, &api) && api.Code != http.StatusServiceUnavailable
}

func (e *Engine) makeEvents(ctx context.Context) error {
	_, js := e.conn()
	st, err := js.Stream(ctx, e.bucket("events"))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		st, err = e.createEvents(ctx, js)
	}
	if err != nil {
		return err
	}
	c := st.CachedInfo().Config
	if want := e.o.Name + "." + eventsIn + "*"; len(c.Subjects) != 1 || c.Subjects[0] != want || c.RePublish == nil || c.RePublish.HeadersOnly || !c.AllowDirect {
		return errForeign
	}
	return nil
}

func (e *Engine) createEvents(ctx context.Context, js jetstream.JetStream) (st jetstream.Stream, err error) {
	c := jetstream.StreamConfig{
		Name: e.bucket("events"), Description: "Events of a Reseat cluster", Subjects: []string{e.o.Name + "." + eventsIn + "*"},
		Storage: jetstream.MemoryStorage, MaxAge: eventsAge, Duplicates: eventsTwice, AllowDirect: true, FirstSeq: uint64(time.Now().UnixMicro()),
		RePublish: &jetstream.RePublish{Source: e.o.Name + "." + eventsIn + "*", Destination: e.o.Name + "." + eventsOut + "{{wildcard(1)}}"},
	}
	err = e.replicate(c.Name, func(replicas int) (err error) {
		c.Replicas = replicas
		for _, c.MaxBytes = range eventsSizes {
			st, err = js.CreateStream(ctx, c)
			if api := (*jetstream.APIError)(nil); err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) || !errors.As(err, &api) {
				return err
			}
		}
		return fmt.Errorf("%w: %w", errTooLarge, err)
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another node was faster
		return js.Stream(ctx, c.Name)
	}
	return st, err
}

// noEvents takes a right that is missing for the stream alone. It reports whether it was one.
func (e *Engine) noEvents(err error) bool {
	text := err.Error()
	if !strings.Contains(text, "."+e.bucket("events")+`"`) && !strings.Contains(text, "."+e.bucket("events")+".") {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events.denied = fmt.Errorf("the NATS user lacks a right: %w", err)
	e.events.there, e.events.err = false, e.events.denied
	if e.events.stop != nil {
		e.events.stop()
	}
	return true
}

// onEvents calls f if the stream is there.
func (e *Engine) onEvents(ctx context.Context, op string, f func(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error) error {
	e.mu.Lock()
	up, state, nc, js := e.status.Up, e.events, e.nc, e.js
	e.mu.Unlock()
	switch {
	case up && !state.there && state.err != nil:
		return fmt.Errorf("%w: %w", events.ErrNoLog, state.err)
	case !up || !state.there: // not yet
		return cluster.ErrEngineDown
	}
	ctx, end := e.timed(ctx, op)
	defer end()
	err := f(ctx, nc, js)
	e.noteFailed(e.bucket("events"), err)
	return err
}

// Range implements events.Log.
func (e *Engine) Range(ctx context.Context) (first, last uint64, err error) {
	err = e.onEvents(ctx, "events_info", func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) error {
		st, err := js.Stream(ctx, e.bucket("events"))
		if err == nil {
			first, last = st.CachedInfo().State.FirstSeq, st.CachedInfo().State.LastSeq
		}
		return err
	})
	return first, last, err
}

// Append implements events.Log.
func (e *Engine) Append(ctx context.Context, node, id string, data []byte) (number uint64, err error) {
	err = e.onEvents(ctx, "events_append", func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) error {
		ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: e.o.Name + "." + eventsIn + node, Data: data}, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0), jetstream.WithExpectStream(e.bucket("events")))
		if err == nil {
			number = ack.Sequence
		}
		return err
	})
	return number, err
}

// Read implements events.Log.
func (e *Engine) Read(ctx context.Context, after uint64, limit int) ([]events.Message, error) {
	return e.directGet(ctx, map[string]any{"seq": after + 1, "batch": limit, "max_bytes": 1 << 20})
}

// NewestOf implements events.Log.
func (e *Engine) NewestOf(ctx context.Context, node string) (events.Message, error) {
	list, err := e.directGet(ctx, map[string]any{"multi_last": []string{e.o.Name + "." + eventsIn + node}})
	if err != nil || len(list) == 0 {
		return events.Message{}, err
	}
	return list[0], nil
}

func (e *Engine) directGet(ctx context.Context, request map[string]any) (list []events.Message, err error) {
	err = e.onEvents(ctx, "events_read", func(ctx context.Context, nc *nats.Conn, _ jetstream.JetStream) error {
		return direct(ctx, nc, e.bucket("events"), request, func(m *nats.Msg) {
			if s, ok := e.stored(m, m.Header.Get(subjectHeader), eventsIn); ok {
				list = append(list, s)
			}
		})
	})
	return list, err
}

// direct calls f with each message of the answer to a direct get. Any replica answers.
func direct(ctx context.Context, nc *nats.Conn, stream string, request map[string]any, f func(*nats.Msg)) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	if err := nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, body); err != nil {
		return err
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return err
		}
		switch status := m.Header.Get(statusHeader); status {
		case "":
			f(m)
		case statusEnd, statusNone:
			return nil
		case statusNobodyHere:
			return nats.ErrNoResponders
		default:
			return fmt.Errorf("status %s %s", status, m.Header.Get("Description"))
		}
	}
}

// Watch implements events.Log.
func (e *Engine) Watch(f func(events.Message)) (func(), error) {
	s := &subscription{subject: e.o.Name + "." + eventsOut + "*", f: func(m *nats.Msg) {
		if s, ok := e.stored(m, m.Subject, eventsOut); ok {
			f(s)
		}
	}}
	return s.end, e.add(s)
}

func (e *Engine) stored(m *nats.Msg, subject, root string) (s events.Message, ok bool) {
	s.Data = m.Data
	s.Number, _ = strconv.ParseUint(m.Header.Get(sequence), 10, 64)
	s.Node, ok = strings.CutPrefix(subject, e.o.Name+"."+root)
	return s, ok && s.Number > 0
}

// Advance implements events.Log.
func (e *Engine) Advance(ctx context.Context, past uint64) error {
	return e.onEvents(ctx, "events_advance", func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) error {
		st, err := js.Stream(ctx, e.bucket("events"))
		if err != nil {
			return err
		}
		return st.Purge(ctx, jetstream.WithPurgeSequence(max(past+1, uint64(time.Now().UnixMicro()))))
	})
}
