package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"reseat/gateway/events"
)

func TestEventIsSignedByStandardWebhooks(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.publish("s1", events.Created)
		d.publish("s1", events.Detached)
		list := d.receiver.posts()
		if len(list) != 2 || list[0].id() == list[1].id() {
			t.Fatalf("%d posts", len(list))
		}
		p := list[0]
		verify, _ := standardwebhooks.NewWebhook(d.secret)
		if err := verify.VerifyIgnoringTimestamp(p.body, p.Header); err != nil {
			t.Error(err)
		}
		if got := p.Header.Get("webhook-timestamp"); got != fmt.Sprint(p.at.Unix()) {
			t.Errorf("timestamp %s, want that of the attempt %d", got, p.at.Unix())
		}
		if user, pass, _ := p.BasicAuth(); p.Method != "POST" || p.URL.String() != "https://hooks.example/reseat?key=1" || user+":"+pass != "user:pass" ||
			p.Header.Get("Content-Type") != "application/json" || strings.Contains(p.id(), ".") {
			t.Errorf("%s %s %v", p.Method, p.URL, p.Header)
		}
		stamp := p.at.UTC().Format(time.RFC3339Nano)
		want := `{"type":"session.created","timestamp":"` + stamp + `","time":"` + stamp + `","session":"s1","player":"p","group":"g","path":"/m","reason":"r","silent_ms":null,"away_ms":null}`
		if got := string(p.body); got != want {
			t.Errorf("body %s, want %s", got, want)
		}
	})
}

func TestEventsOfOneSessionArePostedInOrder(t *testing.T) {
	inDesk(t, func(d *desk) {
		tries := 0
		d.receiver.answers(func(p *post) *http.Response {
			if tries++; p.event.Session == "s1" && p.event.Type == events.Created && tries < 3 {
				return answered(http.StatusInternalServerError)
			}
			return ok(p)
		})
		d.publish("s1", events.Created)
		d.publish("s1", events.Moved)
		d.publish("s1", events.Resumed)
		synctest.Wait()
		d.wantTypes("s1", events.Created)
		d.publish("s2", events.Created)
		d.wantTypes("s2", events.Created) // is not delayed
		time.Sleep(time.Minute)
		d.wantTypes("s1", events.Created, events.Created, events.Moved, events.Resumed)
		list := d.receiver.posts()
		if list[0].id() != list[2].id() {
			t.Errorf("the same event has the ids %s and %s", list[0].id(), list[2].id())
		}
		if wait := list[2].at.Sub(list[0].at); wait < 500*time.Millisecond || wait > time.Second {
			t.Errorf("tried again after %v", wait)
		}
	})
}

func TestConcurrentPostsAreBounded(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(func(*post) *http.Response { return nil })
		for i := range 20 {
			d.publish(fmt.Sprint(i), events.Created)
		}
		held := d.receiver.posts()
		if len(held) != maxInFlight {
			t.Errorf("%d posts at once, want %d", len(held), maxInFlight)
		}
		d.receiver.answers(ok)
		for _, p := range held {
			p.reply <- ok(p)
		}
		if n := len(d.receiver.posts()); n != 20 {
			t.Errorf("%d posts, want 20", n)
		}
	})
}

// down answers nothing: like a server that is unreachable.
func down(*post) *http.Response { return &http.Response{} }

func TestDownReceiverGetsOneAttemptAtATimeWithBackoff(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(down)
		for i := range 100 {
			d.publish(fmt.Sprint(i), events.Created)
		}
		synctest.Wait()
		first := len(d.receiver.posts())
		time.Sleep(time.Hour)
		list := d.receiver.posts()
		if first > maxInFlight+downAfter || len(list) > first+40 {
			t.Errorf("%d attempts at first, %d in an hour", first, len(list))
		}
		for i := first + 10; i < len(list); i++ {
			if gap := list[i].at.Sub(list[i-1].at); gap < maxBackoff/2 || gap > maxBackoff {
				t.Errorf("attempt %d after %v, want %v to %v", i, gap, maxBackoff/2, maxBackoff)
			}
		}
		d.receiver.answers(ok)
		time.Sleep(2 * maxBackoff)
		if n := d.count("delivered"); n != 100 {
			t.Errorf("%d delivered once it was back, want 100", n)
		}
	})
}

