//go:build linux

package proxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/coder/websocket"
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// serveLibrary is the obvious implementation of such a gateway, for comparison: a WebSocket
// library's connection on either side, and whole messages copied from one to the other. It
// buffers nothing and resumes nothing.
func serveLibrary(listen, upstream string) error {
	return http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up, _, err := websocket.Dial(context.Background(), "ws://"+upstream+r.URL.Path, &websocket.DialOptions{CompressionMode: websocket.CompressionDisabled})
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
	}))
}

// pump copies messages until one side ends, and then closes the other in the same way.
func pump(from, to *websocket.Conn) {
	for {
		if err := copyMessage(from, to); err != nil {
			if code := websocket.CloseStatus(err); code > 0 {
				to.Close(code, "")
			}
			to.CloseNow()
			return
		}
	}
}

// copyMessage copies one complete message through a reused buffer.
func copyMessage(from, to *websocket.Conn) error {
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
