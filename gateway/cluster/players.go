package cluster

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Players keeps players from having two sessions at different nodes, as --duplicate takeover
// and reject promise. Each player has a record in the engine that names their session; it is
// only written on the condition that nobody else has written it meanwhile. While the engine
// is away each node decides for itself, and Announce decides afterwards. Only what a node has sealed is believed.
//
// Its methods may be called from any goroutine.
type Players struct {
	self  func() string // this node's id
	store PlayerStore
	peers PlayerPeers
	seal  seal
	log   *slog.Logger
	// Unchecked is called for each session that began without the engine.
	Unchecked func()

	mu   sync.Mutex
	held map[string]holding // this node's sessions, by key
}

// A PlayerStore keeps the records of players. A record has a revision, which changes with
// each write.
type PlayerStore interface {
	// GetPlayer returns a record, or ErrNoRecord.
	GetPlayer(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// PutPlayer writes a record if its revision is still this one, 0 for none, and returns the
	// new one, or ErrOvertaken.
	PutPlayer(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// DeletePlayer deletes a record if its revision is still this one.
	DeletePlayer(ctx context.Context, key string, revision uint64) error
}

// Errors of a PlayerStore. Any other means that the engine is away.
var (
	ErrNoRecord  = errors.New("no such record")
	ErrOvertaken = errors.New("another node has written the record")
)

// PlayerPeers are the other nodes, as Players needs them.
type PlayerPeers interface {
	// Supersede has a node end a session, since its player has begun another. It does not wait.
	Supersede(node, session string)
	// Answers reports whether the client of another node's session answers within two seconds.
	Answers(ctx context.Context, node, session string) bool
}

// A Player owns a session. Players of different realms are different people,
// whatever their names are.
type Player struct{ Realm, Name string }

const (
	// playerPurpose names the key that hides players' names from readers of the engine.
	playerPurpose = "reseat player v1"
	// releaseTimeout limits the deletion of a record.
	releaseTimeout = 5 * time.Second
)

// key returns the key of a player's record.
func (p *Players) key(of Player) string {
	secrets, err := p.seal.derive(playerPurpose, sha256.Size)
	if err != nil || len(secrets) == 0 {
		return ""
	}
	m := hmac.New(sha256.New, secrets[0])
	fmt.Fprintf(m, "%d %s%s", len(of.Realm), of.Realm, of.Name)
	return hex.EncodeToString(m.Sum(nil)[:20])
}

// A holder is the record of a player.
type holder struct {
	Session string    `json:"sid"`
	Node    string    `json:"node"`
	Since   time.Time `json:"since"`
}

// A holding is a record that this node has written, or would have.
type holding struct {
	holder
	oldestWins bool   // --duplicate reject; else takeover
	revision   uint64 // 0: not written
}

// holdTries bounds how often claim starts again after it was overtaken.
const holdTries = 8

// NewPlayers returns the Players of the node whose id self returns. derive is tokens.Keys.Derive: nodes
// with the same keys find each other's records.
func NewPlayers(self func() string, store PlayerStore, peers PlayerPeers, derive func(purpose string, n int) ([][]byte, error), log *slog.Logger) *Players {
	return &Players{self: self, store: store, peers: peers, seal: seal{derive}, log: log, Unchecked: func() {}, held: make(map[string]holding)}
}

// Hold makes session the one of a player in the whole cluster. It reports false if another
// node has a session of the player that stays, which is possible if the oldest wins.
func (p *Players) Hold(ctx context.Context, player Player, session string, oldestWins bool) bool {
	key := p.key(player)
	mine := holding{holder: holder{Session: session, Node: p.self(), Since: time.Now().UTC()}, oldestWins: oldestWins}
	p.keep(key, mine)
	lost, err := p.claim(ctx, key, mine, func(other holder) bool {
		return oldestWins && p.peers.Answers(ctx, other.Node, other.Session)
	})
	switch {
	case lost:
		p.drop(key, session)
	case err != nil && ctx.Err() == nil:
		p.Unchecked()
		p.log.Debug("player.unchecked", "session", session)
	}
	return !lost
}

// claim makes the record of a player that of h. lost: the session of another node stays, for which stays is asked.
func (p *Players) claim(ctx context.Context, key string, h holding, stays func(other holder) bool) (lost bool, err error) {
	for range holdTries {
		if !p.holds(key, h.Session) {
			return false, nil // it has ended, or a newer one of this node is about to end it
		}
		current, revision, err := p.read(ctx, key)
		if err != nil {
			return false, err
		}
		other := revision > 0 && current.Node != p.self() && current.Session != h.Session // else it has moved to this node
		if other && stays(current) {
			return true, nil
		}
		if revision == 0 || current.Node != p.self() || current.Session != h.Session {
			if revision, err = p.write(ctx, key, h.holder, revision); errors.Is(err, ErrOvertaken) {
				continue
			}
			if err != nil {
				return false, err
			}
		}
		if other {
			p.peers.Supersede(current.Node, current.Session)
		}
		if !p.update(key, h, revision) && !p.holdsAny(key) {
			p.store.DeletePlayer(ctx, key, revision) // it has ended meanwhile
		}
		return false, nil
	}
	return false, ErrOvertaken
}

// holds reports whether session is the newest one of its player here.
func (p *Players) holds(key, session string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, ok := p.held[key]
	return ok && h.Session == session
}

func (p *Players) holdsAny(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.held[key]
	return ok
}

// drop forgets a session, and returns what was held.
func (p *Players) drop(key, session string) (h holding, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, ok = p.held[key]; !ok || h.Session != session {
		return holding{}, false
	}
	delete(p.held, key)
	return h, true
}

func (p *Players) keep(key string, h holding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[key] = h
}

// Keep notes a session that this node has held before an upgrade. Announce then writes its
// record.
func (p *Players) Keep(player Player, session string, since time.Time, oldestWins bool) {
	p.keep(p.key(player), holding{holder: holder{Session: session, Node: p.self(), Since: since.UTC()}, oldestWins: oldestWins})
}

// Release forgets a session that has ended. It does not wait until the record is deleted.
func (p *Players) Release(player Player, session string) {
	key := p.key(player)
	h, ok := p.drop(key, session)
	if !ok || h.revision == 0 {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		p.store.DeletePlayer(ctx, key, h.revision) // if it fails, the node will not know the session
	}()
}

// Announce writes the records of all sessions of this node again, after the engine was away or
// has lost them. It calls supersede for each session that has to end, since its player has
// another one.
func (p *Players) Announce(ctx context.Context, supersede func(session string)) {
	p.mu.Lock()
	all := maps.Clone(p.held)
	p.mu.Unlock()
	for key, h := range all {
		if ctx.Err() != nil {
			return
		}
		lost, _ := p.claim(ctx, key, h, func(other holder) bool {
			return !p.wins(h, other) && (!h.oldestWins || p.peers.Answers(ctx, other.Node, other.Session))
		})
		if lost {
			supersede(h.Session)
		}
	}
}

// wins reports whether h stays, and the session of another record ends. Of two that began at
// the same instant, that of the node with the lower id stays.
func (p *Players) wins(h holding, other holder) bool {
	if h.Since.Equal(other.Since) {
		return h.Node < other.Node
	}
	return h.Since.After(other.Since) != h.oldestWins
}

// update notes the revision of a record. It reports false if the session has ended meanwhile, or a newer
// one of this node is there.
func (p *Players) update(key string, h holding, revision uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, ok := p.held[key]
	if !ok || now.Session != h.Session {
		return false
	}
	now.revision = revision
	p.held[key] = now
	return true
}

// read returns the record of a player, with revision 0 if there is none. A record that no node has written is as good
// as none.
func (p *Players) read(ctx context.Context, key string) (h holder, revision uint64, err error) {
	value, revision, err := p.store.GetPlayer(ctx, key)
	if errors.Is(err, ErrNoRecord) {
		return h, 0, nil
	}
	if err != nil {
		return h, revision, err
	}
	_, opened, bad := p.seal.openObject(playerPlace(key), value)
	if bad == nil {
		bad = json.Unmarshal(opened, &h)
	}
	if bad != nil {
		p.log.Debug("player.bad_record", "err", bad)
		h = holder{Node: p.self()}
	}
	return h, revision, nil
}

func (p *Players) write(ctx context.Context, key string, h holder, revision uint64) (uint64, error) {
	value, err := json.Marshal(h)
	if err == nil {
		value, err = p.seal.object(playerPlace(key), 0, value)
	}
	if err != nil {
		return 0, err
	}
	return p.store.PutPlayer(ctx, key, value, revision)
}

func playerPlace(key string) string { return "player " + key }
