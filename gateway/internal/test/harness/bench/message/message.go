// Package message defines the contents of the benchmark's messages: the send time, the
// session, the direction and the number, and then bytes that depend on all of these.
// Both ends can therefore check each message by itself, byte for byte, and detect any
// that is lost, duplicated, reordered or changed.
package message

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"

	"reseat/gateway/frame"
)

const (
	headSize = 20 // clock, session, number

	// MaxSize is the largest message.
	MaxSize = 64 << 10
	starts  = 1 << 12 // number of starts of a pattern
)

// A Way is the direction of a message.
type Way byte

// The two ways.
const (
	Down Way = 1 // from the game server to the client
	Up   Way = 2
)

// A Kind is the common properties of one stream's messages.
type Kind struct {
	Way   Way
	Text  bool // letters, otherwise any bytes
	State bool // Text: words that compress like game state, otherwise incompressible
	Size  int  // bytes, at least MinSize
}

// MinSize returns the min size of a message of this kind.
func (k Kind) MinSize() int {
	if k.Text {
		return 2 * headSize
	}
	return headSize
}

// Op returns the opcode of its frames.
func (k Kind) Op() byte {
	if k.Text {
		return frame.Text
	}
	return frame.Binary
}

// tables hold the bytes after the heads; each message contains a piece of one.
var binaryTable, textTable = tables()

func tables() (anyBytes, letters []byte) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	r := rand.New(rand.NewPCG(6455, 1))
	anyBytes, letters = make([]byte, MaxSize+starts), make([]byte, MaxSize+starts)
	for i := range anyBytes {
		n := r.Uint32()
		anyBytes[i], letters[i] = byte(n>>8), alphabet[n&63]
	}
	return anyBytes, letters
}

var stateTable = stateText()

// stateText is the JSON that game servers send: positions and actions.
func stateText() []byte {
	r := rand.New(rand.NewPCG(7692, 1))
	doing := [...]string{"idle", "run", "jump", "shoot"}
	var b bytes.Buffer
	for b.Len() < MaxSize+starts {
		fmt.Fprintf(&b, `{"id":%d,"x":%.2f,"y":%.2f,"vx":%.2f,"vy":%.2f,"hp":%d,"anim":"%s"},`,
			r.IntN(200), 1000*r.Float64(), 1000*r.Float64(), 9*r.Float64(), 9*r.Float64(), r.IntN(101), doing[r.IntN(len(doing))])
	}
	return b.Bytes()[:MaxSize+starts]
}

// pattern returns the bytes after the head of a message.
func (k Kind) pattern(session uint32, n uint64) []byte {
	x := (uint64(session)<<2|uint64(k.Way))*0x9E3779B97F4A7C15 ^ n*0xD6E8FEB86659FD93
	start := x >> 52 // as many bits as needed for starts
	table := binaryTable
	switch {
	case k.State:
		table = stateTable
	case k.Text:
		table = textTable
	}
	return table[start : int(start)+k.Size-k.MinSize()]
}

// Append appends message n of a session to dst.
func (k Kind) Append(dst []byte, clock int64, session uint32, n uint64) []byte {
	var head [headSize]byte
	binary.BigEndian.PutUint64(head[0:], uint64(clock))
	binary.BigEndian.PutUint32(head[8:], session)
	binary.BigEndian.PutUint64(head[12:], n)
	if k.Text {
		dst = hex.AppendEncode(dst, head[:])
	} else {
		dst = append(dst, head[:]...)
	}
	return append(dst, k.pattern(session, n)...)
}