func TestMetricsAndLogTellOfAnOutage(t *testing.T) {
	inDesk(t, func(d *desk) {
		registry := prometheus.NewRegistry()
		d.hook.Register(registry)
		want := func(when string, waiting, delivered, ok, failed int, logged string) {
			t.Helper()
			text := fmt.Sprintf(`# HELP reseat_webhook_waiting_events Events that wait to be posted.
# TYPE reseat_webhook_waiting_events gauge
reseat_webhook_waiting_events %d
`, waiting)
			if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "reseat_webhook_waiting_events"); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			attempts := func(result string) int {
				return int(testutil.ToFloat64(d.hook.metrics.attempts.WithLabelValues(result)))
			}
			if d.count("delivered") != delivered || attempts("ok") != ok || attempts("failed") != failed {
				t.Errorf("%s: %d delivered by %d attempts, %d have failed; want %d, %d and %d", when, d.count("delivered"), attempts("ok"), attempts("failed"), delivered, ok, failed)
			}
			if n := strings.Count(d.log.String(), "msg="+logged+" url=https://hooks.example/reseat waiting="); n != 1 {
				t.Errorf("%s: %d lines %s in\n%s", when, n, logged, &d.log)
			}
		}
		d.receiver.answers(down)
		for i := range downAfter {
			d.publish(fmt.Sprint(i), events.Created)
		}
		synctest.Wait()
		want("down", downAfter, 0, 0, downAfter, "webhook.receiver_down")
		d.receiver.answers(ok)
		time.Sleep(2 * maxBackoff)
		want("up again", 0, downAfter, downAfter, downAfter, "webhook.receiver_up")
	})
}

func TestFullQueueDropsTheOldestAndReportsGap(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(down)
		d.publish("first", events.Created)
		synctest.Wait()
		for i := range MaxQueued + 9 {
			d.publish(fmt.Sprint(i), events.Created)
			if i%1000 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if n := d.count("dropped"); n != 10 {
			t.Errorf("%d dropped, want 10", n)
		}
		before := len(d.receiver.posts())
		d.receiver.answers(ok)
		time.Sleep(10 * time.Minute)
		for _, p := range d.receiver.posts()[before:] {
			if slices.Contains([]string{"first", "0", "8"}, p.event.Session) {
				t.Errorf("session %s, one of the oldest, was posted", p.event.Session)
			}
		}
		if n := d.count("delivered"); n != MaxQueued+1 { // and the gap
			t.Errorf("%d delivered, want %d", n, MaxQueued+1)
		}
		d.wantTypes("", events.Gap)
		for _, p := range d.receiver.posts() {
			if p.event.Type == events.Gap && p.event.Reason != "10 events were not delivered" {
				t.Errorf("the gap says %q", p.event.Reason)
			}
		}
	})
}

// The data path publishes events.
func TestPublishNeverWaitsForHangingReceiver(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(func(*post) *http.Response { return nil })
		began := time.Now()
		for range 3 * MaxQueued {
			d.publish("s", events.Detached)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
		d.receiver.answers(ok)
		time.Sleep(time.Hour)
		given := d.count("dropped") + d.count("delivered") - len(d.types(""))
		if given != 3*MaxQueued {
			t.Errorf("%d events accounted for, want %d", given, 3*MaxQueued)
		}
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(func(*post) *http.Response { return answered(http.StatusTooManyRequests, "Retry-After", "120") })
		d.publish("s1", events.Created)
		synctest.Wait()
		d.receiver.answers(ok)
		d.publish("s2", events.Created) // it holds for all of them
		time.Sleep(119 * time.Second)
		if n := len(d.receiver.posts()); n != 1 {
			t.Errorf("%d posts within the time, want 1", n)
		}
		time.Sleep(2 * time.Second)
		if n := d.count("delivered"); n != 2 {
			t.Errorf("%d delivered, want 2", n)
		}
	})
}

