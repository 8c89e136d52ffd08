package secure

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/acme/autocert"

	"reseat/gateway/internal/test/testcert"
)

// testdata/acme orders a certificate from a real CA's software.

// An oracle is a CA that replaces the network.
type oracle struct {
	mu     sync.Mutex
	asked  []time.Time
	answer func(*http.Request) (*http.Response, error)
}

func (o *oracle) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, time.Now())
	return o.answer(r)
}

// calls returns the times of its requests.
func (o *oracle) calls() []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

func outOfReach(*http.Request) (*http.Response, error) {
	return nil, errors.New("network is unreachable")
}

func says(status int, body string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(body)),
		}, nil
	}
}

// stored puts a certificate into a cache directory as autocert does.
func stored(t *testing.T, dir string, pair *testcert.Pair) {
	t.Helper()
	text := bytes.Join([][]byte{pair.Key, pair.Cert}, nil)
	if err := os.WriteFile(filepath.Join(dir, pair.Leaf.DNSNames[0]), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCertificateInTheCacheIsShownWithoutTheCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, dir, pair := &oracle{answer: outOfReach}, t.TempDir(), testcert.New(t, "game.example")
		stored(t, dir, pair)
		d := open(t, Config{Domains: []string{"game.example"}, Cache: dir, Transport: ca})
		synctest.Wait()
		for _, name := range []string{"game.example", "GAME.Example.", ""} {
			config := pair.Client("http/1.1")
			config.ServerName, config.InsecureSkipVerify = name, true
			if client, _ := d.must(config); serial(client) != pair.Leaf.SerialNumber.String() {
				t.Errorf("asked for %q: another certificate", name)
			}
		}
		if leaf := d.certs.Leaf(); leaf == nil || !leaf.Equal(pair.Leaf) || d.certs.Host("localhost") != "game.example" {
			t.Errorf("leaf %v, host %q", leaf, d.certs.Host("localhost"))
		}
		if len(ca.calls()) > 0 {
			t.Errorf("the CA was asked %d times", len(ca.calls()))
		}
	})
}

func TestHandshakeDoesNotWaitForTheCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		defer close(hangs)
		ca := &oracle{answer: func(r *http.Request) (*http.Response, error) {
			<-hangs
			return nil, io.EOF
		}}
		d := open(t, Config{Domains: []string{"game.example"}, Cache: t.TempDir(), Transport: ca})
		synctest.Wait()
		began := time.Now()
		for _, name := range []string{"game.example", "other.example", ""} {
			if _, _, err := d.shake(&tls.Config{ServerName: name, InsecureSkipVerify: true}); err == nil {
				t.Errorf("a handshake for %q without a certificate", name)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the handshakes took %v", took)
		}
		if d.certs.Leaf() != nil {
			t.Error("there is a certificate")
		}
		synctest.Wait()
		if d.log.count("not among --acme-domain", "other.example") != 1 || d.log.count("no certificate for", "game.example", "yet") != 2 {
			t.Errorf("the log: %s", d.log.String())
		}
	})
}

func TestFailingCAIsRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := &oracle{answer: outOfReach}
		d := open(t, Config{Domains: []string{"game.example"}, Cache: t.TempDir(), Transport: ca})
		began := time.Now()
		time.Sleep(5 * time.Hour)
		d.close()
		time.Sleep(5 * time.Hour)
		var minutes []int
		for _, at := range ca.calls() {
			minutes = append(minutes, int(at.Sub(began).Minutes()))
		}
		want := []int{0, 2, 6, 14, 30, 62, 122, 182, 242}
		if !slices.Equal(minutes, want) {
			t.Fatalf("asked after %d minutes, want %d", minutes, want)
		}
		if n := d.log.count("level=ERROR", "game.example", "unreachable", "port 443"); n != len(want) {
			t.Errorf("%d log lines, want %d", n, len(want))
		}
	})
}

func TestCertificateThatIsNotRenewedIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		stored(t, dir, testcert.Between(t, time.Now(), time.Now().Add(90*24*time.Hour), "game.example"))
		d := open(t, Config{Domains: []string{"game.example"}, Cache: dir, Transport: &oracle{answer: outOfReach}})
		time.Sleep(67 * 24 * time.Hour)
		if n := d.log.count("level=ERROR"); n > 0 {
			t.Errorf("%d errors before it is late: %s", n, d.log.String())
		}
		time.Sleep(25 * time.Hour)
		if n := d.log.count("level=ERROR", "acme.renewal_late", "game.example"); n < 1 || n > 3 {
			t.Errorf("%d errors in the first day that it is late: %s", n, d.log.String())
		}
		d.close()
	})
}

