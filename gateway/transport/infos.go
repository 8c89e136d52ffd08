package transport

import (
	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
)

// Infos returns a snapshot of each session without blocking any of them for long. The
// Info of a nil session is zero.
func Infos(list []*Session) []session.Info {
	infos := make([]session.Info, len(list))
	onLoops := make([]*epoll.Session, len(list))
	for i, s := range list {
		switch {
		case s == nil:
		case s.poll == nil:
			infos[i] = s.Info()
		default:
			onLoops[i] = s.poll
		}
	}
	epoll.Infos(onLoops, func(i int, info session.Info) { infos[i] = info })
	return infos
}
