package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// derivedOf derives keys as tokens.Keys.Derive does, of the same texts as keys.
func derivedOf(texts ...string) func(string, int) ([][]byte, error) {
	return func(_ string, n int) (all [][]byte, _ error) {
		for _, text := range texts {
			all = append(all, bytes.Repeat([]byte(text), n)[:n])
		}
		return all, nil
	}
}

// sealing has a stage seal its messages.
func sealing(texts ...string) func(*Config) {
	return func(c *Config) { c.Derive = derivedOf(texts...) }
}

// another is a node beside the stage, as far as it writes.
func another(t *testing.T, texts ...string) *sealer {
	t.Helper()
	c := &Cluster{}
	return newSealer(c, &fakeEngine{records: make(map[string][]byte)}, derivedOf(texts...))
}

func (s *sealer) recordOf(t *testing.T, id, address, state string) []byte {
	t.Helper()
	b, err := s.sealedRecord(id, recordOf(id, address, state))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *sealer) beatOf(t *testing.T, id string) string {
	t.Helper()
	b, err := s.seal.message(beatPlace(id), s.next(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return id + string(b)
}

const newID, newAddr = "0000000c", "10.0.0.3:8082"

func TestOnlyRecordsThatANodeHasSealedAreBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, log := stage(t, sealing("k"))
		b := another(t, "k")
		n.answers(newAddr, silence)
		old := b.recordOf(t, newID, newAddr, stateLeft)
		time.Sleep(staleAfter)
		good := b.recordOf(t, newID, newAddr, "up")
		changed := bytes.Replace(good, []byte(newAddr), []byte("10.0.0.9:8082"), 1)
		for name, value := range map[string][]byte{
			"unsealed": recordOf(newID, newAddr, "up"), "another key": another(t, "x").recordOf(t, newID, newAddr, "up"),
			"of another node": b.recordOf(t, peerID, newAddr, "up"), "of another place": []byte(`{"sealed":"` + strings.Repeat("A", 40) + `"}`),
			"too old": old, "empty": {}, "no JSON": []byte("x"), "newer": []byte(`{"sealed":"AgAAAAAAAAAAAAAA"}`),
		} {
			c.sealer.Record(newID, value)
			synctest.Wait()
			if c.stateOf(newID) != "unknown" {
				t.Errorf("a record is believed: %s", name)
			}
		}
		if log.count("node.bad_record") != 1 {
			t.Errorf("%d lines", log.count("node.bad_record"))
		}
		// What is outside the seal is for older versions alone.
		c.sealer.Record(newID, changed)
		if node, _ := c.Find(newID); node.Address != newAddr {
			t.Errorf("address %q", node.Address)
		}
		left := b.recordOf(t, newID, newAddr, stateLeft)
		again := b.recordOf(t, newID, newAddr, "up")
		c.sealer.Record(newID, again)
		c.sealer.Record(newID, left)
		if got := c.stateOf(newID); got != "up" {
			t.Errorf("%s by a record from before", got)
		}
		c.sealer.Record(newID, nil)
		if got := c.stateOf(newID); got != "up" {
			t.Errorf("%s by a deletion", got)
		}
	})
}

func TestOnlySealedHeartbeatsAreHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t, sealing("k"))
		b := another(t, "k")
		n.answers(peerAddr, silence)
		last := b.beatOf(t, peerID)
		c.sealer.Heartbeat(last)
		time.Sleep(10 * time.Second)
		for name, beat := range map[string]string{
			"plain": peerID, "short": "b", "again": last, "of another node": peerID + b.beatOf(t, newID)[idLen:],
			"another key": another(t, "x").beatOf(t, peerID), "junk": peerID + strings.Repeat("x", 60),
		} {
			c.sealer.Heartbeat(beat)
			if got := c.stateOf(peerID); got != "silent" {
				t.Errorf("%s by a heartbeat: %s", got, name)
			}
		}
		c.sealer.Heartbeat(b.beatOf(t, peerID))
		if got := c.stateOf(peerID); got != "up" {
			t.Errorf("%s, want up", got)
		}
	})
}

