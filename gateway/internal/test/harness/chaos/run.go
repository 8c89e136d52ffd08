//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"reseat/gateway/internal/test/harness/chaos/fault"
	"reseat/gateway/internal/test/harness/process"
	"reseat/gateway/internal/test/harness/seat"
)

// A Config configures a run. Random choices come from Seed alone; timing depends on the
// machine.
type Config struct {
	Seed       uint64
	Sessions   int           // shared among the endings
	Cuts       int           // per session
	Messages   int           // min, in each direction, per session
	Spread     time.Duration // over which they are sent, if nothing is slow
	Only       string        // the single ending of all sessions, "" for all endings
	Rivalries  int
	Grace      time.Duration // so long that only a fault reaches it,
	Expiry     time.Duration // and that of sessions which are to reach it
	Heartbeat  time.Duration
	Answer     time.Duration // --answer-timeout
	Late       time.Duration // what a busy machine may add: timers and logs are late
	Hold       time.Duration // how long half-open connections stay open
	Stall      time.Duration // max time in which a game server reads nothing,
	StallEvery int           // once in about this many messages
	Rotate     time.Duration // between two signing keys
	Upgrade    time.Duration // between two upgrades to a new process; 0: none
	TLS        bool          // on the client address
	Links      bool          // in a separate network namespace, whose link fails now and then
	Limit      time.Duration // for the whole run
	FailFast   bool          // the first fault ends the run
	Cluster    time.Duration // how long a cluster of gateways plays; 0: there is one gateway
	Round      time.Duration // of troubles in a cluster; 0: none
	Drain      time.Duration // --drain
	Verbose    bool          // say what happens to a cluster
	Bin        string        // the gateway's program,
	NATS       string        // that of the NATS server,
	Counting   string        // and that of the counting game, "" for none
	Tick       int           // ms between two messages of its own to each session
	Servers    int           // NATS servers
	Driver     string
	Moves      bool   // sessions move between four event loops at each turn, as MOVES_SEED seeds it
	Dir        string // for the log and the keys
}

type counters struct {
	cuts                                [fault.Kinds]atomic.Int64
	resumes, takenOver, abandoned       atomic.Int64
	forwarded                           atomic.Int64 // resumes at another node than the owner
	replayed                            atomic.Uint64
	tokens, rotations, ghosts           atomic.Int64
	flaps                               atomic.Int64
	compressed, cookies                 atomic.Int64
	suspicions, falseAlarms             atomic.Int64
	insideDown, insideUp                atomic.Int64 // resumes inside a large message
	told, gone, again, repeats, skipped atomic.Uint64
	upgrades, refusedUpgrades           atomic.Int64
	loopMoves                           atomic.Int64 // of sessions between event loops
	moved, misfits, fences              atomic.Int64 // hellos of durable sessions, and connections of theirs closed since another node had taken them
}

// A run is a gateway with clients, game servers and faults.
type run struct {
	cfg      Config
	client   *http.Client
	game     *game
	gateway  *process.Process
	links    *namespace // nil without Links
	near     fault.Proxy
	far      fault.Proxy
	fronts   []string  // where players connect: scheme and address
	cluster  *cluster  // nil: there is one gateway
	counting *counting // nil: it is not played
	keys     *keyring
	trust    *tls.Config
	mu       sync.Mutex
	players  []*player // in a cluster nil once they are judged
	rivals   []*rivalry
	count    counters
	began    time.Time

	faulty sync.Mutex
	faults []string // of the run as a whole

	signals  sync.Mutex // held during an upgrade, and while the keys change
	silences silences
}

// Run runs everything and returns the result; its error says why it could not run.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	r := &run{cfg: cfg, began: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, cfg.Limit)
	defer cancel()
	if err := r.open(ctx); err != nil {
		r.close()
		return nil, err
	}
	defer r.close()
	if r.cluster != nil {
		return r.playCluster(ctx), nil
	}
	r.cast()
	if cfg.FailFast {
		go r.lookOut(ctx, cancel)
	}
	return r.play(ctx), nil
}