func TestRepeatedlyRefusedEventIsAbandoned(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(func(p *post) *http.Response {
			if p.event.Type == events.Overflowed {
				return answered(http.StatusUnprocessableEntity)
			}
			return ok(p)
		})
		d.publish("s1", events.Overflowed)
		d.publish("s1", events.Ended)
		time.Sleep(5 * time.Minute)
		want := []string{}
		for range maxRefusals {
			want = append(want, events.Overflowed)
		}
		d.wantTypes("s1", append(want, events.Ended)...)
		d.wantTypes("", events.Gap)
		if line := fmt.Sprintf("msg=webhook.event_abandoned type=%s session=s1 attempts=%d ", events.Overflowed, maxRefusals); strings.Count(d.log.String(), line) != 1 {
			t.Errorf("no line %q in\n%s", line, &d.log)
		}
		if n := d.count("refused"); n != 1 {
			t.Errorf("%d refused, want 1", n)
		}
	})
}

func TestEventIsRetriedForADay(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(func(p *post) *http.Response {
			if p.event.Session == "bad" {
				return answered(http.StatusInternalServerError)
			}
			return ok(p)
		})
		d.publish("bad", events.Created)
		time.Sleep(maxAge - 2*maxBackoff)
		d.publish("good", events.Created)
		if synctest.Wait(); d.count("expired") != 0 {
			t.Error("abandoned before a day")
		}
		time.Sleep(4 * maxBackoff)
		if d.count("expired") != 1 || d.count("delivered") == 0 {
			t.Errorf("%d expired, %d delivered", d.count("expired"), d.count("delivered"))
		}
	})
}

func TestStatus410StopsPostsUntilReload(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(func(*post) *http.Response { return answered(http.StatusGone) })
		d.publish("s1", events.Created)
		d.publish("s1", events.Detached)
		synctest.Wait()
		d.publish("s2", events.Created)
		time.Sleep(24 * time.Hour)
		if n := len(d.receiver.posts()); n != 1 || d.count("gone") != 3 {
			t.Errorf("%d posts, %d gone; want 1 and 3", n, d.count("gone"))
		}
		d.receiver.answers(ok)
		if err := d.hook.Reload(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d.publish("s3", events.Created)
		d.wantTypes("s3", events.Created)
		d.wantTypes("", events.Gap)
	})
}

func TestStatus410StopsPostsInFlight(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(func(*post) *http.Response { return nil })
		for i := range 10 {
			d.publish(fmt.Sprint(i), events.Created)
		}
		held := d.receiver.posts()
		held[3].reply <- answered(http.StatusGone)
		synctest.Wait()
		for i, p := range held {
			if i != 3 {
				p.reply <- answered(http.StatusInternalServerError)
			}
		}
		time.Sleep(time.Hour)
		if n := len(d.receiver.posts()); n != maxInFlight || d.count("gone") != 10 {
			t.Errorf("%d posts, %d gone; want %d and 10", n, d.count("gone"), maxInFlight)
		}
	})
}

func TestRedirectIsNotFollowed(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(func(*post) *http.Response {
			return answered(http.StatusTemporaryRedirect, "Location", "https://elsewhere.example/")
		})
		d.publish("s1", events.Created)
		time.Sleep(time.Minute)
		for _, p := range d.receiver.posts() {
			if p.URL.Host != "hooks.example" {
				t.Errorf("posted to %s", p.URL)
			}
		}
	})
}

func TestPostTimesOutAfter15Seconds(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(func(*post) *http.Response { return nil })
		d.publish("s1", events.Created)
		time.Sleep(attemptTimeout + 2*time.Second)
		if n := len(d.receiver.posts()); n != 2 {
			t.Errorf("%d attempts, want 2", n)
		}
		d.receiver.answers(ok)
		time.Sleep(time.Minute)
	})
}