// Clocks of nodes are set back. Their messages count all the same.
func TestStampsGrow(t *testing.T) {
	b := another(t, "k")
	before := b.next()
	b.stamp += uint64(time.Hour.Microseconds())
	for range 3 {
		if now := b.next(); now <= before {
			t.Errorf("%d after %d", now, before)
		} else {
			before = now
		}
	}
}

// Records make a node connect nowhere that no node has named, but for a few addresses.
func TestForgedRecordsMakeFewConnections(t *testing.T) {
	for name, at := range map[string]func(i int) string{
		"one address":    func(int) string { return newAddr },
		"many addresses": func(i int) string { return fmt.Sprintf("10.0.1.%d:8082", i) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _, n, _ := stage(t, sealing("k"))
				beats(t, c, peerID)
				synctest.Wait()
				before := n.made()
				for range 10 { // within half a minute
					for i := range 300 {
						id := fmt.Sprintf("%08x", i+100)
						c.sealer.Record(id, recordOf(id, at(i), "up"))
						c.sealer.Heartbeat(id)
					}
					time.Sleep(3 * time.Second)
				}
				if made := n.made() - before; made > maxAsked || name == "one address" && made > 1 {
					t.Errorf("300 records made %d connections", made)
				}
				if list := c.Nodes(); len(list) != 2 {
					t.Errorf("%d nodes", len(list))
				}
			})
		})
	}
}

// Nodes that come and go at one address are told apart by one question.
func TestNodesOfOneAddressAreAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t)
		beats(t, c, peerID)
		n.answers(newAddr, n.node(fmt.Sprintf("%08x", 399), keys("k")))
		synctest.Wait()
		before := n.made()
		for i := range 300 {
			id := fmt.Sprintf("%08x", i+100)
			c.Record(id, recordOf(id, newAddr, "up"))
		}
		time.Sleep(900 * time.Millisecond)
		if made := n.made() - before; made != 1 {
			t.Errorf("300 records made %d connections", made)
		}
		c.Record(newID, recordOf(newID, newAddr, "up"))
		time.Sleep(900 * time.Millisecond)
		up := 0
		for _, node := range c.Nodes() {
			if node.State == StateUp && node.Address == newAddr {
				up++
			}
		}
		if up != 1 || c.stateOf(fmt.Sprintf("%08x", 399)) != "up" {
			t.Errorf("%d nodes are up at one address", up)
		}
	})
}

// A cluster is upgraded node by node: those of an older version seal nothing, and read the rest of a record.
func TestNodeOfAnOlderVersionIsBelievedOnceItSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, e, n, _ := stage(t, sealing("k"))
		n.answers(newAddr, n.node(newID, keys("k")))
		c.sealer.Record(newID, recordOf(newID, newAddr, "up"))
		synctest.Wait()
		if got := c.stateOf(newID); got != "up" {
			t.Fatalf("an older node is %s", got)
		}
		time.Sleep(recordEvery)
		c.sealer.Heartbeat(newID)
		if node, _ := c.Find(newID); node.HeartbeatAge != 0 {
			t.Errorf("its heartbeat is %v old", node.HeartbeatAge)
		}
		if _, err := c.Open("place", newID, nil); !errors.Is(err, ErrOlder) {
			t.Errorf("its messages: %v", err)
		}
		c.sealer.Record(newID, recordOf(newID, "10.0.0.9:8082", "up"))
		if node, _ := c.Find(newID); node.Address != newAddr {
			t.Errorf("address %q", node.Address)
		}
		for id, value := range e.records {
			if r, err := parseRecord(id, value); err != nil || r.Address != "10.0.0.1:8082" || r.State != "up" {
				t.Errorf("an older node reads %+v, %v", r, err)
			}
		}
		const next = "0000000d"
		n.answers(newAddr, n.node(next, keys("k")))
		c.sealer.Record(next, recordOf(next, newAddr, "up"))
		synctest.Wait()
		if got := c.stateOf(next); got != "up" {
			t.Errorf("the next older node at its address is %s", got)
		}
		// It is upgraded in place.
		b := another(t, "k")
		c.sealer.Record(newID, b.recordOf(t, newID, newAddr, "draining"))
		c.sealer.Heartbeat(newID)
		if _, err := c.Open("place", newID, nil); errors.Is(err, ErrOlder) || c.stateOf(newID) != "draining" {
			t.Errorf("%v, %s", err, c.stateOf(newID))
		}
	})
}

