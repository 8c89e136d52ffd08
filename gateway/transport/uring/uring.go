// Package uring makes several socket calls by one system call, where the system allows it:
// io_uring(7). A system call costs as much as half a message, and an event loop that finds
// three sockets readable makes seven of them; so it makes three.
package uring

// Batch is the max number of calls that a Ring makes at a time.
const Batch = 32

// maxPieces is of how many buffers one Send consists at most.
const maxPieces = 8
