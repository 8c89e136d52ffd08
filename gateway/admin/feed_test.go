package admin

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/events"
)

func TestStreamHasEventsOfAllNodes(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		all, own, other := nodes[1].serve().listen(""), nodes[1].serve().listen("?node=self"), nodes[1].serve().listen("?node=cid")
		for _, n := range nodes {
			p, _ := n.play("red")
			all.want("session.created " + p.Hello.Session)
			time.Sleep(time.Second)
			nodes[0].wantStatus("DELETE", path(p), http.StatusNoContent)
			all.want("session.ended " + p.Hello.Session)
		}
		late := nodes[0].serve().listen("?last=9")
		late.wantFrom("session.created ann", "session.ended ann", "session.created bob", "session.ended bob", "session.created cid", "session.ended cid")
		own.wantFrom("session.created bob", "session.ended bob")
		other.wantFrom("session.created cid", "session.ended cid")
		p, _ := nodes[0].play("blue")
		nodes[2].serve().listen("?last=9&group=blue").want("session.created " + p.Hello.Session)
		own.Close()
		other.Close()
	})
}

// Each node numbers all events itself.
func TestStreamContinuesAtItsNodeAlone(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		at := nodes[0].serve()
		l := at.listen("")
		for i := range 3 {
			nodes[i%2].play("")
			synctest.Wait()
		}
		l.wantFrom("session.created ann", "session.created bob")
		l.Close()
		if n, err := strconv.ParseUint(l.last, 10, 64); err != nil || n%events.Marks != 1 || n/events.Marks < uint64(time.Now().UnixMicro()) {
			t.Errorf("id %s, %v", l.last, err)
		}
		at.listen("", "Last-Event-ID: "+l.last).wantFrom("session.created ann")
		nodes[1].serve().listen("", "Last-Event-ID: "+l.last).wantFrom("gap", "session.created ann", "session.created bob", "session.created ann")
		at.listen("?node=self", "Last-Event-ID: "+l.last).wantFrom("gap ann", "session.created ann", "session.created ann")
	})
}

// While a node's connection for events is lost its readers get its own events, and a gap
// once that is restored. So do the readers of other nodes.
func TestStreamShowsWhereEventsOfOthersMayBeMissing(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		here, there := nodes[0].serve().listen(""), nodes[1].serve().listen("")
		nodes[0].hear(false)
		for _, n := range nodes {
			n.play("")
			synctest.Wait()
		}
		here.wantFrom("session.created ann")
		there.wantFrom("session.created bob", "session.created cid")
		nodes[0].hear(true)
		synctest.Wait()
		for _, n := range nodes {
			n.play("")
			synctest.Wait()
		}
		here.wantFrom("gap", "session.created ann", "session.created bob", "session.created cid")
		there.wantFrom("gap ann", "session.created ann", "session.created bob", "session.created cid")
	})
}

func TestLostMessageIsAGap(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		l := nodes[1].serve().listen("")
		for i := range 3 {
			nodes[1].set(func(n *place) { n.deaf = i == 1 })
			nodes[0].play("")
			synctest.Wait()
		}
		l.wantFrom("session.created ann", "gap ann", "session.created ann")
	})
}

// A node that has more events than it can forward says so.
func TestEventsThatWereNotForwardedAreAGap(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		synctest.Wait()
		var gaps atomic.Int32
		nodes[0].set(func(*place) { // nothing is sent meanwhile
			s := nodes[0].town.subs[nodes[1].node.ID]
			take := s.message
			s.message = func(node string, data []byte) {
				gaps.Add(int32(strings.Count(string(data), `"type":"gap"`)))
				take(node, data)
			}
			for i := range events.Kept + 2*maxBatch {
				nodes[0].gw.Watch().Events.Publish(events.Event{Type: events.Resumed, Session: fmt.Sprint(i)})
			}
		})
		synctest.Wait()
		if gaps.Load() == 0 {
			t.Error("no gap was sent")
		}
	})
}

// Nobody publishes the ends of a lost node's sessions: readers of all others are told to list the
// sessions again.
func TestLostNodeIsAGap(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		l := nodes[1].serve().listen("?session=x")
		nodes[1].lost("ann")
		for e := l.next(); ; e = l.next() {
			if e.Type != "" {
				if e.Type != events.Gap || e.Node != "ann" || e.Reason != nodeLost {
					t.Errorf("%+v, want the gap of ann with reason %s", e, nodeLost)
				}
				break
			}
		}
	})
}

func TestMessagesThatAreNoEventsAreNotTaken(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		l := nodes[0].serve().listen("")
		for _, bad := range []string{"", "x", "{}", `{"n":1,"event":{"type":"session.unheard_of"}}`, `{"n":"1"}`, `[]`} {
			nodes[1].Publish([]byte(bad))
		}
		synctest.Wait()
		nodes[1].play("")
		l.wantFrom("session.created bob")
	})
}

func TestClusterStreamEndsCleanlyWithGateway(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		l := nodes[0].serve().listen("")
		p, _ := nodes[0].play("")
		l.want("session.created " + p.Hello.Session)
		nodes[0].gw.Close()
		l.want("session.ended " + p.Hello.Session)
		if line, err := l.line(); err != io.EOF {
			t.Errorf("%q, %v; want the end of the body", line, err)
		}
	})
}

// A reader of another node's stream that does not read is closed, as at that node.
func TestStuckReaderOfAnotherNodesStreamIsClosed(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		l := nodes[0].serve().listen("?node=bob")
		for range 400 {
			nodes[1].gw.Watch().Events.Publish(events.Event{Type: events.Resumed, Session: strings.Repeat("x", 100)})
			synctest.Wait()
		}
		time.Sleep(2*streamWriteTimeout + time.Second)
		if _, err := io.ReadAll(l.body); err == nil {
			t.Error("it came to an end in order, rather than cut")
		}
	})
}
