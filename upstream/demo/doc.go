// Package demo is the small game server behind `reseat --demo`: an arena in
// which players collect gems.
//
// It is an ordinary authoritative game server and knows nothing of resuming. A
// connection is a player; when the connection ends, the player's seat and score
// are gone at once, and whoever connects is a new player with score 0. The one
// thing it takes from the gateway is the request header Reseat-Session
// (docs/sessions.md), which it repeats to its own client in the welcome.
//
// # Protocol arena.v1
//
// Every message is a JSON text message. What the server sends carries n, which
// counts the messages of its connection from 1; what the client sends carries s,
// which counts the inputs of its connection from 1. Both ends check the numbers
// of the other, so that a message which is missing, doubled or out of order in
// either direction is seen: the client's own check, and in for the server's.
//
//	server: {"n":1,"t":"welcome","seat":4,"session":"...","tick":90,"rate":25,"seats":32,
//	         "width":1200,"height":675,
//	         "players":[{"seat":1,"name":"Juno","wanderer":true,"x":640,"y":220,"score":7}],
//	         "gems":[[0,812,97]]}
//	server: {"n":2,"t":"sit","player":{"seat":5,"name":"Otter","wanderer":false,"x":80,"y":500,"score":0}}
//	server: {"n":3,"t":"gem","gem":[0,411,390],"by":4}        gem 0 was taken by seat 4 and lies there now
//	server: {"n":4,"t":"state","tick":91,"players":[[1,640,220,7],[4,80,500,1]],
//	         "in":{"got":12,"missed":0,"twice":0,"late":0}}   seat, x, y, score; the inputs so far
//	server: {"n":5,"t":"leave","seat":5,"score":3}
//	server: {"n":6,"t":"letter","k":1,"of":200}               one of those that were asked for
//	client: {"s":1,"t":"steer","x":0.6,"y":-0.8}              a direction, at most 1 long, 0 0 to stand
//	client: {"s":2,"t":"letters","count":200}                 please send so many letters, at once, in a second
//	client: {"s":3,"t":"full"}                                please send a welcome again
//
// The welcome is the first message and the only full picture; everything after
// it is a change to it, but for state, which is sent at every tick. A client that
// has lost its picture, as a reloaded page has, asks for a welcome again: it has
// the same seat, with the score that the player has by then. A direction holds for
// steerFor; a client that wants to go on repeats it.
//
// # Who owns what
//
// The goroutine in Server.Run owns the world and the list of clients. Each
// connection has a reader (the handler's goroutine), which passes inputs to the
// loop, and a writer, which empties the client's queue. The loop never waits for
// a connection: a client whose queue is full has lost its seat.
package demo
