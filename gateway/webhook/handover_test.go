package webhook

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/events"
)

// handOver has another Hook continue d's, with a Hub of its own, and returns that Hub.
func (d *desk) handOver(published func(*events.Hub)) {
	d.Helper()
	later := events.New(time.Now)
	next := Start(Config{Target: d.hook.cfg.Target, Secrets: d.hook.cfg.Secrets, Events: later, Transport: d.receiver, Log: slog.New(slog.DiscardHandler), Hold: true})
	published(later)
	synctest.Wait()
	ctx, cancel := context.WithTimeout(d.Context(), 5*time.Second)
	defer cancel()
	list := d.hook.HandOver(ctx)
	if d.count("unsent") != 0 {
		d.Error("what is handed over counts as unsent")
	}
	d.hook = next
	next.Continue(list)
	synctest.Wait()
}

func TestHandedOverEventsPrecedeThoseOfTheSuccessor(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(func(*post) *http.Response { return answered(http.StatusServiceUnavailable) })
		d.publish("s1", events.Created)
		d.publish("s2", events.Created)
		d.publish("s1", events.Detached)
		synctest.Wait()
		tried := d.receiver.posts()
		first := ""
		for _, p := range tried {
			if p.event.Session == "s1" {
				first = p.id()
			}
		}
		d.receiver.answers(ok)
		d.handOver(func(later *events.Hub) {
			later.Publish(events.Event{Type: events.Resumed, Session: "s1"})
		})
		var ids []string
		for _, p := range d.receiver.posts()[len(tried):] {
			if p.event.Session == "s1" {
				ids = append(ids, p.event.Type+" "+p.id())
			}
		}
		if len(ids) != 3 || ids[0] != events.Created+" "+first {
			t.Errorf("%q, want the first under the id %s, and then the others", ids, first)
		}
		d.close(0)
	})
}

// A receiver that answers late gets the event again, under the same id.
func TestPostWithoutAnswerIsHandedOver(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(func(*post) *http.Response { return nil })
		d.publish("s1", events.Created)
		synctest.Wait()
		began := time.Now()
		d.handOver(func(*events.Hub) { d.receiver.answers(ok) })
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("waited for %s", waited)
		}
		list := d.receiver.posts()
		if len(list) != 2 || list[0].id() != list[1].id() {
			t.Errorf("%d posts, want two with the same id", len(list))
		}
		d.close(0)
	})
}
