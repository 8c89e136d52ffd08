// Package failover proves durable sessions with real processes: gateways, NATS servers and the
// counting game of docs/games, on one machine. Its clients are written from docs/protocol.md.
package failover
