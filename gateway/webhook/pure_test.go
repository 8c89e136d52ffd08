package webhook

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reseat/gateway/events"
)

// A queueModel is a queue and the plain list that it is compared with.
type queueModel struct {
	q    *queue
	most int
	id   uint64
	list []*item // oldest first
	busy []*line
	now  time.Time
}

func (m *queueModel) forget(it *item) {
	m.list = slices.DeleteFunc(m.list, func(o *item) bool { return o == it })
}

// waits reports whether an item is queued but not in flight.
func (m *queueModel) waits(it *item) bool {
	l := m.q.lines[it.Session]
	return !slices.Contains(m.busy, l) || l.head != it
}

func (m *queueModel) push(t *rapid.T) {
	m.id++
	it := &item{Event: events.Event{ID: m.id, Session: fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "session"))}}
	full := len(m.list) >= m.most
	dropped := m.q.push(it)
	switch {
	case full:
		if oldest := m.list[slices.IndexFunc(m.list, m.waits)]; dropped != oldest {
			t.Fatalf("dropped %v, want %v", dropped, oldest)
		}
		m.forget(dropped)
	case dropped != nil:
		t.Fatalf("dropped %v with room", dropped)
	}
	m.list = append(m.list, it)
}

func (m *queueModel) take(t *rapid.T) {
	l, due := m.q.take(m.now)
	if l == nil {
		if due.IsZero() && slices.ContainsFunc(m.list, func(o *item) bool { return !slices.Contains(m.busy, m.q.lines[o.Session]) }) {
			t.Fatal("nothing to take, now or later")
		}
		return
	}
	first := m.list[slices.IndexFunc(m.list, func(o *item) bool { return o.Session == l.head.Session })]
	if slices.Contains(m.busy, l) || l.head != first || l.due.After(m.now) {
		t.Fatalf("took %v, want %v", l.head, first)
	}
	m.busy = append(m.busy, l)
}

func (m *queueModel) finish(t *rapid.T) {
	if len(m.busy) == 0 {
		t.Skip()
	}
	l := m.busy[0]
	m.busy = m.busy[1:]
	if rapid.Bool().Draw(t, "taken") {
		m.forget(l.head)
		m.q.done(l)
		return
	}
	m.q.again(l, m.now, m.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "pause"))*time.Second))
}

func (m *queueModel) check(t *rapid.T) {
	sessions := map[string]bool{}
	for _, it := range m.list {
		sessions[it.Session] = true
	}
	if m.q.len() != len(m.list) || len(m.q.lines) != len(sessions) {
		t.Fatalf("%d events, want %d; %d lines, want %d", m.q.len(), len(m.list), len(m.q.lines), len(sessions))
	}
}

// The queue is compared with a plain list: in any order of calls, the events of a session
// are posted in order, one at a time, and the oldest event makes room.
func TestQueueKeepsOrderAndDropsTheOldest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 6
		m := &queueModel{q: newQueue(most), most: most, now: time.Unix(0, 0)}
		t.Repeat(map[string]func(*rapid.T){
			"push":     m.push,
			"take":     m.take,
			"finish":   m.finish,
			"wait":     func(*rapid.T) { m.now = m.now.Add(time.Second) },
			"resetDue": func(*rapid.T) { m.q.resetDue() },
			"":         m.check,
		})
	})
}

func queued(q *queue, id uint64, session string) *item {
	it := &item{Event: events.Event{ID: id, Session: session}}
	q.push(it)
	return it
}

// The failures of one event must not count for the next one of its session.
func TestNextEventBeginsWithoutFailures(t *testing.T) {
	q := newQueue(10)
	queued(q, 1, "s")
	queued(q, 2, "s")
	now := time.Unix(1000, 0)
	l, _ := q.take(now)
	q.again(l, now, now.Add(time.Minute))
	l, _ = q.take(now.Add(time.Minute))
	q.done(l)
	if l.head.ID != 2 || l.tries != 0 || !l.since.IsZero() || !l.due.IsZero() {
		t.Errorf("event %d begins with %d tries since %v, due %v", l.head.ID, l.tries, l.since, l.due)
	}
}

// Lines that become due at the same time are taken by the age of their events.
func TestLinesThatBecomeDueAreTakenOldestFirst(t *testing.T) {
	q := newQueue(10)
	now := time.Unix(1000, 0)
	const n = 5
	var busy []*line
	for id := uint64(1); id <= n; id++ {
		queued(q, id, fmt.Sprint(id))
		l, _ := q.take(now)
		busy = append(busy, l)
	}
	for i, l := range busy {
		q.again(l, now, now.Add(time.Duration(n-i)*time.Minute)) // the oldest last
	}
	q.resetDue()
	for id := uint64(1); id <= n; id++ {
		if l, _ := q.take(now); l == nil || l.head.ID != id {
			t.Fatalf("%v is taken, want the line of event %d", l, id)
		}
	}
}

