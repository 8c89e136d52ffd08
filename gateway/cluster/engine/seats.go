package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"reseat/gateway/cluster"
)

// The seats of durable sessions lie in the buckets NAME_seats_0 to NAME_seats_7, in files: each has a leader
// of its own, and a session's id says in which one its seat is. They are made only if there are durable
// routes, so that other clusters need no rights for them.
//
// Reads go to the leader (STREAM.MSG.GET), never to a replica that may be behind. Revisions begin with the
// time in microseconds: a bucket that was lost and made again uses none of them twice.
const (
	// maxLeaderReads bounds those under way at once. A server drops requests when 10,000 wait.
	maxLeaderReads = 256
	seatsAgain     = time.Second // buckets that could not be made are tried again
)

// A seatsState is the state of the buckets, as far as it is known.
type seatsState struct {
	there bool
	again time.Time // when those that are missing are made
}

func (e *Engine) seatsBucket(i int) string { return seatsBucket(e.o.Name, i) }

func seatsBucket(name string, i int) string { return fmt.Sprintf("%s_seats_%d", name, i) }

// openSeats makes the buckets that are missing, if that is due. Nothing else depends on them.
func (e *Engine) openSeats() {
	e.mu.Lock()
	due := e.o.Seats && e.nodes != nil && !e.seats.there && !time.Now().Before(e.seats.again)
	e.mu.Unlock()
	if due && e.makeSeats(e.ctx) {
		e.tell(e.h.Synced) // owners write theirs
	}
}

// makeSeats makes the buckets that are missing. It reports whether all are there.
func (e *Engine) makeSeats(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	var errs [cluster.SeatBuckets]error
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = e.makeSeatsBucket(ctx, e.seatsBucket(i)) })
	}
	all.Wait()
	err := errors.Join(errs[:]...)
	e.mu.Lock()
	up := e.status.Up
	if up {
		e.seats = seatsState{there: err == nil, again: time.Now().Add(seatsAgain)}
	}
	say := err != nil && up && final(err) && err.Error() != e.noSeatsSaid
	if err == nil {
		e.noSeatsSaid = ""
	} else if say {
		e.noSeatsSaid = err.Error()
	}
	e.mu.Unlock()
	if say {
		e.o.Log.Error("engine.no_seats", "err", err, "text", "durable sessions do not outlive their node")
	}
	return err == nil && up
}

func (e *Engine) makeSeatsBucket(ctx context.Context, bucket string) error {
	_, js := e.conn()
	_, err := js.Stream(ctx, "KV_"+bucket)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return explain(bucket, err)
	}
	// A bucket as the nats command knows it, but without reads from replicas.
	c := jetstream.StreamConfig{
		Name: "KV_" + bucket, Description: "Durable sessions of a Reseat cluster", Subjects: []string{"$KV." + bucket + ".>"},
		Storage: jetstream.FileStorage, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowMsgTTL: true,
		FirstSeq: uint64(time.Now().UnixMicro()),
	}
	err = e.replicate(bucket, func(replicas int) error {
		c.Replicas = replicas
		_, err := js.CreateStream(ctx, c)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another node was faster
		return nil
	}
	return explain(bucket, err)
}

// seatsConn returns nil while the connection is down.
func (e *Engine) seatsConn() (*nats.Conn, jetstream.JetStream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.status.Up {
		return nil, nil
	}
	return e.nc, e.js
}

// A storedMessage is a message of a stream, as its leader returns it.
type storedMessage struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Header   []byte    `json:"hdrs"`
	Data     []byte    `json:"data"`
	Time     time.Time `json:"time"`
}

// deleted reports whether it marks a deletion.
func (m *storedMessage) deleted() bool {
	h, err := nats.DecodeHeadersMsg(m.Header)
	return len(m.Header) > 0 && err == nil && h.Get(operationHeader) != ""
}

func (m *storedMessage) seat(bucket string) cluster.StoredSeat {
	return cluster.StoredSeat{Session: m.Subject[min(len("$KV."+bucket+"."), len(m.Subject)):], Value: m.Data, Revision: m.Sequence, Written: m.Time}
}

