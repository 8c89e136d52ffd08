package cluster

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"reseat/gateway/tlv"
)

// This file has the keys by which all is sealed that nodes write in the engine, and encodes seats for it:
//
//	format (1 byte), length of the head, head, nonce, sealed rest
//
// The head can be read without a key: it decides whose a session is, and when its record may be
// deleted. It is authenticated together with the rest, so that nobody can change it, or put the rest behind
// another one. The rest is sealed by AES-256-GCM with a key of the session's own, which is derived from a
// token key. So a record cannot be moved to another session, and the nonces, which are random, are drawn for
// few records each: under a single key they would begin to repeat after some billions.

const (
	seatFormat = 1
	// sealPurpose names the keys of seats: see tokens.Keys.Derive.
	sealPurpose = "reseat seal v1"
	// seatInfo separates the keys of sessions from others that may be derived of the same one.
	seatInfo = "seat "
	keySize  = 32
	kidSize  = 8 // it is derived along with the key, and reveals nothing of it
	maxKeep  = math.MaxInt64 / int64(time.Millisecond)
)

var (
	errNoKeys      = errors.New("--token-key-file: a cluster needs a private key or a secret")
	errNewerFormat = errors.New("it was written by a newer version of Reseat")
	errMalformed   = errors.New("the seat's record is malformed")
	errOtherKey    = errors.New("it is sealed by another key: do all nodes have the same --token-key-file?")
	errForged      = errors.New("it was changed, or is from elsewhere")
)

// A seal has the keys that tokens.Keys.Derive returns now: the first one seals, and each of them opens.
type seal struct {
	derive func(purpose string, n int) ([][]byte, error)
}

// close returns the id of the key that seals, and what seals for a place.
func (s seal) close(purpose, place string) (kid []byte, own cipher.AEAD, err error) {
	keys, err := s.derive(purpose, keySize+kidSize)
	if err == nil && len(keys) == 0 {
		err = errNoKeys
	}
	if err != nil {
		return nil, nil, err
	}
	own, err = ownKey(keys[0], place)
	return keys[0][keySize:], own, err
}

// open returns what the key with this id has sealed for a place, together with what is outside.
func (s seal) open(purpose, place string, kid, sealed, outside []byte) ([]byte, error) {
	keys, err := s.derive(purpose, keySize+kidSize)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if !bytes.Equal(key[keySize:], kid) {
			continue
		}
		own, err := ownKey(key, place)
		if err != nil {
			return nil, err
		}
		plain, err := own.Open(nil, nil, sealed, outside)
		if err != nil {
			return nil, errForged
		}
		return plain, nil
	}
	return nil, errOtherKey
}

// ownKey returns the key for one place. Its nonces are random, and stand before what it seals.
func ownKey(key []byte, place string) (cipher.AEAD, error) {
	own, err := hkdf.Expand(sha256.New, key[:keySize], place, keySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// head is the first part of a record.
type head struct {
	kid     []byte
	owner   string
	epoch   uint64
	handoff bool
	ended   int
	keep    int64 // milliseconds
}

func (h *head) walk(c *tlv.Codec) {
	c.Bytes(1, &h.kid)
	c.String(2, &h.owner)
	tlv.Num(c, 3, &h.epoch)
	c.Bool(4, &h.handoff)
	tlv.Num(c, 5, &h.ended)
	tlv.Num(c, 6, &h.keep)
}

// rest is the sealed part.
type rest struct {
	reason string
	body   []byte
}

func (r *rest) walk(c *tlv.Codec) {
	c.String(1, &r.reason)
	c.Bytes(2, &r.body)
}

// record returns the record of a seat. It is another one at each call.
func (s seal) record(seat Seat) ([]byte, error) {
	kid, own, err := s.close(sealPurpose, seatInfo+seat.Session)
	if err != nil {
		return nil, err
	}
	h := head{kid: kid, owner: seat.Owner, epoch: seat.Epoch, handoff: seat.Handoff, ended: seat.Ended, keep: seat.Keep.Milliseconds()}
	r := rest{seat.Reason, seat.Body}
	fields := tlv.Write(h.walk)
	out := binary.AppendUvarint([]byte{seatFormat}, uint64(len(fields)))
	out = append(out, fields...)
	return append(out, own.Seal(nil, nil, tlv.Write(r.walk), out)...), nil
}

// split returns the head of a record, and what is sealed. outside is the part before that.
func split(value []byte) (h head, outside, sealed []byte, err error) {
	switch {
	case len(value) > 0 && value[0] > seatFormat:
		return h, nil, nil, errNewerFormat
	case len(value) == 0 || value[0] == 0:
		return h, nil, nil, errMalformed
	}
	n, w := binary.Uvarint(value[1:])
	if w <= 0 || n > uint64(len(value)-1-w) {
		return h, nil, nil, errMalformed
	}
	end := 1 + w + int(n)
	if err := tlv.Read(value[1+w:end], h.walk); err != nil || h.ended < 0 || h.keep < 0 || h.keep > maxKeep {
		return h, nil, nil, errMalformed
	}
	return h, value[:end], value[end:], nil
}

// seat returns what is known without the sealed part.
func (h head) seat(stored StoredSeat) Seat {
	return Seat{
		Session: stored.Session, Owner: h.owner, Epoch: h.epoch, Handoff: h.handoff, Ended: h.ended,
		Keep: time.Duration(h.keep) * time.Millisecond, Written: stored.Written, Revision: stored.Revision,
	}
}

// readHead returns what can be read of a record without a key.
func readHead(stored StoredSeat) (Seat, error) {
	h, _, _, err := split(stored.Value)
	if err != nil {
		return Seat{}, fmt.Errorf("session %s: %w", stored.Session, err)
	}
	return h.seat(stored), nil
}

// seat returns the seat that a record has.
func (s seal) seat(stored StoredSeat) (Seat, error) {
	h, outside, sealed, err := split(stored.Value)
	var plain []byte
	if err == nil {
		plain, err = s.open(sealPurpose, seatInfo+stored.Session, h.kid, sealed, outside)
	}
	var r rest
	if err == nil {
		err = tlv.Read(plain, r.walk)
	}
	if err != nil {
		return Seat{}, fmt.Errorf("session %s: %w", stored.Session, err)
	}
	seat := h.seat(stored)
	seat.Reason, seat.Body = r.reason, r.body
	return seat, nil
}
