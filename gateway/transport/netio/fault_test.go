package netio

import (
	"io"
	"net"
	"testing"
	"time"

	"reseat/gateway/session"
)

// If the core panics in an attach, nothing else owns the new connection.
func TestPanicInAttachClosesTheConnection(t *testing.T) {
	s, _ := superseded(t, 0)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	refusal := s.Attach(ours, nil, func(*session.Session, session.Time) (*session.Attachment, *session.Refusal) { panic("injected") })
	if refusal != nil {
		t.Errorf("refusal %v", refusal)
	}
	ours.SetReadDeadline(time.Unix(1, 0))
	if _, err := ours.Read(make([]byte, 1)); err != io.ErrClosedPipe {
		t.Errorf("it is still open: %v", err)
	}
}