// endless is a body that never ends.
type endless struct{ read, closed int }

func (e *endless) Read(b []byte) (int, error) { e.read += len(b); return len(b), nil }
func (e *endless) Close() error               { e.closed++; return nil }

func TestResponseBodyIsReadUpToALimit(t *testing.T) {
	inDesk(t, func(d *desk) {
		body := new(endless)
		d.receiver.answers(func(*post) *http.Response {
			resp := answered(http.StatusOK)
			resp.Body = body
			return resp
		})
		d.publish("s1", events.Created)
		d.wantTypes("s1", events.Created)
		if body.read > 2*maxAnswer || body.closed != 1 {
			t.Errorf("%d bytes read, closed %d times", body.read, body.closed)
		}
	})
}

func TestCloseDeliversQueuedEvents(t *testing.T) {
	inDesk(t, func(d *desk) {
		d.receiver.answers(down)
		for range 3 {
			d.publish("s1", events.Detached)
		}
		time.Sleep(10 * time.Second)
		d.receiver.answers(ok)
		d.publish("s2", events.Ended)
		began := time.Now()
		d.close(0)
		if d.count("delivered") != 4 || time.Since(began) != 0 {
			t.Errorf("%d delivered after %v, want 4 at once", d.count("delivered"), time.Since(began))
		}
		// A Hub holds its readers until they close, and would wake this one by each event.
		select {
		case <-d.hook.reader.Wake():
		default:
		}
		d.publish("s3", events.Ended)
		select {
		case <-d.hook.reader.Wake():
			t.Error("the Hub still wakes the reader of a closed Hook")
		default:
		}
	})
}

func TestCloseWaitsForNoReceiverThatIsDownAndGivesUpOnOneThatHangs(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(*post) *http.Response
		took   time.Duration
	}{"down": {down, 0}, "hanging": {func(*post) *http.Response { return nil }, 5 * time.Second}} { // the limit of its caller
		inDesk(t, func(d *desk) {
			d.receiver.answers(tt.answer)
			for i := range 10 {
				d.publish(fmt.Sprint(i), events.Ended)
			}
			time.Sleep(time.Minute)
			began := time.Now()
			d.close(10)
			if took := time.Since(began); took != tt.took || d.count("unsent") != 10 {
				t.Errorf("%s: took %v, %d unsent; want %v and 10", name, took, d.count("unsent"), tt.took)
			}
		})
	}
}

func TestReloadSignsWithTheNewSecretAndForADayWithTheOldOne(t *testing.T) {
	inDesk(t, func(d *desk) {
		older, newer := d.secret, newSecret('b')
		signed := func(after string, old bool) {
			t.Helper()
			d.publish("s1", events.Created)
			list := d.receiver.posts()
			p := list[len(list)-1]
			for secret, want := range map[string]bool{newer: true, older: old} {
				w, _ := standardwebhooks.NewWebhook(secret)
				if err := w.VerifyIgnoringTimestamp(p.body, p.Header); (err == nil) != want {
					t.Errorf("after %s: signed %s; the old one's: %t; %v", after, p.Header.Get("webhook-signature"), secret == older, err)
				}
			}
		}
		write(t, d.file, newer)
		if err := d.hook.Reload(); err != nil {
			t.Fatal(err)
		}
		signed("a reload", true)
		write(t, d.file, "whsec_short")
		if d.hook.Reload() == nil {
			t.Error("a bad file was accepted")
		}
		signed("a refused file", true)
		time.Sleep(retiredTime)
		signed("a day", false)
	})
}

// handOver has another Hook continue d's, with a Hub of its own, and returns that Hub.
func (d *desk) handOver(published func(*events.Hub)) {
	d.Helper()
	later := events.New(time.Now)
	next := Start(Config{Target: d.hook.cfg.Target, Secrets: d.hook.cfg.Secrets, Events: later, Counter: Unseen, Transport: d.receiver, Log: slog.New(slog.DiscardHandler), Hold: true})
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