func TestRenewalIsLateAfterAQuarterOfItsTime(t *testing.T) {
	const day = 24 * time.Hour
	from := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ life, left time.Duration }{{90 * day, 22*day + 12*time.Hour}, {365 * day, 22*day + 12*time.Hour}, {6 * day, 36 * time.Hour}, {day, 6 * time.Hour}} {
		leaf := testcert.Between(t, from, from.Add(c.life), "x").Leaf
		bound := leaf.NotAfter.Add(-c.left)
		if late(leaf, bound) || !late(leaf, bound.Add(time.Second)) {
			t.Errorf("a life of %v: not late from %v before its end", c.life, c.left)
		}
	}
}

func TestFailedCacheWriteIsLoggedAndNoError(t *testing.T) {
	log, dir := new(logbook), filepath.Join(t.TempDir(), "cache")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	if err := (cache{autocert.DirCache(dir), log.logger()}).Put(t.Context(), "game.example", []byte("one")); err != nil {
		t.Errorf("Put: %v", err)
	}
	if log.count("level=ERROR", "game.example", "acme.cache_failed") != 1 {
		t.Errorf("the log: %s", log.String())
	}
}

func TestUnusableCacheIsRefusedAtStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		_, err := Open(Config{Domains: []string{"game.example"}, Cache: dir})
		if err == nil || !strings.HasPrefix(err.Error(), "--acme-cache: "+dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	if _, err := Open(Config{Domains: []string{"game.example"}}); err == nil || !strings.HasPrefix(err.Error(), "--acme-cache: want a directory") {
		t.Errorf("without a home: %v", err)
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	if _, err := Open(Config{Domains: []string{"game.example"}}); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(cache, "reseat-acme")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the cache of the user: %v, %v", info, err)
	}
}

func TestCacheThatOthersMayWriteIsReported(t *testing.T) {
	c := Config{Domains: []string{"game.example"}, Cache: t.TempDir()}
	for mode, says := range map[os.FileMode]string{0o700: "", 0o770: "by its group", 0o777: "by everybody"} {
		if err := os.Chmod(c.Cache, mode); err != nil {
			t.Fatal(err)
		}
		if got := CacheExposure(c); (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%v: %q, want %q", mode, got, says)
		}
	}
	if got := CacheExposure(Config{Cache: c.Cache}); got != "" {
		t.Errorf("without ACME: %q", got)
	}
}

func TestCheckDirectoryAsksOnce(t *testing.T) {
	const good = `{"newNonce":"https://ca.example/nonce","newAccount":"https://ca.example/account","newOrder":"https://ca.example/order"}`
	for _, c := range []struct {
		what, says string
		answer     func(*http.Request) (*http.Response, error)
	}{
		{"a good one", "", says(200, good)},
		{"out of reach", "--acme-directory: ", outOfReach},
		{"not found", "--acme-directory: 404", says(404, "")},
		{"another JSON", "--acme-directory: acme: server does not support", says(200, `{}`)},
	} {
		ca := &oracle{answer: c.answer}
		err := CheckDirectory(t.Context(), Config{Domains: []string{"game.example"}, Directory: "https://ca.example/dir", Transport: ca})
		if (err == nil) != (c.says == "") || err != nil && !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.what, err, c.says)
		}
		if n := len(ca.calls()); n != 1 {
			t.Errorf("%s: the CA was asked %d times", c.what, n)
		}
	}
}

func TestCheckCacheLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	caches := map[string]bool{dir: true, filepath.Join(dir, "new"): true, filepath.Join(dir, "new", "below"): true, file: false, filepath.Join(file, "below"): false}
	if runtime.GOOS == "linux" {
		caches["/proc/reseat/cache"] = false // where not even root can make a directory
	}
	for cache, good := range caches {
		if err := CheckCache(Config{Cache: cache}); (err == nil) != good || err != nil && !strings.HasPrefix(err.Error(), "--acme-cache: "+cache) {
			t.Errorf("%s: %v", cache, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
