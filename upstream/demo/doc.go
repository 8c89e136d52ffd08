// Package demo is the small game server behind `reseat --demo`: an arena in
// which players collect gems.
//
// It is an ordinary authoritative game server without any support for resuming. A
// connection is a player; when the connection ends, the player's seat and score are
// deleted at once, and the next connection is a new player with score 0. The only thing
// it takes from the gateway is the request header Reseat-Session (docs/sessions.md),
// which it repeats to its own client in the welcome.
//
// # Protocol arena.v1
//
// Every message is a JSON text message. Server messages carry n, which counts the
// messages of the connection from 1; client messages carry s, which counts the inputs of
// the connection from 1. Both ends check the other's numbers, so that a missing, repeated
// or reordered message in either direction is noticed: by the client's own check, and by
// the server in its field in.
//
//	server: {"n":1,"t":"welcome","seat":4,"session":"...","tick":90,"rate":25,"seats":32,
//	         "width":1200,"height":675,
//	         "players":[{"seat":1,"name":"Juno","wanderer":true,"x":640,"y":220,"score":7}],
//	         "gems":[[0,812,97]]}
//	server: {"n":2,"t":"sit","player":{"seat":5,"name":"Otter","wanderer":false,"x":80,"y":500,"score":0}}
//	server: {"n":3,"t":"gem","gem":[0,411,390],"by":4}        gem 0 was taken by seat 4 and has moved there
//	server: {"n":4,"t":"state","tick":91,"players":[[1,640,220,7],[4,80,500,1]],
//	         "in":{"got":12,"missed":0,"twice":0,"late":0}}   seat, x, y, score; the inputs so far. With "as":"newest" where
//	                                                          the client has asked for that: see below
//	server: {"n":5,"t":"leave","seat":5,"score":3}
//	server: {"n":6,"t":"letter","k":1,"of":200}               one of the requested letters
//	client: {"s":1,"t":"steer","x":0.6,"y":-0.8}              a direction, at most 1 long, 0 0 to stand
//	client: {"s":2,"t":"letters","count":200,"newest":true}   request letters, sent at once after a second; newest: see below
//	client: {"s":3,"t":"full"}                                request another welcome
//
// The welcome is the first message and the only complete state. Later messages change
// it, except for state, which is sent at every tick. A client that has lost its state, such
// as a reloaded page, requests another welcome: it has the same seat, with the player's
// present score. The server tells the gateway by Reseat-Newest that of the states marked as newest only the
// newest counts. It marks them from a request with newest until the first input after the letters. A direction holds for steerFor; the client repeats it to keep moving.
//
// # Who owns what
//
// The goroutine in Server.Run owns the world and the list of clients. Each
// connection has a reader (the handler's goroutine), which passes inputs to the
// loop, and a writer, which empties the client's queue. The loop never waits for
// a connection: a client whose queue is full loses its seat.
package demo