// lookOut ends the run at the first wrong message.
func (r *run) lookOut(ctx context.Context, cancel context.CancelFunc) {
	for sleep(ctx, 200*time.Millisecond) {
		for _, p := range r.players {
			if p.isWrong() {
				cancel()
				return
			}
		}
	}
}

// isWrong reports whether anything has gone wrong in the session so far.
func (p *player) isWrong() bool {
	bad := false
	if g := p.seat(); g != nil {
		g.mu.Lock()
		bad = g.check.Verdicts.Bad()
		g.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return bad || p.down.Verdicts.Bad() || len(p.faults) > 0
}

// open starts the game servers, the proxies and the gateway.
func (r *run) open(ctx context.Context) (err error) {
	host, prefix := "127.0.0.1", []string(nil)
	if r.cfg.Links {
		if r.links, err = newNamespace(); err != nil {
			return err
		}
		host, prefix = r.links.outside, r.links.prefix()
	}
	gameLn, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r.game = serveGame(r.cfg, gameLn)
	r.game.lost = r.lost
	farLn, err := net.Listen("tcp", host+":0")
	if err != nil {
		return err
	}
	r.far = fault.Proxy{Target: gameLn.Addr().String(), Plan: r.legPlan, Struck: r.struckLeg}
	r.far.Serve(farLn)
	r.keys = &keyring{dir: r.cfg.Dir}
	if err = r.keys.turn(); err != nil {
		return err
	}
	roots, err := process.Certificate(r.cfg.Dir)
	if err != nil {
		return err
	}
	r.trust = &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
	if r.cfg.Counting != "" {
		if r.counting, err = startCounting(r.cfg.Counting, r.cfg.Dir, r.cfg.Tick, r.game.name); err != nil {
			return err
		}
	}
	if r.cfg.Cluster > 0 {
		r.client = seat.Client(r.trust)
		r.cluster = newCluster(r, farLn.Addr().String())
		return r.cluster.open(ctx)
	}
	listen := "127.0.0.1:0"
	if r.links != nil {
		listen = r.links.inside + ":0"
	}
	admin := "off"
	if r.cfg.Moves {
		admin = "127.0.0.1:0" // for countMoves
	}
	if r.gateway, err = process.Start(r.logged, filepath.Join(r.cfg.Dir, "gateway.log"), prefix, r.cfg.Bin, r.flags(farLn.Addr().String(), listen, admin)...); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r.near = fault.Proxy{Target: r.gateway.Addr, Plan: r.plan, Struck: r.struck, Told: true}
	r.near.Serve(ln)
	r.fronts = []string{"ws://" + ln.Addr().String()}
	if r.cfg.TLS {
		r.fronts[0] = "wss://" + ln.Addr().String()
	}
	r.client = seat.Client(r.trust)
	return nil
}

func (r *run) flags(game, listen, admin string) []string {
	flags := append([]string{"--listen=" + listen, "--admin=" + admin, "--upstream=ws://" + game, "--driver=" + r.cfg.Driver, "--compression=on",
		"--grace=" + r.cfg.Grace.String(), "--heartbeat=" + r.cfg.Heartbeat.String(), "--answer-timeout=" + r.cfg.Answer.String(), "--drain=" + r.cfg.Drain.String(),
		"--buffer-messages=600", "--log-format=json", "--upgrade-timeout=4m"}, r.keys.flags()...)
	flags = append(flags, fmt.Sprintf("--route=/r/*=ws://%s;grace=%s", game, r.cfg.Expiry)) // rivals'
	for e, s := range rules {
		if ending(e) == countingGame {
			if r.counting != nil {
				flags = append(flags, r.counting.route())
			}
		} else if s.route != "" && (!ending(e).isDurable() || r.cluster != nil) {
			flags = append(flags, fmt.Sprintf("--route=/%c/*=ws://%s;%s", s.letter, game, strings.Replace(s.route, "EXPIRY", r.cfg.Expiry.String(), 1)))
		}
	}
	if r.cfg.Moves {
		flags = append(flags, "--loops=4")
	}
	if r.cfg.TLS {
		flags = append(flags, "--tls-cert="+filepath.Join(r.cfg.Dir, process.CertFile), "--tls-key="+filepath.Join(r.cfg.Dir, process.KeyFile))
	}
	return flags
}

func (r *run) close() {
	if r.cluster != nil {
		r.cluster.close()
	}
	if r.gateway != nil {
		r.gateway.Kill()
	}
	for _, p := range []*fault.Proxy{&r.near, &r.far} {
		if p.Target != "" {
			p.Close()
		}
	}
	if r.game != nil {
		r.game.http.Close()
	}
	if r.counting != nil {
		r.counting.close()
	}
	if r.links != nil {
		r.links.remove()
	}
}

// lost reports whether the gateway of a session was lost, or may have been.
func (r *run) lost(session string) bool {
	if r.cluster == nil {
		return false
	}
	l := r.cluster.lifeOf(session)
	return l != nil && l.lost.Load() > 0 && now() >= l.lost.Load()
}

// cast assigns each session its ending.
func (r *run) cast() {
	shares := []ending{byeAtRest, byeAtOnce, gameClose, hard, expiry, drained, gameKill, dropOldest, legCut, cookie, overflowEnd, plain, byeAtRest, hard, drained, dropOldest, byeAtOnce, newestFirst, newestFirst, inParts, inParts}
	shares = slices.DeleteFunc(shares, func(e ending) bool { // a plain client does not survive its line
		return r.links != nil && e == plain || r.cfg.Only != "" && e.String() != r.cfg.Only
	})
	for i := range r.cfg.Sessions {
		r.players = append(r.players, newPlayer(r, i, shares[i%len(shares)]))
	}
	for i := range r.cfg.Rivalries {
		r.rivals = append(r.rivals, &rivalry{run: r, id: r.cfg.Sessions + i})
	}
}

// plan is called by the proxy in front of the gateway.
func (r *run) plan(path string) fault.Plan {
	id, attempt := number(path)
	p := r.player(id)
	switch {
	case p != nil:
		return p.plan(attempt)
	case r.cluster != nil || id < len(r.players):
	case id < len(r.players)+len(r.rivals):
		return r.rivals[id-len(r.players)].plan(attempt)
	}
	return fault.Plan{}
}

// player returns the player with this number, nil if there is none.
func (r *run) player(id int) *player {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id < 0 || id >= len(r.players) {
		return nil
	}
	return r.players[id]
}

// number returns the player and the connection number of a path; -1: none.
func number(path string) (id, attempt int) {
	_, id, _, err := parsePath(path)
	u, _ := url.Parse(path)
	if err != nil || u == nil {
		return -1, 0
	}
	attempt, _ = strconv.Atoi(u.Query().Get("a"))
	return id, attempt
}

func (r *run) struck(path string, p fault.Plan) {
	r.count.cuts[p.Kind].Add(1)
	id, attempt := number(path)
	player := r.player(id)
	if !p.Kind.Cut() || player == nil {
		return
	}
	player.cuts.Add(1)
	player.note("%s", p.Short())
	if p.Kind.Silent() {
		player.mu.Lock()
		defer player.mu.Unlock()
		player.struck[attempt] = true
	}
}

func (r *run) legPlan(path string) fault.Plan {
	if _, id, _, err := parsePath(path); err == nil {
		if p := r.player(id); p != nil {
			return p.legPlan()
		}
	}
	return fault.Plan{}
}

func (r *run) struckLeg(_ string, p fault.Plan) {
	if !p.Kind.Cut() {
		r.count.cuts[p.Kind].Add(1)
	}
}

// play runs all players: first those that end by themselves, then a drain ends the
// others. It refuses no resumes, as the remaining players show.
func (r *run) play(ctx context.Context) *Report {
	quiet, stop := context.WithCancel(ctx)
	var nature, first, rest sync.WaitGroup
	nature.Go(func() { r.rotate(quiet) })
	nature.Go(func() { r.flap(quiet) })
	nature.Go(func() { r.upgrade(quiet) })
	for _, p := range r.players {
		group := &first
		if p.end == drained {
			group = &rest
		}
		group.Go(func() { p.play(ctx) })
		sleep(ctx, time.Duration(int64(r.cfg.Spread)/10/int64(r.cfg.Sessions)))
	}
	for _, v := range r.rivals {
		first.Go(func() { v.play(ctx) })
	}
	first.Wait()
	for _, p := range r.players {
		if p.end == drained {
			p.await(ctx, func() bool { return p.seat() != nil && p.enough() })
		}
	}
	stop()
	nature.Wait()
	for _, p := range r.players {
		if p.end == drained {
			p.askEnd()
		}
	}
	if r.countMoves(); r.cfg.Moves && r.count.loopMoves.Load() < 1000 {
		r.fault("only %d moves of sessions between event loops", r.count.loopMoves.Load())
	}
	r.gateway.Signal(syscall.SIGTERM)
	rest.Wait()
	if err := r.gateway.Wait(time.Minute); err != nil {
		r.fault("the gateway after SIGTERM: %v", err)
	}
	for _, line := range r.gateway.Faults() {
		r.fault("the gateway's log: %s", line)
	}
	rep := newReport(r)
	for _, p := range r.players {
		p.awaitGame(r.cfg.Stall + 30*time.Second)
		rep.add(p)
	}
	for _, v := range r.rivals {
		rep.check(fmt.Sprintf("rivals of session %d", v.id), &v.hist)
	}
	for _, g := range r.game.all() {
		if g.id < len(r.players) && g.try != r.players[g.id].try {
			r.judgeGhost(g)
		}
	}
	r.judgeSilences()
	return rep.finish()
}

// judgeGhost checks a session whose first hello was lost: no client has ever sent
// anything in it, and it has ended.
func (r *run) judgeGhost(g *gameSeat) {
	r.count.ghosts.Add(1)
	if n := g.taken(); n > 0 || !isOver(g) {
		r.fault("session %d, try %d: no client has its token; the game server got %d messages, and it is over: %v", g.id, g.try, n, isOver(g))
	}
}

// rotate changes the signing key now and then.
func (r *run) rotate(ctx context.Context) {
	for sleep(ctx, r.cfg.Rotate) {
		r.signals.Lock() // a process that is being replaced ignores it, and one that starts reads the files
		err := r.keys.turn()
		r.gateway.Signal(syscall.SIGHUP)
		r.signals.Unlock()
		if err != nil {
			r.fault("%v", err)
			return
		}
		r.count.rotations.Add(1)
	}
}

// countMoves adds the moves of sessions between event loops, of a process that is about to end.
func (r *run) countMoves() {
	if !r.cfg.Moves {
		return
	}
	r.count.loopMoves.Add(int64(process.Sum(r.gateway.Metrics(), "reseat_loop_moves_total")))
}

// upgrade replaces the gateway's process now and then.
func (r *run) upgrade(ctx context.Context) {
	for r.cfg.Upgrade > 0 && sleep(ctx, r.cfg.Upgrade) {
		r.countMoves()
		r.signals.Lock()
		key, err := r.gateway.Upgrade(5 * time.Minute)
		r.signals.Unlock()
		switch {
		case err != nil:
			r.fault("%v", err)
			return
		case key == "upgrade.committed":
			r.count.upgrades.Add(1)
		case key == "upgrade.refused":
			r.count.refusedUpgrades.Add(1)
		}
	}
}
