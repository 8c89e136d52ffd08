package admin

import (
	"io"
	"net/http"
	"strings"
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

// Nobody publishes the ends of a lost node's sessions: readers of all others are asked to list the
// sessions again, once, though each node finds it lost.
func TestLostNodeIsAGap(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		here, there := nodes[1].serve().listen("?session=x"), nodes[2].serve().listen("?session=x")
		for _, n := range nodes[1:] {
			n.lost(nodes[0].node)
		}
		synctest.Wait()
		nodes[1].happens("x")
		for _, l := range []*listener{here, there} {
			if e := l.event(); e.Type != events.Gap || e.Node != "ann" || e.Reason != nodeLost {
				t.Errorf("%+v, want the gap of ann with reason %s", e, nodeLost)
			}
			l.want("session.resumed x")
		}
		if here.last != there.last {
			t.Errorf("ids %s and %s, want the same", here.last, there.last)
		}
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
