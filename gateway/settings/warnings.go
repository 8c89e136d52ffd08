package settings

import (
	"fmt"
	"time"

	"reseat/gateway"
	"reseat/gateway/session"
)

// engineIO is the keepalive preset of that name: ping and pong packets of the
// protocol's revision 4.
var engineIO = session.Reply{In: "2", Out: "3"}

const (
	// engineIOTimeout is engine.io's default pingTimeout: its server closes a
	// connection that does not answer a ping for so long.
	engineIOTimeout = 20 * time.Second
	// shortAnswer is an --answer-timeout that a page may exceed while it loads a level
	// or decodes a picture.
	shortAnswer = 5 * time.Second
)

// A Warning is a setting, or a combination of settings, that is allowed and will
// probably not do what was meant.
type Warning struct {
	Flag string // that it is about
	Text string // what will happen, and what to do
}

// Warnings lists them, in the order of the routes.
func (s *Settings) Warnings() (list []Warning) {
	for i := range s.Gateway.Routes {
		r := &s.Gateway.Routes[i]
		list = append(list, keepaliveWarnings(r)...)
		list = append(list, answerWarnings(r)...)
	}
	return list
}

// keepaliveWarnings: the gateway answers the game's own heartbeats only once the
// client is detached.
func keepaliveWarnings(r *gateway.Route) (list []Warning) {
	p := &r.Policy
	noticed := p.Heartbeat + p.AnswerTimeout
	sum := fmt.Sprintf("--heartbeat %v + --answer-timeout %v", p.Heartbeat, p.AnswerTimeout)
	if p.AnswerTimeout == 0 || noticed > 2*p.Heartbeat {
		noticed = 2 * p.Heartbeat
		sum = fmt.Sprintf("twice --heartbeat %v", p.Heartbeat)
	}
	for _, reply := range p.Replies {
		if reply == engineIO && noticed > engineIOTimeout {
			list = append(list, Warning{"keepalive-reply", fmt.Sprintf(
				"route %s: a silent client is detached only after %v (%s), when engine.io has already closed its connection (pingTimeout %v): shorten --heartbeat",
				r.Pattern, noticed, sum, engineIOTimeout)})
		}
	}
	return list
}

// answerWarnings: a page that stands still for a moment answers nothing either.
func answerWarnings(r *gateway.Route) (list []Warning) {
	p := &r.Policy
	if p.AnswerTimeout == 0 || p.AnswerTimeout >= shortAnswer {
		return nil
	}
	switch {
	case p.Grace == 0:
		list = append(list, Warning{"answer-timeout", fmt.Sprintf(
			"route %s: with --grace 0 a page that stands still for %v loses its session: lengthen --answer-timeout, or give it a --grace", r.Pattern, p.AnswerTimeout)})
	case p.Hard:
		list = append(list, Warning{"answer-timeout", fmt.Sprintf(
			"route %s: with --disconnect hard a page that stands still for %v has its game server dialled anew: lengthen --answer-timeout", r.Pattern, p.AnswerTimeout)})
	}
	return list
}
