package program

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// An idlers bounds how many connections may stand open between two requests.
// Each holds a descriptor for up to idleTimeout, which strangers could take from
// those who resume; beyond the bound the one that has been idle the longest is
// closed, as any server may, RFC 9112 section 9.5.
type idlers struct {
	most int

	mu    sync.Mutex
	order *list.List // of net.Conn, the longest idle first
	at    map[net.Conn]*list.Element
}

// newIdlers lets as many be idle as are a twentieth of the descriptors, 16 at
// least. It is nil, and bounds nothing, where descriptors is 0.
func newIdlers(descriptors int) *idlers {
	if descriptors <= 0 {
		return nil
	}
	return &idlers{most: max(descriptors/20, 16), order: list.New(), at: make(map[net.Conn]*list.Element)}
}

// note is an http.Server's ConnState.
func (i *idlers) note(c net.Conn, state http.ConnState) {
	if oldest := i.move(c, state); oldest != nil {
		oldest.Close()
	}
}

// move notes the state of c, and gives the connection that is idle too much.
func (i *idlers) move(c net.Conn, state http.ConnState) (oldest net.Conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.at[c]; e != nil {
		i.order.Remove(e)
		delete(i.at, c)
	}
	if state != http.StateIdle {
		return nil
	}
	i.at[c] = i.order.PushBack(c)
	if i.order.Len() <= i.most {
		return nil
	}
	oldest = i.order.Remove(i.order.Front()).(net.Conn)
	delete(i.at, oldest)
	return oldest
}
