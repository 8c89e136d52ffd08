package sink

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func leftOut(n int) []byte { return fmt.Appendf(nil, "%d left out\n", n) }

func TestLinesAreWrittenWholeAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		s := New(&w, 1<<20, leftOut)
		var want strings.Builder
		line := make([]byte, 0, 32) // used again, as slog does
		for i := range 1000 {
			line = fmt.Appendf(line[:0], "line %d\n", i)
			want.Write(line)
			s.Write(line)
		}
		s.Close(time.Second)
		if w.String() != want.String() {
			t.Errorf("%d bytes were written, want %d", w.Len(), want.Len())
		}
	})
}

// A stuck writer costs lines, and says how many; nobody waits for it.
func TestAStuckWriterMakesNobodyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		s := New(w, 100, leftOut)
		began := time.Now()
		for range 50 {
			s.Write([]byte("123456789\n"))
		}
		synctest.Wait()
		s.Write([]byte("123456789\n"))
		if d := time.Since(began); d != 0 {
			t.Errorf("writing took %v", d)
		}
		if n := s.Lost(); n != 41 {
			t.Errorf("%d lines were lost, want 41", n)
		}
		var got bytes.Buffer
		read := make(chan struct{})
		go func() { io.Copy(&got, r); close(read) }()
		synctest.Wait()
		s.Write([]byte("at last\n"))
		s.Close(time.Second)
		w.Close()
		<-read
		if want := strings.Repeat("123456789\n", 10) + "41 left out\nat last\n"; got.String() != want {
			t.Errorf("got %q, want %q", got.String(), want)
		}
	})
}

func TestCloseGivesUpOnAStuckWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		s := New(w, 100, leftOut)
		s.Write([]byte("never read\n"))
		began := time.Now()
		s.Close(2 * time.Second)
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("Close took %v", d)
		}
		r.Close() // lets the goroutine go
	})
}
