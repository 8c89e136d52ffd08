package admin

import (
	"net/http"
	"strings"

	"reseat/web"
)

// dashboardFiles is where the page's scripts, styles and the like are.
const dashboardFiles = "/dashboard/"

// isDashboard reports whether a path is the dashboard's page or a file of it.
// They hold nothing of anybody's: the page asks for a token itself.
func isDashboard(path string) bool {
	return path == "/" || strings.HasPrefix(path, dashboardFiles)
}

// dashboard serves the page and its files, embedded ones alone.
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
