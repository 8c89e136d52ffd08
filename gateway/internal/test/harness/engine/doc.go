// Package engine has the tests of gateway/cluster/engine with real NATS servers in this process. They
// are here so that the gateway's go.mod does not have the server.
package engine
