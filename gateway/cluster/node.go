package cluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// A State of a node, as the table has it.
type State uint8

const (
	// StateUp takes new sessions.
	StateUp State = iota
	// StateDraining serves the sessions it has, and takes no new ones.
	StateDraining
	// StateSilent does not answer, and sends no heartbeats. It may still live.
	StateSilent
	// StateGone has left, was replaced, or refuses connections.
	StateGone
)

var stateNames = [...]string{StateUp: "up", StateDraining: "draining", StateSilent: "silent", StateGone: "gone"}

// String returns the state's name in the control API.
func (s State) String() string { return stateNames[s] }

// IDLen is the length of a node's id.
const IDLen = 8

// A Node is one node of the cluster, as this node knows it.
type Node struct {
	// ID is 8 hex digits. It stays the same in an upgrade, and is another after a restart.
	ID string
	// Name is --node-name, for people. Two nodes may have the same.
	Name string
	// Address is HOST:PORT of its node listener.
	Address string
	Version string
	// Formats are the formats of sessions that it reads and writes, newest first. Level is that of the
	// protocol between nodes.
	Formats []int
	Level   int
	State   State
	// Load is as of its last record.
	Load
	// HeartbeatAge is the time since its last sign of life, 0 for this node.
	HeartbeatAge time.Duration
	// Self: it is this node.
	Self bool
}

// A Load is the work of a node, as it reports it.
type Load struct {
	Sessions    int `json:"sessions"`
	ForwardsIn  int `json:"forwards_in"`
	ForwardsOut int `json:"forwards_out"`
}

// Level is that of the protocol between nodes which this version speaks.
const Level = 2

// A record describes a node in the bucket of nodes, by its own words.
type record struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Address string `json:"address"`
	Version string `json:"version"`
	Formats []int  `json:"formats"`
	Level   int    `json:"level"`
	// State is up, draining or left.
	State string `json:"state"`
	// Lineage distinguishes two nodes that have drawn the same id. An upgrade keeps it.
	Lineage string `json:"lineage"`
	Load
}

const stateLeft = "left"

// Known describes another node, for a successor of this process.
type Known struct {
	record
	Heard time.Time // when anything was last heard of it
	Gone  string    // the evidence, "" while it may live
}

func parseRecord(id string, value []byte) (record, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return r, fmt.Errorf("record of node %.20q: %w", id, err)
	}
	if r.ID != id {
		return r, fmt.Errorf("record of node %.20q: names node %.20q", id, r.ID)
	}
	return r, nil
}

// Takers returns the ids of the nodes that may take this session from this one: up, heard of late, and of
// this node's format. Each session has an order of its own, in which most nodes agree: rendezvous hashing.
func (c *Cluster) Takers(session string) (list []string) {
	for _, n := range c.Nodes() {
		if !n.Self && n.State == StateUp && n.HeartbeatAge <= c.cfg.DeadAfter && len(n.Formats) > 0 && len(c.cfg.Formats) > 0 && slices.Contains(n.Formats, c.cfg.Formats[0]) {
			list = append(list, n.ID)
		}
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(weight(b, session), weight(a, session)) })
	return list
}

// Shares reports whether this node is the one of the living that does a piece of work.
func (c *Cluster) Shares(piece string) bool {
	own := weight(c.ID(), piece)
	for _, n := range c.Nodes() {
		if !n.Self && n.State <= StateDraining && weight(n.ID, piece) > own {
			return false
		}
	}
	return true
}

// Lost reports whether a node is known to have ended, and when it was heard for the last time; zero: never. It answers
// from memory; of a node that it has never heard of, it is certain once nothing was heard for as long as
// the table remembers.
func (c *Cluster) Lost(id string) (heard time.Time, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == c.id {
		return heard, false
	}
	p := c.peers[id]
	if p == nil {
		return heard, c.synced && c.heard[id].IsZero() && c.up && time.Since(c.upSince) > hideAfter
	}
	return c.lastLocked(id, p), p.gone != "" || p.silent && c.quietLocked(id, time.Now()) > hideAfter
}

// IsStrange reports whether the directory is complete and does not have a node, which was never heard either.
func (c *Cluster) IsStrange(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return id != c.id && c.synced && c.peers[id] == nil && c.heard[id].IsZero()
}

// weight is a node's weight for a key, in rendezvous hashing.
func weight(node, key string) uint64 {
	sum := sha256.Sum256([]byte(node + " " + key))
	return binary.BigEndian.Uint64(sum[:])
}
