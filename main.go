// Command reseat is a WebSocket gateway that puts a player whose connection
// dropped back into the same session, in front of any game server.
package main

import (
	"os"
	"os/signal"
	"syscall"

	"reseat/gateway/server"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(server.Run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, signals))
}