// A node of this version seals its records, so an unsealed one is not its own.
func TestUnsealedRecordOfASealingNodeIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, n, _ := stage(t, sealing("k"))
		n.level = Level
		n.answers(newAddr, n.node(newID, keys("k")))
		c.sealer.Record(newID, recordOf(newID, newAddr, "draining"))
		synctest.Wait()
		if got := c.stateOf(newID); got != "unknown" {
			t.Errorf("it is %s", got)
		}
	})
}

// A forged record keeps no node out.
func TestNodeWritesOverForgedRecordOfItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{records: map[string][]byte{newID: recordOf(newID, "10.0.0.9:8082", "up")}}
		c, err := New(Config{
			Name: "test", ID: newID, Lineage: "mine", Address: newAddr, Engine: e, Identity: keys("k"), Derive: derivedOf("k"),
			Dialer: func(context.Context, string, string) (net.Conn, error) { return refuses(t.Context()) }, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Join(time.Second); err != nil {
			t.Fatal(err)
		}
		defer c.Stop()
		if r, err := parseRecord(newID, e.records[newID]); err != nil || r.Lineage != "mine" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A playerStore has one record.
type playerStore struct{ value []byte }

func (p *playerStore) GetPlayer(context.Context, string) ([]byte, uint64, error) {
	return p.value, 1, nil
}
func (p *playerStore) PutPlayer(_ context.Context, _ string, value []byte, _ uint64) (uint64, error) {
	p.value = value
	return 1, nil
}
func (p *playerStore) DeletePlayer(context.Context, string, uint64) error { return nil }

// Else whoever may write there could have any session superseded.
func TestOnlySealedRecordsOfPlayersAreBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _, _ := stage(t, sealing("k"))
		store := new(playerStore)
		players := c.SealedPlayers(store)
		mine, _ := json.Marshal(holder{Session: "s", Node: peerID, Since: time.Now().UTC()})
		if _, err := players.PutPlayer(t.Context(), "alice", mine, 0); err != nil {
			t.Fatal(err)
		}
		written := store.value
		var plain holder
		if err := json.Unmarshal(written, &plain); err != nil || plain.Session != "s" {
			t.Errorf("an older node reads %+v, %v", plain, err)
		}
		for name, try := range map[string]struct {
			key   string
			value []byte
			want  string
		}{
			"sealed":                     {"alice", written, string(mine)},
			"of another player":          {"bob", written, ""},
			"unsealed":                   {"alice", mine, ""},
			"changed outside":            {"alice", bytes.Replace(written, []byte(`"s"`), []byte(`"x"`), 1), string(mine)},
			"no JSON":                    {"alice", []byte("x"), ""},
			"sealed by another key":      {"alice", wrap(mine, []byte("\x0112345678nonsense")), ""},
			"of a node that seals, bare": {"alice", []byte(`{"sid":"s","node":"0000000b"}`), ""},
		} {
			store.value = try.value
			if value, revision, err := players.GetPlayer(t.Context(), try.key); string(value) != try.want || revision != 1 || err != nil {
				t.Errorf("%s: %q, %v", name, value, err)
			}
		}
	})
}

// A cluster whose nodes have other keys refuses this one, as before its records were sealed.
func TestNodeWithOtherKeysThanAllDoesNotJoin(t *testing.T) {
	for name, others := range map[string]*Identity{"other keys": keys("x"), "nobody": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				if others != nil {
					n.answers(newAddr, n.node(newID, others))
				}
				e := &fakeEngine{records: map[string][]byte{newID: another(t, "x").recordOf(t, newID, newAddr, "up")}}
				c, err := New(Config{Name: "test", Address: "10.0.0.1:8082", Engine: e, Identity: keys("k"), Derive: derivedOf("k"), Dialer: n.dial, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Stop()
				if err := c.Join(time.Second); (err != nil) != (others != nil) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}
