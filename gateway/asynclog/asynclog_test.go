package asynclog

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func droppedNotice(n int) []byte { return fmt.Appendf(nil, "%d dropped\n", n) }

func TestLinesAreWrittenWholeAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		l := New(&w, 1<<20, droppedNotice)
		var want strings.Builder
		line := make([]byte, 0, 32) // reused, as slog does
		for i := range 1000 {
			line = fmt.Appendf(line[:0], "line %d\n", i)
			want.Write(line)
			l.Write(line)
		}
		l.Close(time.Second)
		if w.String() != want.String() {
			t.Errorf("%d bytes were written, want %d", w.Len(), want.Len())
		}
	})
}

// A stuck writer loses lines. Their number is logged once it accepts lines again.
func TestStuckWriterBlocksNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		l := New(w, 100, droppedNotice)
		began := time.Now()
		for range 50 {
			l.Write([]byte("123456789\n"))
		}
		synctest.Wait()
		l.Write([]byte("123456789\n"))
		if d := time.Since(began); d != 0 {
			t.Errorf("writing took %v", d)
		}
		if n := l.Dropped(); n != 41 {
			t.Errorf("%d lines were dropped, want 41", n)
		}
		var got bytes.Buffer
		read := make(chan struct{})
		go func() { io.Copy(&got, r); close(read) }()
		synctest.Wait()
		l.Write([]byte("at last\n"))
		l.Write([]byte("and more\n"))
		l.Close(time.Second)
		w.Close()
		<-read
		if want := strings.Repeat("123456789\n", 10) + "41 dropped\nat last\nand more\n"; got.String() != want {
			t.Errorf("got %q, want %q", got.String(), want)
		}
	})
}

func TestCloseGivesUpOnAStuckWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		l := New(w, 100, droppedNotice)
		l.Write([]byte("never read\n"))
		began := time.Now()
		l.Close(2 * time.Second)
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("Close took %v", d)
		}
		r.Close() // ends the goroutine
	})
}

// fullDisk takes no line, until there is room.
type fullDisk struct {
	bytes.Buffer
	room bool
}

func (d *fullDisk) Write(line []byte) (int, error) {
	if !d.room {
		return 0, io.ErrShortWrite
	}
	return d.Buffer.Write(line)
}

// A full disk costs the lines that it does not take.
func TestFailedWritesStopNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(fullDisk)
		l := New(d, 100, droppedNotice)
		for range 50 {
			l.Write([]byte("123456789\n"))
			synctest.Wait()
		}
		d.room = true
		l.Write([]byte("at last\n"))
		l.Close(time.Second)
		if got := d.String(); got != "at last\n" || l.Dropped() != 0 {
			t.Errorf("got %q, and %d lines dropped", got, l.Dropped())
		}
	})
}