// leaderGet asks the leader of a bucket for a message, and returns nil if there is none.
func (e *Engine) leaderGet(ctx context.Context, op string, bucket int, request map[string]any) (m *storedMessage, err error) {
	nc, _ := e.seatsConn()
	if nc == nil {
		return nil, cluster.ErrEngineDown
	}
	select {
	case e.reads <- struct{}{}:
		defer func() { <-e.reads }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, end := e.timed(ctx, op)
	defer end()
	defer func() { e.noteFailed("KV_"+e.seatsBucket(bucket), err) }()
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	answer, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.KV_"+e.seatsBucket(bucket), body)
	if err != nil {
		return nil, err
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message *storedMessage      `json:"message"`
	}
	switch err := json.Unmarshal(answer.Data, &got); {
	case err != nil:
		return nil, err
	case got.Error != nil && got.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case got.Error != nil:
		return nil, explain(e.seatsBucket(bucket), got.Error)
	case got.Message == nil:
		return nil, errors.New("NATS has answered with neither a message nor an error")
	}
	return got.Message, nil
}

// last returns the newest record of a session, or the mark of its deletion, nil for neither.
func (e *Engine) last(ctx context.Context, bucket int, session string) (*storedMessage, error) {
	return e.leaderGet(ctx, "seat_get", bucket, map[string]any{"last_by_subj": e.seatSubject(bucket, session)})
}

func (e *Engine) seatSubject(bucket int, session string) string {
	return "$KV." + e.seatsBucket(bucket) + "." + session
}

// GetSeat implements cluster.SeatStore.
func (e *Engine) GetSeat(ctx context.Context, session string) (cluster.StoredSeat, error) {
	bucket := cluster.SeatBucket(session)
	m, err := e.last(ctx, bucket, session)
	switch {
	case err != nil:
		return cluster.StoredSeat{}, err
	case m == nil || m.deleted():
		return cluster.StoredSeat{}, cluster.ErrNoRecord
	}
	return m.seat(e.seatsBucket(bucket)), nil
}

// PutSeat implements cluster.SeatStore.
func (e *Engine) PutSeat(ctx context.Context, session string, value []byte, revision uint64) (uint64, error) {
	bucket := cluster.SeatBucket(session)
	m := &nats.Msg{Subject: e.seatSubject(bucket, session), Data: value}
	written, err := e.writeSeat(ctx, "seat_put", bucket, m, revision)
	if revision != 0 || !errors.Is(err, cluster.ErrOvertaken) {
		return written, err
	}
	// The mark of a deletion, which stays for a minute, counts as a record for NATS.
	there, lost := e.last(ctx, bucket, session)
	if lost != nil || there == nil || !there.deleted() {
		return 0, err
	}
	return e.writeSeat(ctx, "seat_put", bucket, &nats.Msg{Subject: m.Subject, Data: value}, there.Sequence)
}

// DeleteSeat implements cluster.SeatStore.
func (e *Engine) DeleteSeat(ctx context.Context, session string, revision uint64) error {
	bucket := cluster.SeatBucket(session)
	m := nats.NewMsg(e.seatSubject(bucket, session))
	m.Header.Set(operationHeader, "PURGE")
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	_, err := e.writeSeat(ctx, "seat_delete", bucket, m, revision, jetstream.WithMsgTTL(markerTTL))
	return err
}

// writeSeat writes a message if the last one of its subject has this revision. Where no server takes it, it is
// sent up to two times more.
func (e *Engine) writeSeat(ctx context.Context, op string, bucket int, m *nats.Msg, revision uint64, opts ...jetstream.PublishOpt) (uint64, error) {
	nc, js := e.seatsConn()
	if nc == nil {
		return 0, cluster.ErrEngineDown
	}
	ctx, end := e.timed(ctx, op)
	defer end()
	began := time.Now()
	ack, err := js.PublishMsg(ctx, m, append(opts, jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithExpectStream("KV_"+e.seatsBucket(bucket)))...)
	if overtaken(err) {
		return 0, cluster.ErrOvertaken
	}
	if err != nil {
		e.noteFailed("KV_"+e.seatsBucket(bucket), err)
		return 0, err
	}
	e.confirmed(began)
	return ack.Sequence, nil
}

// overtaken reports whether a write was refused since its condition does not hold. Streams with replicas say
// it by a code of their own.
func overtaken(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// ListSeats implements cluster.SeatStore, without a consumer. What is written while it lists is not listed.
func (e *Engine) ListSeats(ctx context.Context, bucket int) iter.Seq2[cluster.StoredSeat, error] {
	return func(yield func(cluster.StoredSeat, error) bool) {
		newest, err := e.newestSeat(ctx, bucket)
		name := e.seatsBucket(bucket)
		for next := uint64(1); err == nil && next <= newest; {
			var m *storedMessage
			m, err = e.leaderGet(ctx, "seat_list", bucket, map[string]any{"seq": next, "next_by_subj": "$KV." + name + ".>"})
			if err != nil || m == nil || m.Sequence > newest {
				break
			}
			next = m.Sequence + 1
			if !m.deleted() && !yield(m.seat(name), nil) {
				return
			}
		}
		if err != nil {
			yield(cluster.StoredSeat{}, err)
		}
	}
}

// newestSeat is the newest revision in a bucket.
func (e *Engine) newestSeat(ctx context.Context, bucket int) (uint64, error) {
	nc, js := e.seatsConn()
	if nc == nil {
		return 0, cluster.ErrEngineDown
	}
	ctx, end := e.timed(ctx, "seat_info")
	defer end()
	st, err := js.Stream(ctx, "KV_"+e.seatsBucket(bucket))
	if err != nil {
		e.noteFailed("KV_"+e.seatsBucket(bucket), err)
		return 0, explain(e.seatsBucket(bucket), err)
	}
	return st.CachedInfo().State.LastSeq, nil
}

// confirmed notes that a write was confirmed that began at a time.
func (e *Engine) confirmed(began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if began.After(e.contact) {
		e.contact = began
	}
}

// Contact implements cluster.SeatStore.
func (e *Engine) Contact() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.contact
}

// probeSeats looks at the buckets.
func (f *Found) probeSeats(ctx context.Context, js jetstream.JetStream) {
	for i := range f.Seats {
		b := &f.Seats[i]
		if f.Denied.Publishes("$JS.API.STREAM.INFO.KV_" + b.Name) {
			continue
		}
		b.Err = within(ctx, func(ctx context.Context) error {
			st, err := f.probeStream(ctx, js, b)
			if st == nil {
				return err
			}
			switch c := st.CachedInfo().Config; {
			case c.Storage != jetstream.FileStorage:
				return errors.New("is in memory, where a restart can empty it: delete it, and a node makes it again")
			case !c.AllowMsgTTL || c.MaxMsgsPerSubject != 1:
				return errors.New("has other settings than nodes give it: delete it, and a node makes it again")
			}
			return leaderless(st.CachedInfo())
		})
	}
}
