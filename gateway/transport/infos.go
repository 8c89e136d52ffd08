package transport

import (
	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
)

// Infos returns a snapshot of each session without blocking any of them for long. The
// Info of a nil session is zero.
func Infos(list []*Session) []session.Info {
	infos := make([]session.Info, len(list))
	onLoops := make(map[*epoll.Loop]*share)
	for i, s := range list {
		switch {
		case s == nil:
		case s.poll == nil:
			infos[i] = s.Info()
		default:
			l := s.poll.Loop()
			if onLoops[l] == nil {
				onLoops[l] = new(share)
			}
			onLoops[l].add(i, s.poll)
		}
	}
	for l, of := range onLoops {
		l.Infos(of.sessions, func(i int, info session.Info) { infos[of.places[i]] = info })
	}
	return infos
}

// A share is the part of a list that one loop serves.
type share struct {
	places   []int
	sessions []*epoll.Session
}

func (s *share) add(place int, p *epoll.Session) {
	s.places = append(s.places, place)
	s.sessions = append(s.sessions, p)
}
