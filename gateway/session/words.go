package session

import (
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// Words are text messages of the operator's that tell the upstream what becomes
// of the client. Empty ones are not sent.
type Words struct {
	Detach string // at the detach
	Resume string // at a resume, before the client's first message; not at a takeover
	Expire string // before the Close, when the grace period is over
}

// A Reply is a heartbeat of the game's own, and the answer that it is given
// while the client is away.
type Reply struct{ In, Out string }

// A Beat is what is sent to the upstream every so often while the client is
// away.
type Beat struct {
	Every time.Duration
	Text  string
}

// sendText sends the upstream a text message that is no client's.
func (s *Session) sendText(text string) {
	if text != "" && s.up.mode == Open && !s.up.released {
		s.pushOwn(s.masked(frame.Text, []byte(text)))
	}
}

func (s *Session) notifyDetached(now Time) {
	if !s.cfg.Hard || s.graceEnd <= now { // else it goes before the Close, past what is queued
		s.sendText(s.cfg.Words.Detach)
	}
}

// notifyResumed is silent where the upstream was told at its connect, and for the
// first client of a session that was made ahead of it.
func (s *Session) notifyResumed() {
	if !s.cfg.Hard && s.epoch > 0 {
		s.sendText(s.cfg.Words.Resume)
	}
}

func (s *Session) notifyReconnected() {
	if text := s.cfg.Words.Resume; text != "" {
		s.up.rest = s.masked(frame.Text, []byte(text))
	}
}

// keepalive answers a heartbeat of the game's own for a client that is away. It
// reports whether the frame was one, and whether more of it must come before
// that can be said.
func (s *Session) keepalive(h frame.Header, raw []byte) (was, wait bool) {
	if s.state != Detached || h.Op != frame.Text || !h.Fin {
		return false, false
	}
	for _, r := range s.cfg.Replies {
		if h.Length != int64(len(r.In)) {
			continue
		}
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

// answerBuffered answers the heartbeats that the client was lost before it could
// be known to have answered. They stay what they are: messages for the client.
func (s *Session) answerBuffered() {
	if len(s.cfg.Replies) == 0 {
		return
	}
	for m := s.ring.Base(); m.N < s.ring.Last().N; m.N++ {
		_, end := s.ring.Around(m, m.Off+1)
		s.answerHeartbeat(m.Off, end)
		m.Off = end
	}
}

// answerNewest answers the newest message, if it is a heartbeat that came in
// frames, or in whose midst the client was lost.
func (s *Session) answerNewest(from uint64) {
	if s.state == Detached && len(s.cfg.Replies) > 0 {
		s.answerHeartbeat(from, s.ring.Last().Off)
	}
}

// answerHeartbeat answers the message that the replay buffer holds from one offset to
// another, if it is a heartbeat.
func (s *Session) answerHeartbeat(from, end uint64) {
	longest := 0
	for _, r := range s.cfg.Replies {
		longest = max(longest, len(r.In))
	}
	if end-from > uint64(longest+1+frame.MaxFrames(s.cfg.MaxMessage)*4) { // headers of so short frames
		return
	}
	msg := s.ring.Copy(from, end)
	if h, _ := frame.Parse(msg); h.Op != frame.Text {
		return
	}
	text := string(flatten(msg, int64(len(msg))))
	if s.cfg.Resumable && len(text) > 0 && text[0] == wire.DLE {
		text = text[1:]
	}
	for _, r := range s.cfg.Replies {
		if r.In == text {
			s.sendText(r.Out)
			return
		}
	}
}

func (s *Session) startBeats(now Time) {
	s.beats = s.beats[:0]
	for _, b := range s.cfg.Beats {
		s.beats = append(s.beats, now.Add(b.Every))
	}
}

// tickBeats sends what is due, but nothing more to an upstream that has not
// taken what it was sent before.
func (s *Session) tickBeats(now Time) {
	taken := s.q.empty()
	for i, b := range s.cfg.Beats {
		if i < len(s.beats) && now >= s.beats[i] {
			s.beats[i] = now.Add(b.Every)
			if taken {
				s.sendText(b.Text)
			}
		}
	}
}

func (s *Session) nextBeat() (t Time) {
	for _, at := range s.beats {
		t = earlier(t, at)
	}
	return t
}
