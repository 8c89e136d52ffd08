package registry

import (
	"crypto/rand"
	"encoding/hex"
)

// SessionIDLen is the length of NewID. In a cluster the node's id comes before it.
const SessionIDLen = 32

// NewID makes an id of 128 random bits.
func NewID() string {
	var b [SessionIDLen / 2]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// NextTag returns a tag for the data of a session. Each is used once.
func (r *Registry) NextTag() uint64 { return r.tags.Add(1) }

// Tags is the newest tag.
func (r *Registry) Tags() uint64 { return r.tags.Load() }

// ContinueTags has later tags differ from those up to one of another process.
func (r *Registry) ContinueTags(tag uint64) {
	for old := r.tags.Load(); tag > old && !r.tags.CompareAndSwap(old, tag); old = r.tags.Load() {
	}
}
