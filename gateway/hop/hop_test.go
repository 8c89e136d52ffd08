package hop

import (
	"net/http"
	"reflect"
	"testing"
	"time"
)

func described() (Client, http.Header) {
	c := Client{From: "a1b2c3d4", Peer: "192.0.2.7:4711", TLS: "1.3;play.example", Host: "play.example", HTTPS: true, Age: 1500 * time.Microsecond}
	h := http.Header{"Sec-Websocket-Key": {"k"}, "X-Forwarded-For": {"203.0.113.9"}, "Reseat-Node-Peer": {"forged"}, "Reseat-Node-Other": {"forged"}}
	c.Set(h)
	return c, h
}

func TestClientSurvivesItsHeaders(t *testing.T) {
	want, h := described()
	if !Passed(h) {
		t.Error("the request does not look passed on")
	}
	got, err := Read(h)
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if rest := (http.Header{"Sec-Websocket-Key": {"k"}}); !reflect.DeepEqual(h, rest) {
		t.Errorf("left over: %v, want %v", h, rest)
	}
}

func TestBadDescriptionsAreRefused(t *testing.T) {
	for name, value := range map[string][]string{
		"Reseat-Node-Hop": {"2"}, "Reseat-Node-From": nil, "Reseat-Node-Peer": {"not an address"}, "Reseat-Node-Host": {"a", "b"},
		"Reseat-Node-Arrived": {"-1"}, "Reseat-Node-Tls": {}, "Reseat-Node-Proto": nil,
	} {
		_, h := described()
		if h[name] = value; value == nil {
			delete(h, name)
		}
		if c, err := Read(h); err == nil {
			t.Errorf("%s %q is accepted: %+v", name, value, c)
		}
	}
}

func TestAgeIsBounded(t *testing.T) {
	_, h := described()
	h["Reseat-Node-Arrived"] = []string{"9223372036854775807"}
	if c, err := Read(h); err != nil || c.Age != maxAge {
		t.Errorf("age %v, %v; want %v", c.Age, err, maxAge)
	}
}

func TestClientsCannotDescribeThemselves(t *testing.T) {
	_, h := described()
	if Strip(h); Passed(h) || len(h) != 1 {
		t.Errorf("left over: %v", h)
	}
}
