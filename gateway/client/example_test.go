package client_test

import (
	"context"
	"errors"
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
			if string(data) == "quit" {
				c.Close(4000, "game over")
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

// A bot reads until the session ends, and checks who ended it.
func ExampleConn_Read() {
	address, stop := serve()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.Dial(ctx, address+"/match/7", &client.Options{
		OnDetach: func(why error) { /* count it */ },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseNow()
	for _, text := range []string{"north", "east", "quit"} {
		c.Write(ctx, client.MessageText, []byte(text))
	}
	for {
		_, data, err := c.Read(ctx)
		var end *client.CloseError
		switch {
		case errors.As(err, &end) && end.FromServer:
			fmt.Println("the game is over:", end.Code, end.Reason)
			return
		case err != nil:
			fmt.Println(err)
			return
		}
		fmt.Println(string(data))
	}
	// Output:
	// NORTH
	// EAST
	// the game is over: 4000 game over
}
