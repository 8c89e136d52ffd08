// Command reseat is a WebSocket gateway, in front of any game server, that puts a player
// back into the same session after a disconnect.
package main

import (
	"os"
	"os/signal"

	"reseat/gateway/server"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, server.Signals...)
	os.Exit(server.Run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, signals))
}
