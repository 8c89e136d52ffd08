package admin

import (
	"net/http"
	"strings"

	"reseat/web"
)

// dashboardFiles is the path of the page's scripts and styles.
const dashboardFiles = "/dashboard/"

// isDashboard reports whether path is the dashboard's page or one of its files. They hold
// no data, so they need no token: the page asks its user for one.
func isDashboard(path string) bool {
	return path == "/" || strings.HasPrefix(path, dashboardFiles)
}

// dashboard serves the page and its files, and only those that are embedded.
func dashboard() http.HandlerFunc {
	files := web.Dashboard()
	return func(w http.ResponseWriter, r *http.Request) {
		if h := files[r.URL.Path]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		problem(w, http.StatusNotFound, "no such resource")
	}
}
