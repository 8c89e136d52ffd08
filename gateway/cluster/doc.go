// Package cluster makes several gateways one: it gives this process its node id, keeps a table of
// the other nodes in memory, decides whether a node still lives, and connects to nodes over
// mutual TLS (docs/cluster.md).
//
// It knows NATS only as an Engine, which package cluster/engine implements. The engine carries
// the nodes' records and heartbeats; what is believed of that is decided in sealed.go. It is never asked on the way of a message or of a resume:
// Find, Dial and Judge answer from memory and from connections to the nodes themselves.
//
// Locks: Cluster.mu guards the table. It is not held over I/O, a call of the engine, a log line or a
// callback.
package cluster
