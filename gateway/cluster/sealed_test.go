package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
)

// another is a node beside the stage, as far as it writes.
func another(t *testing.T, texts ...string) *sealer {
	t.Helper()
	return newSealer(&Cluster{}, newFakeEngine(), derivedOf(texts...))
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

// onSealedStage is onStage with a node that seals its messages, and believes but those of its key.
func onSealedStage(t *testing.T, f func(*testing.T, *stage)) {
	t.Helper()
	onStage(t, f, func(c *Config) { c.Derive = derivedOf("k") })
}

func TestOnlyRecordsThatANodeHasSealedAreBelieved(t *testing.T) {
	onSealedStage(t, func(t *testing.T, s *stage) {
		b := another(t, "k")
		s.net.answers(thirdAddr, silence)
		old := b.recordOf(t, thirdID, thirdAddr, stateLeft)
		time.Sleep(staleAfter)
		good := b.recordOf(t, thirdID, thirdAddr, "up")
		changed := bytes.Replace(good, []byte(thirdAddr), []byte("10.0.0.9:8082"), 1)
		for name, value := range map[string][]byte{
			"unsealed": recordOf(thirdID, thirdAddr, "up"), "another key": another(t, "x").recordOf(t, thirdID, thirdAddr, "up"),
			"of another node": b.recordOf(t, peerID, thirdAddr, "up"), "of another place": []byte(`{"sealed":"` + strings.Repeat("A", 40) + `"}`),
			"too old": old, "empty": {}, "no JSON": []byte("x"), "newer": []byte(`{"sealed":"AgAAAAAAAAAAAAAA"}`),
		} {
			s.sealer.Record(thirdID, value)
			synctest.Wait()
			if _, ok := s.Find(thirdID); ok {
				t.Errorf("a record is believed: %s", name)
			}
		}
		s.wantLines("node.bad_record", 1)
		// What is outside the seal is not read.
		s.sealer.Record(thirdID, changed)
		node, _ := s.Find(thirdID)
		wstest.Equal(t, "address", node.Address, thirdAddr)
		left, again := b.recordOf(t, thirdID, thirdAddr, stateLeft), b.recordOf(t, thirdID, thirdAddr, "up")
		for _, value := range [][]byte{again, left, nil} { // a record from before, and a deletion
			s.sealer.Record(thirdID, value)
			s.wantState(thirdID, "up")
		}
	})
}

func TestOnlySealedHeartbeatsAreHeard(t *testing.T) {
	onSealedStage(t, func(t *testing.T, s *stage) {
		b := another(t, "k")
		s.net.answers(peerAddr, silence)
		last := b.beatOf(t, peerID)
		s.sealer.Heartbeat(last)
		time.Sleep(10 * time.Second)
		for name, beat := range map[string]string{
			"plain": peerID, "short": "b", "again": last, "of another node": peerID + b.beatOf(t, thirdID)[IDLen:],
			"another key": another(t, "x").beatOf(t, peerID), "junk": peerID + strings.Repeat("x", 60),
		} {
			s.sealer.Heartbeat(beat)
			if node, _ := s.Find(peerID); node.State.String() != "silent" {
				t.Errorf("%s by a heartbeat: %s", node.State, name)
			}
		}
		s.sealer.Heartbeat(b.beatOf(t, peerID))
		s.wantState(peerID, "up")
	})
}

// Clocks of nodes are set back. Their messages count all the same.
func TestStampsGrow(t *testing.T) {
	b := another(t, "k")
	before := b.next()
	b.stamp += uint64(time.Hour.Microseconds())
	for range 3 {
		now := b.next()
		if now <= before {
			t.Errorf("%d after %d", now, before)
		}
		before = now
	}
}

// Records make a node connect nowhere that no node has named.
func TestForgedRecordsMakeNoConnections(t *testing.T) {
	onSealedStage(t, func(t *testing.T, s *stage) {
		s.beats(peerID)
		synctest.Wait()
		before := s.net.made()
		for i := range 300 {
			id := fmt.Sprintf("%08x", i+100)
			s.sealer.Record(id, recordOf(id, thirdAddr, "up"))
			s.sealer.Heartbeat(id)
		}
		time.Sleep(3 * time.Second)
		wstest.Equal(t, "connections for 300 records", s.net.made()-before, 0)
		wstest.Equal(t, "nodes", len(s.Nodes()), 2)
	})
}

// Nodes that come and go at one address are distinguished by one request.
func TestNodesOfOneAddressAreAskedOnce(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.beats(peerID)
		answers := fmt.Sprintf("%08x", 399)
		s.net.answers(thirdAddr, s.net.node(answers, keys("k")))
		synctest.Wait()
		before := s.net.made()
		for i := range 300 {
			id := fmt.Sprintf("%08x", i+100)
			s.Record(id, recordOf(id, thirdAddr, "up"))
		}
		time.Sleep(900 * time.Millisecond)
		wstest.Equal(t, "connections for 300 records", s.net.made()-before, 1)
		s.Record(thirdID, recordOf(thirdID, thirdAddr, "up"))
		time.Sleep(900 * time.Millisecond)
		up := 0
		for _, node := range s.Nodes() {
			if node.State == StateUp && node.Address == thirdAddr {
				up++
			}
		}
		wstest.Equal(t, "nodes that are up at one address", up, 1)
		s.wantState(answers, "up")
	})
}

// Otherwise anybody who may write there could have any session superseded.
func TestOnlySealedRecordsOfPlayersAreBelieved(t *testing.T) {
	inPair(t, func(t *testing.T, a, b *Players, s *fakeStore, n *table) {
		holds(t, b, "s1", newestWins, true)
		b.Hold(t.Context(), Player{Name: "bob"}, "s2", newestWins)
		key := a.key(ada)
		good, bobs := s.records[key], s.records[a.key(Player{Name: "bob"})]
		bare, _ := json.Marshal(holder{Session: "s1", Node: "b"})
		other, _ := another(t, "x").seal.object(playerPlace(key), 0, bare)
		for name, value := range map[string][]byte{
			"of another player": bobs, "unsealed": bare, "no JSON": []byte("{"), "sealed by another key": other,
			"another place's": []byte(`{"sid":"s1","sealed":"` + strings.Repeat("A", 40) + `"}`),
		} {
			s.records[key] = value
			if h, revision, err := a.read(t.Context(), key); h != (holder{Node: "a"}) || revision == 0 || err != nil {
				t.Errorf("%s: %+v, revision %d, %v; want that it is as good as none", name, h, revision, err)
			}
		}
		holds(t, a, "s3", newestWins, true) // over it
		n.wantEnded(t)
		s.records[key] = bytes.Replace(good, []byte(`"s1"`), []byte(`"s9"`), 1) // what is outside the seal is not read
		holds(t, a, "s4", newestWins, true)
		n.wantEnded(t, "b/s1")
	})
}