func TestAnswersAreClassified(t *testing.T) {
	for status, want := range map[int]verdict{
		200: delivered, 204: delivered, 299: delivered,
		301: failed, 308: failed, 401: failed, 403: failed, 404: failed, 408: failed, 429: failed, 500: failed, 502: failed, 503: failed, 504: failed,
		400: refused, 413: refused, 415: refused, 422: refused,
		410: gone,
	} {
		if got := judge(status); got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
}

func TestRetryAfterIsReadInBothForms(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "1.5": 0,
		"99999999":                      maxRetryAfter,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute,
		"Fri, 02 Jan 2026 03:00:05 GMT": 0,
		"Fri, 09 Jan 2026 03:05:05 GMT": maxRetryAfter,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestBackoffGrowsWithJitter(t *testing.T) {
	for n, whole := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		whole *= time.Second
		seen := map[time.Duration]bool{}
		for range 100 {
			d := backoff(n)
			if d < whole/2 || d > whole {
				t.Fatalf("backoff %d is %v, want %v to %v", n, d, whole/2, whole)
			}
			seen[d] = true
		}
		if len(seen) < 10 {
			t.Errorf("backoff %d is always one of %d", n, len(seen))
		}
	}
	if d := backoff(1 << 40); d > maxBackoff || d < maxBackoff/2 {
		t.Errorf("the last one is %v", d)
	}
}

func TestBadSecretsAreNamedAndNotShown(t *testing.T) {
	good := newSecret('a')
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{""}, "want 1 to 8 secrets"},
		{[]string{good, "", "whsec_SECRET!"}, "line 3: want whsec_ and base64"},
		{[]string{"whsec_U0VDUkVU"}, "line 1: want the base64 of 24 to 64 random bytes, got 6"},
		{[]string{"whsk_SECRET"}, "line 1: want a secret that begins with whsec_"},
		{slices.Repeat([]string{good}, 9), "want 1 to 8 secrets, one a line, got 9"},
	} {
		file := filepath.Join(t.TempDir(), "secret")
		write(t, file, c.lines...)
		_, err := LoadSecrets(file)
		if err == nil || !strings.HasPrefix(err.Error(), "--webhook-secret-file: "+c.want) || strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "U0VD") {
			t.Errorf("%.40q: %v, want %s", c.lines, err, c.want)
		}
	}
	large := filepath.Join(t.TempDir(), "secret")
	write(t, large, strings.Repeat("SECRET", 5000))
	if _, err := LoadSecrets(large); err == nil || !strings.HasSuffix(err.Error(), ": is larger than 16384 bytes") || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("too large a file: %v", err)
	}
	if _, err := LoadSecrets("/no/such\nfile"); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a file that is not there: %v", err)
	}
	file := filepath.Join(t.TempDir(), "secret")
	write(t, file, good, strings.TrimPrefix(newSecret('b'), "whsec_"))
	if s, err := LoadSecrets(file); err != nil || s.Count() != 2 {
		t.Errorf("two good ones: %v", err)
	}
}

func TestShownOmitsSecrets(t *testing.T) {
	u, _ := url.Parse("https://user:pass@hooks.example:8443/a%2Fb?key=secret")
	if got := Shown(u); got != "https://hooks.example:8443/a%2Fb" {
		t.Errorf("%s is shown", got)
	}
}

// loadSecret loads a file of one secret.
func loadSecret(t *testing.T) (s *Secrets, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "secret")
	write(t, file, newSecret('a'))
	s, err := LoadSecrets(file)
	if err != nil {
		t.Fatal(err)
	}
	return s, file
}

// signers counts the signatures of a post at that time.
func signers(t *testing.T, s *Secrets, now time.Time) int {
	t.Helper()
	header, err := s.sign("id", now, []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(header))
}

func TestEachRemovedSecretSignsForItsOwnDay(t *testing.T) {
	s, file := loadSecret(t)
	start := time.Unix(1_000_000, 0)
	reload := func(after time.Duration, secrets ...string) {
		t.Helper()
		write(t, file, secrets...)
		if err := s.Reload(start.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(after time.Duration, n int) {
		t.Helper()
		if got := signers(t, s, start.Add(after)); got != n {
			t.Errorf("after %v: %d signatures, want %d", after, got, n)
		}
	}
	reload(0, newSecret('b'))
	reload(6*time.Hour, newSecret('c')) // the first one still has 18 hours
	want(6*time.Hour, 3)
	want(24*time.Hour-1, 3)
	want(24*time.Hour, 2)
	want(30*time.Hour, 1)
	reload(7*time.Hour, newSecret('a')) // one that comes back signs once
	want(7*time.Hour, 3)
}

func TestRemovedSecretsAreBounded(t *testing.T) {
	s, file := loadSecret(t)
	now := time.Unix(1_000_000, 0)
	for i := range maxOld {
		write(t, file, newSecret(byte('b'+i)))
		if err := s.Reload(now); err != nil {
			t.Fatal(i, err)
		}
	}
	before := signers(t, s, now)
	write(t, file, newSecret('!'))
	if err := s.Reload(now); err == nil || signers(t, s, now) != before {
		t.Errorf("error %v, %d signatures, want a refusal and %d", err, signers(t, s, now), before)
	}
	if err := s.Reload(now.Add(retiredTime)); err != nil || signers(t, s, now.Add(retiredTime)) != 2 {
		t.Errorf("a day later: %v, %d signatures, want 2", err, signers(t, s, now.Add(retiredTime)))
	}
}
