package admin

import "net/http"

// An Upgrade describes the last upgrade of the process, docs/control-api.md.
type Upgrade struct {
	State    string          `json:"state"` // none, running, ok, refused or aborted
	From     string          `json:"from"`  // version of the older process
	To       string          `json:"to"`    // version of the newer process; "" if not known
	Sessions UpgradeSessions `json:"sessions"`
	FreezeMS float64         `json:"freeze_ms"` // how long all sessions stood still
	Error    string          `json:"error"`     // "" if there was none
}

// UpgradeSessions counts the sessions of an upgrade.
type UpgradeSessions struct {
	Moved  int `json:"moved"`
	Pumped int `json:"pumped"` // those of which the older process forwards a connection's bytes
	Kept   int `json:"kept"`   // those that followed later
}

func (a *api) upgradeState(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, a.Upgrade())
}
