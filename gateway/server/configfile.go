package server

import (
	"bytes"
	"log/slog"
	"os"

	"reseat/gateway/config"
)

// A configFile is the file of --config as read at the start. A change takes a restart to
// apply; SIGHUP only logs that the file has changed.
type configFile struct {
	name          string
	text          []byte
	args, environ []string
}

// watchConfig returns nil if there is no file, or if it cannot be read twice.
func watchConfig(name string, args, environ []string) *configFile {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() { // a pipe can be read only once
		return nil
	}
	text, _ := os.ReadFile(name)
	return &configFile{name, text, args, environ}
}

// compare warns if the file has changed, and whether a restart would accept it.
func (c *configFile) compare(log *slog.Logger) {
	if c == nil {
		return
	}
	text, err := os.ReadFile(c.name)
	if err == nil && bytes.Equal(text, c.text) {
		return
	}
	if _, err := config.Parse(c.args, c.environ); err != nil {
		log.Warn("settings.changed", "file", c.name, "text", "settings changed, but are invalid: a restart would fail", "err", err)
		return
	}
	log.Warn("settings.changed", "file", c.name, "text", "settings changed; restart to apply")
}
