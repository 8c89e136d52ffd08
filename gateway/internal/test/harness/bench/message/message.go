// Package message is what the benchmark's messages say: when they were sent, in
// which session, which way, as which number of it, and behind that bytes that
// follow from all of this. So both ends can check each message by itself, byte
// for byte, and none can be lost, doubled, moved or changed without being noticed.
package message

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
)

const (
	headSize = 20 // clock, session, number

	// MaxSize is the largest message.
	MaxSize = 64 << 10
	starts  = 1 << 12 // places where a message's pattern may begin
)

// A Way is the direction of a message.
type Way byte

// The two ways.
const (
	Down Way = 1 // from the game server to the client
	Up   Way = 2
)

// A Kind is what messages of one stream have in common.
type Kind struct {
	Way   Way
	Text  bool // in letters, or else in any bytes
	State bool // Text: in words that compress as a game's state does, or else not at all
	Size  int  // bytes, at least MinSize
}

// MinSize is the smallest size of a message of this kind.
func (k Kind) MinSize() int {
	if k.Text {
		return 2 * headSize
	}
	return headSize
}

// tables hold the bytes behind the heads; each message takes a piece of one.
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

// stateText is what servers say that send JSON: who is where, and what they do.
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

// pattern is what stands behind the head of a message.
func (k Kind) pattern(session uint32, n uint64) []byte {
	x := (uint64(session)<<2|uint64(k.Way))*0x9E3779B97F4A7C15 ^ n*0xD6E8FEB86659FD93
	start := x >> 52 // as many bits as starts has
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
