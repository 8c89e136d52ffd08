package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"reseat/gateway/client"
	"reseat/upstream"
)

// serve starts a game server that repeats each message in capitals, with a gateway in
// front of it.
func serve() (address string, stop func()) {
	game := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		for {
			typ, data, err := c.Read(r.Context())
			if err != nil {
				return
			}
			c.Write(r.Context(), typ, []byte(strings.ToUpper(string(data))))
		}
	}))
	target, _ := url.Parse(game.URL)
	gw, err := newGateway("/*", upstream.Target{URL: target})
	if err != nil {
		panic(err)
	}
	front := httptest.NewServer(gw)
	return front.URL, func() { front.Close(); gw.Close(); game.Close() }
}

func ExampleDial() {
	address, stop := serve()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.Dial(ctx, address+"/match/7", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseNow()
	c.Drop() // simulates a network failure; reads and writes continue
	if err := c.Write(ctx, client.MessageText, []byte("go north")); err != nil {
		fmt.Println(err)
		return
	}
	_, data, err := c.Read(ctx)
	fmt.Println(string(data), err)
	fmt.Println(c.Close(1000, "enough"))
	// Output:
	// GO NORTH <nil>
	// <nil>
}
