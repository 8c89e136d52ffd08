package admin

import "net/http"

func (a *api) upgradeState(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, a.Upgrade())
}
