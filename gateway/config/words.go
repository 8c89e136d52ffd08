package config

import (
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"

	"reseat/gateway/newest"
	"reseat/gateway/session"
)

// maxText is the maximum size of a configured text in bytes. A heartbeat of the game is
// held back until it is complete.
const maxText = 4 << 10

// maxPing is the maximum size of a Ping's payload in bytes: RFC 6455 section 5.5.
const maxPing = 125

// message accepts a text message: UTF-8, not empty.
func message(s string) (string, error) {
	if s == "" || len(s) > maxText || !utf8.ValidString(s) {
		return "", want("a text of 1 to 4096 bytes", s)
	}
	return s, nil
}

// keepaliveReply accepts IN=>OUT, or the name of a preset.
func keepaliveReply(s string) (session.KeepaliveReply, error) {
	if s == "engine.io" {
		return engineIO, nil
	}
	in, out, ok := strings.Cut(s, "=>")
	if !ok {
		return session.KeepaliveReply{}, want("IN=>OUT or engine.io", s)
	}
	for _, text := range []string{in, out} {
		if _, err := message(text); err != nil {
			return session.KeepaliveReply{}, want("IN=>OUT, each a text of 1 to 4096 bytes", s)
		}
	}
	return session.KeepaliveReply{In: in, Out: out}, nil
}

// keepaliveMode accepts what is done about the keepalives of clients.
var keepaliveMode = choices[session.KeepaliveMode]{{"hint", session.KeepaliveHint}, {"auto", session.KeepaliveAuto}, {"off", session.KeepaliveOff}}.parse

// setKeepalives sets the values of --keepalive-send: keepalives, and a keepaliveMode.
func setKeepalives(l *local, values []string) error {
	mode := session.KeepaliveHint
	var list []session.Keepalive
	for _, v := range values {
		if m, err := keepaliveMode(v); err == nil {
			mode = m
			continue
		}
		k, err := keepaliveSend(v)
		if err != nil {
			return err
		}
		list = append(list, k)
	}
	l.Keepalives, l.Keepalive = list, mode
	return nil
}

// keepaliveSend accepts DUR:MSG, DUR/binary:HEX and DUR/ping:HEX.
func keepaliveSend(s string) (session.Keepalive, error) {
	every, text, ok := strings.Cut(s, ":")
	if !ok {
		return session.Keepalive{}, want("DUR:MSG such as 25s:ping, hint, auto or off", s)
	}
	every, name, typed := strings.Cut(every, "/")
	d, err := duration(minHeartbeat, day)(every)
	if err != nil {
		return session.Keepalive{}, err
	}
	k := session.Keepalive{Every: max(d, time.Millisecond), Text: text}
	if !typed {
		if _, err := message(text); err != nil {
			return session.Keepalive{}, want("DUR:MSG, with a text of 1 to 4096 bytes", s)
		}
		return k, nil
	}
	payload, err := hex.DecodeString(text)
	k.Kind, ok = map[string]session.KeepaliveKind{"binary": session.KeepaliveBinary, "ping": session.KeepalivePing}[name]
	switch {
	case !ok:
		return session.Keepalive{}, want("DUR:MSG, DUR/binary:HEX or DUR/ping:HEX", s)
	case err != nil, k.Kind == session.KeepaliveBinary && (len(payload) == 0 || len(payload) > maxText), k.Kind == session.KeepalivePing && len(payload) > maxPing:
		return session.Keepalive{}, want("bytes in hexadecimal, 1 to 4096 of a binary message or up to 125 of a Ping", s)
	}
	k.Text = string(payload)
	return k, nil
}

// setNewest sets the rules of --newest.
func setNewest(l *local, values []string) (err error) {
	for _, v := range values {
		if _, err := newest.Parse([]string{v}); err != nil {
			return want("NAME=PREFIX, NAME=hex:0A1B or NAME=json:/POINTER", v)
		}
	}
	l.Newest, err = newest.Parse(values)
	return err
}

// perSecond returns a parser of a rate, which also accepts off.
func perSecond[T int | int64](parse parser[T]) parser[float64] {
	return func(s string) (float64, error) {
		v, err := or("off", parse)(s)
		return float64(v), err
	}
}

// withZero returns a parser that also accepts 0.
func withZero(parse parser[time.Duration]) parser[time.Duration] {
	return func(s string) (time.Duration, error) {
		if d, err := time.ParseDuration(s); err == nil && d == 0 {
			return 0, nil
		}
		return or("0", parse)(s)
	}
}

// messageLog accepts off, size or prefix:N.
func messageLog(s string) (session.MessageLog, error) {
	const most = 1024
	switch s {
	case "off":
		return session.MessageLog{}, nil
	case "size":
		return session.MessageLog{On: true}, nil
	}
	if n, ok := strings.CutPrefix(s, "prefix:"); ok {
		if v, err := count(1, most)(n); err == nil {
			return session.MessageLog{On: true, Prefix: v}, nil
		}
	}
	return session.MessageLog{}, want("off, size or prefix:N with N from 1 to 1024", s)
}

// nonZero returns a parser that yields a nanosecond for 0, because zero means the
// default to the gateway.
func nonZero(parse parser[time.Duration]) parser[time.Duration] {
	return func(s string) (time.Duration, error) {
		d, err := parse(s)
		return max(d, time.Nanosecond), err
	}
}

// pointer returns a parser whose values can be absent.
func pointer[T any](parse parser[T]) parser[*T] {
	return func(s string) (*T, error) {
		v, err := parse(s)
		return &v, err
	}
}
