// Package library is the obvious implementation of such a gateway, for comparison: a
// WebSocket library's connection on either side, and whole messages copied from one to
// the other. It buffers nothing and resumes nothing.
package library

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/coder/websocket"
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Serve relays every WebSocket connection accepted at listen to the server at upstream,
// both HOST:PORT.
func Serve(listen, upstream string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	return http.Serve(l, handler("ws://"+upstream))
}

func handler(upstream string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up, _, err := websocket.Dial(context.Background(), upstream+r.URL.Path, &websocket.DialOptions{CompressionMode: websocket.CompressionDisabled})
		if err != nil {
			http.Error(w, "no game server", http.StatusBadGateway)
			return
		}
		client, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
		if err != nil {
			up.CloseNow()
			return
		}
		up.SetReadLimit(-1)
		client.SetReadLimit(-1)
		go pump(up, client)
		pump(client, up)
	})
}

// pump copies messages until one side ends, and then closes the other in the same way.
func pump(from, to *websocket.Conn) {
	for {
		if err := relay(from, to); err != nil {
			if code := websocket.CloseStatus(err); code > 0 {
				to.Close(code, "")
			}
			to.CloseNow()
			return
		}
	}
}

// relay copies one complete message through a reused buffer.
func relay(from, to *websocket.Conn) error {
	kind, r, err := from.Reader(context.Background())
	if err != nil {
		return err
	}
	buf := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buf)
	buf.Reset()
	if _, err := io.Copy(buf, r); err != nil {
		return err
	}
	return to.Write(context.Background(), kind, buf.Bytes())
}
