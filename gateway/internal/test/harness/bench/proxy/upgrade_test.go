//go:build linux

package proxy

import (
	"strings"
	"testing"
	"time"
)

const upgradeLog = `{"msg":"upgrade.begun","pid":2}
{"msg":"upgrade.committed","sessions":7,"kept":1,"time":"9ms"}
{"msg":"session.created","upgrade":"upgrade.x"}
{"msg":"upgrade.committed","pid":2,"sessions":7,"kept":1,"frozen":"12.5ms"}
`

func TestUpgradeIsOverOnceBothProcessesSaySo(t *testing.T) {
	var u upgrade
	u.read(strings.NewReader(upgradeLog))
	if u.done || u.pid != 2 || u.frozen != 12500*time.Microsecond {
		t.Errorf("%+v", u)
	}
	u.read(strings.NewReader(upgradeLog + `{"msg":"upgrade.done"}` + "\n"))
	if !u.done || u.ended != "" {
		t.Errorf("%+v", u)
	}
	p := &Proxy{PIDs: []int{1}, upgrade: u}
	if d, err := p.EndUpgrade(8); err != nil || d != u.frozen || p.PIDs[0] != 2 {
		t.Errorf("%v, %v, %v", d, err, p.PIDs)
	}
	if _, err := p.EndUpgrade(9); err == nil {
		t.Error("a session that was lost is not missed")
	}
}

func TestUpgradeThatFailsFailsTheRun(t *testing.T) {
	var u upgrade
	u.read(strings.NewReader(`{"msg":"upgrade.aborted","step":"ready"}`))
	if _, err := (&Proxy{upgrade: u}).EndUpgrade(0); err == nil || !strings.Contains(err.Error(), "ready") {
		t.Error(err)
	}
}
