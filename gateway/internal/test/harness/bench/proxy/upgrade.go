//go:build linux

package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// lookEvery is how often the log is read while an upgrade is under way.
const lookEvery = 20 * time.Millisecond

// An upgrade is what the log says of one. See docs/operating.md, Rolling upgrade.
type upgrade struct {
	from   int64 // where its lines begin
	looked time.Time
	done   bool // the older process has nothing left to do
	ended  string

	pid, moved, kept int // kept: they follow as soon as they can
	frozen           time.Duration
}

// BeginUpgrade makes a gateway, started with Place.Upgrades, replace its process by
// another one.
func (x *Proxy) BeginUpgrade() error {
	log, err := os.Stat(x.log)
	if err != nil {
		return err
	}
	x.upgrade = upgrade{from: log.Size()}
	return syscall.Kill(x.PIDs[0], syscall.SIGUSR2)
}

// Upgraded reports whether the upgrade is over. It costs little.
func (x *Proxy) Upgraded() bool {
	u := &x.upgrade
	if time.Since(u.looked) < lookEvery {
		return false
	}
	u.looked = time.Now()
	log, err := os.Open(x.log)
	if err != nil {
		u.ended = err.Error()
		return true
	}
	defer log.Close()
	u.read(io.NewSectionReader(log, u.from, 1<<30))
	return u.ended != "" || u.done && u.pid > 0
}

func (u *upgrade) read(log io.Reader) {
	for s := bufio.NewScanner(log); s.Scan(); {
		var line struct {
			Msg      string
			PID      int
			Sessions int
			Kept     int
			Frozen   string
		}
		if !bytes.Contains(s.Bytes(), []byte(`"upgrade.`)) || json.Unmarshal(s.Bytes(), &line) != nil {
			continue // of something else, or not complete yet
		}
		switch line.Msg {
		case "upgrade.aborted", "upgrade.refused":
			u.ended = s.Text()
		case "upgrade.done":
			u.done = true
		case "upgrade.committed":
			if d, err := time.ParseDuration(line.Frozen); err == nil { // the new process says it
				u.pid, u.moved, u.kept, u.frozen = line.PID, line.Sessions, line.Kept, d
			}
		}
	}
}

// EndUpgrade returns how long the gateway served nobody, by its own account. That many
// sessions must have been moved.
func (x *Proxy) EndUpgrade(sessions int) (frozen time.Duration, err error) {
	u := x.upgrade
	switch {
	case u.ended != "":
		return 0, errors.New(u.ended)
	case u.moved+u.kept != sessions:
		return 0, fmt.Errorf("%d sessions were moved and %d kept, of %d", u.moved, u.kept, sessions)
	}
	x.PIDs = []int{u.pid}
	return u.frozen, nil
}
