package server

import (
	"bytes"
	"log/slog"
	"os"

	"reseat/gateway/config"
)

// A configFile is the file of --config as it was at the start. Settings change with a
// restart alone; who changes the file and sends SIGHUP is told so.
type configFile struct {
	name          string
	text          []byte
	args, environ []string
}

// watchConfig is nil where there is no such file, or one that cannot be read twice.
func watchConfig(name string, args, environ []string) *configFile {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() { // a pipe is read once
		return nil
	}
	text, _ := os.ReadFile(name)
	return &configFile{name, text, args, environ}
}

// compare warns where the file says something else now, and whether a restart would take
// it.
func (c *configFile) compare(log *slog.Logger) {
	if c == nil {
		return
	}
	text, err := os.ReadFile(c.name)
	if err == nil && bytes.Equal(text, c.text) {
		return
	}
	if _, err := config.Parse(c.args, c.environ); err != nil {
		log.Warn("settings.changed", "file", c.name, "text", "settings changed, but invalid; a restart would fail", "err", err)
		return
	}
	log.Warn("settings.changed", "file", c.name, "text", "settings changed; restart to apply")
}
