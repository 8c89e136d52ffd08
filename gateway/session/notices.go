package session

import (
	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/wire"
)

// Notices are text messages, chosen by the operator, that notify the upstream of what
// happens to the client. Empty ones are not sent.
type Notices struct {
	Detach string // when the client is detached
	Resume string // at a resume, before the client's first message; not at a takeover
	Expire string // before the Close frame, when the grace period is over
}

// A KeepaliveReply is a heartbeat of the game's own, and the answer that the gateway gives while
// the client is detached: otherwise the game server would drop the player.
type KeepaliveReply struct{ In, Out string }

// sendText sends the upstream a text message of the gateway, unless it is closed.
func (s *Session) sendText(text string) {
	if text != "" && s.up.mode == Open && !s.up.released {
		s.pushOwn(s.masked(frame.Text, []byte(text)))
	}
}

// notifyDetached sends Notices.Detach. ends says whether the session ends at once.
func (s *Session) notifyDetached(ends bool) {
	if !s.cfg.Hard || ends { // else closeReleased sends it, ahead of the queue
		s.sendText(s.cfg.Notices.Detach)
	}
}

// notifyResumed sends Notices.Resume. It sends nothing to an upstream that got it right
// after its handshake, nor for the first client of a session created before it.
func (s *Session) notifyResumed() {
	if !s.cfg.Hard && s.epoch > 0 && s.awaiting == 0 { // else notifyReconnected has done it
		s.sendText(s.cfg.Notices.Resume)
	}
}

// notifyReconnected sends Notices.Resume to a new upstream, before any queued message.
func (s *Session) notifyReconnected() {
	if text := s.cfg.Notices.Resume; text != "" {
		s.up.rest = s.masked(frame.Text, []byte(text))
	}
}

// keepalive answers a heartbeat of the game while the client is detached, and takes it out
// of the stream. It reports whether the frame was one, and whether more of it must arrive
// before that is known.
func (s *Session) keepalive(h frame.Header, raw []byte) (was, wait bool) {
	if s.state != Detached || h.Op != frame.Text || !h.Fin {
		return false, false
	}
	for _, r := range s.cfg.KeepaliveReplies {
		if h.Length != int64(len(r.In)) {
			continue
		}
		// Compare as much as has arrived: a frame that cannot match must not wait for more.
		got := raw[h.Size:min(len(raw), h.Size+len(r.In))]
		switch {
		case string(got) != r.In[:len(got)]:
		case len(got) < len(r.In):
			wait = true
		default:
			s.sendText(r.Out)
			s.ring.Skip(h.Size + len(got))
			return true, false
		}
	}
	return false, wait
}

// answerBuffered answers the heartbeats that the client may not have answered before it
// was detached. They remain messages for the client: it counts them.
func (s *Session) answerBuffered() {
	if len(s.cfg.KeepaliveReplies) == 0 {
		return
	}
	s.ring.Each(s.ring.Base(), func(begin uint64, end replay.Mark, _ int64) { s.answerHeartbeat(begin, end.Off) })
}

// answerNewest answers the newest message if it is a heartbeat that keepalive could not
// recognise: fragmented, or only complete after the detach.
func (s *Session) answerNewest(from uint64) {
	if s.state == Detached && len(s.cfg.KeepaliveReplies) > 0 {
		s.answerHeartbeat(from, s.ring.Last().Off)
	}
}

// answerHeartbeat answers the message between two offsets of the replay buffer if it is a
// heartbeat.
func (s *Session) answerHeartbeat(from, end uint64) {
	longest := 0
	for _, r := range s.cfg.KeepaliveReplies {
		longest = max(longest, len(r.In))
	}
	// Most messages are longer than any heartbeat. They must not be copied to find that out.
	if end-from > uint64(longest+1+frame.MaxFrames(s.cfg.MaxMessage)*4) { // the headers of frames this short
		return
	}
	msg := s.ring.Copy(from, end)
	if h, _ := frame.Parse(msg); h.Op != frame.Text {
		return
	}
	text := string(flatten(msg, int64(len(msg))))
	// The buffer holds the escaped form; the operator wrote the plain one.
	if s.cfg.Resumable && len(text) > 0 && text[0] == wire.DLE {
		text = text[1:]
	}
	for _, r := range s.cfg.KeepaliveReplies {
		if r.In == text {
			s.sendText(r.Out)
			return
		}
	}
}
