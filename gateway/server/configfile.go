package server

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"reseat/gateway/config"
)

// configEvery is the interval of checking the config file. A change is logged once two checks
// in a row agree: an editor may still be writing at the first.
const configEvery = 2 * time.Second

// A configFile is the file of --config as read at the start. A change takes a restart to
// apply; the log notifies operators that the file has changed.
type configFile struct {
	name          string
	text          []byte // at the start
	args, environ []string

	mu     sync.Mutex
	logged []byte // the content that was last logged
}

// watchConfig returns nil if there is no file, or if it cannot be read twice.
func watchConfig(name string, args, environ []string) *configFile {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() { // a pipe can be read only once
		return nil
	}
	text, _ := os.ReadFile(name)
	return &configFile{name: name, text: text, args: args, environ: environ, logged: text}
}

// watch logs each change of the file, until ctx is done.
func (c *configFile) watch(ctx context.Context, log *slog.Logger) {
	if c == nil {
		return
	}
	tick := time.NewTicker(configEvery)
	defer tick.Stop()
	before := c.text
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, _ := c.read()
		if bytes.Equal(now, before) {
			c.compare(log, false)
		}
		before = now
	}
}

// read returns the content, or why there is none.
func (c *configFile) read() (text []byte, err error) {
	if text, err = os.ReadFile(c.name); err != nil {
		text = []byte(err.Error())
	}
	return text, err
}

// compare warns where the file says something else now than at the start, and whether a
// restart would take it. What was logged of the file is logged again only if asked.
func (c *configFile) compare(log *slog.Logger, asked bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := c.read()
	if bytes.Equal(text, c.logged) && !asked {
		return
	}
	c.logged = text
	switch {
	case err == nil && bytes.Equal(text, c.text):
		if !asked {
			log.Info("settings.restored", "file", c.name, "text", "the config file is as it was at the start")
		}
		return
	case err == nil:
		_, err = config.Parse(c.args, c.environ)
	}
	if err != nil {
		log.Warn("settings.changed", "file", c.name, "text", "settings changed, but are invalid: a restart would fail", "err", err)
		return
	}
	log.Warn("settings.changed", "file", c.name, "text", "settings changed; restart to apply")
}
