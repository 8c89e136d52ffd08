import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { WebSocketServer } from 'ws';
import { tenCuts } from './lib/cuts.js';
import { Flow, filler } from './lib/flow.js';
import { BIN, startGateway } from './lib/gateway.js';
import { Page } from './lib/page.js';
import { recipe, replaced } from './lib/recipes.js';
import { Relay } from './lib/relay.js';
import { openServer } from './lib/server.js';

// The pages for game engines. The engines are not at hand: stand-ins use the page's
// WebSocket as their own code does.

const PAGE = 'http://localhost:5173';

/** The game server, the gateway, the network, and the page's HTML, run. */
async function play(t, page, name, html) {
  const server = await openServer(t);
  const joined = once(new WebSocketServer({ server }), 'connection');
  const gateway = await startGateway(t, recipe(name.title, name.page).flags({ 'localhost:9000': server.addr }));
  const relay = await Relay.open(t, gateway.addr);
  page.open(PAGE, { 'localhost:8080': relay.addr });
  globalThis.gatewayHost = relay.addr;
  const names = await page.run(html ?? recipe(name.title, name.page).code('html'));
  const [game] = await joined;
  await page.tap.until(() => page.tap.events.includes('open'));
  return { server, gateway, relay, page, tap: page.tap, game, names };
}

/** Traffic both ways: `say` sends for the engine, which calls what `heard` was given. */
function flows({ game }, engine) {
  const up = new Flow('up', (n, text) => engine.send(`${n} ${text}`));
  const down = new Flow('down', (n, text) => game.send(Buffer.from(`${n} ${text}`)));
  const hear = (flow) => (text) => {
    const [, n, rest] = /^(\d+) ([^]*)$/.exec(text) ?? [];
    flow.heard(Number(n), rest);
  };
  game.on('message', (data) => hear(up)(data.toString()));
  engine.heard = hear(down);
  return [up, down];
}

/** A stand-in for WebSocketPeer of a Godot web export: its queues drop what does not fit, and are emptied once a frame. */
class GodotPeer {
  heard = (_text) => {};
  queue = [];
  dropped = 0;

  constructor(url, { inbound, packets, outbound }) {
    Object.assign(this, { inbound, packets, outbound, bytes: 0 });
    this.socket = new WebSocket(url);
    this.socket.binaryType = 'arraybuffer';
    this.socket.onmessage = ({ data }) => this.#take(Buffer.from(data));
    this.frames = setInterval(() => this.frame(), 16);
  }

  #take(data) {
    if (this.queue.length >= this.packets || this.bytes + data.length > this.inbound) return this.dropped++;
    this.queue.push(data);
    return (this.bytes += data.length);
  }

  frame() {
    for (const data of this.queue.splice(0)) this.heard(data.toString());
    this.bytes = 0;
  }

  send(text) {
    const { socket, outbound } = this;
    assert.equal(socket.readyState, socket.OPEN);
    assert.ok(socket.bufferedAmount + text.length < outbound, 'ERR_OUT_OF_MEMORY');
    socket.send(Buffer.from(text));
  }

  close() {
    clearInterval(this.frames);
    this.socket.close(3001, 'destroyed');
  }
}

/** What the page's GDScript sets. */
function buffers() {
  const code = recipe('The buffers of WebSocketPeer', 'godot.md').code('gdscript');
  const value = (name) => {
    const [, product] = new RegExp(`socket\\.${name} = ([\\d *]+)`).exec(code) ?? [];
    return product.split('*').reduce((n, factor) => n * Number(factor), 1);
  };
  return { inbound: value('inbound_buffer_size'), packets: value('max_queued_packets'), outbound: value('outbound_buffer_size') };
}

/** Godot's export replaces the shell's placeholders. */
const godotShell = () => replaced(recipe('The page', 'godot.md').code('html'), { $GODOT_CONFIG: '{ canvasResizePolicy: 2 }' });

test('a Godot game plays through ten cuts in the shell of the page', { timeout: 180_000 }, async (t) => {
  const page = new Page(t);
  let peer;
  globalThis.Engine = class {
    constructor(config) {
      this.config = config;
    }

    startGame() {
      assert.deepEqual(this.config, { canvasResizePolicy: 2 });
      peer = new GodotPeer(`ws://${globalThis.gatewayHost}/match/7`, buffers());
    }
  };
  const world = await play(t, page, { title: 'The page', page: 'godot.md' }, godotShell());
  page.onLeave(() => peer.close());
  await tenCuts(world, flows(world, peer));
  assert.equal(peer.dropped, 0);
});

test('the queues of the page hold a whole replay, and those that Godot has by itself do not', { timeout: 180_000 }, async (t) => {
  for (const [queues, lost] of [[buffers(), false], [{ inbound: 65_535, packets: 4096, outbound: 65_535 }, true]]) {
    const page = new Page(t);
    let peer;
    globalThis.Engine = class {
      startGame() {
        peer = new GodotPeer(`ws://${globalThis.gatewayHost}/match/7`, queues);
      }
    };
    const world = await play(t, page, { title: 'The page', page: 'godot.md' }, godotShell());
    page.onLeave(() => peer.close());
    clearInterval(peer.frames); // one frame that takes long, as at a change of scene
    world.relay.goDown();
    await world.tap.until(() => !world.tap.attached);
    for (let n = 0; n < 900; n++) world.game.send(Buffer.alloc(1000, filler(7)));
    world.relay.comeUp();
    await world.tap.until(() => [...world.tap.came.values()].flat().length === 900);
    assert.equal(peer.dropped > 0, lost, `${peer.dropped} dropped`);
  }
});

test('the queues of the page are as large as the buffers of the gateway', () => {
  const help = execFileSync(BIN, ['--help'], { encoding: 'utf8' }).replace(/\s+/g, ' ');
  assert.match(help, /--buffer-bytes SIZE [^[]*\[1MiB\]/);
  assert.match(help, /--buffer-messages N [^[]*\[4096\]/);
  const { inbound, packets } = buffers();
  assert.ok(inbound >= 2 * 1024 * 1024 && packets >= 2 * 4096);
});

test('a Unity game plays through ten cuts in the template of the page', { timeout: 180_000 }, async (t) => {
  const page = new Page(t);
  const engine = { heard: (_text) => {} };
  globalThis.document = { querySelector: (selector) => ({ selector }) };
  globalThis.createUnityInstance = async (canvas, { dataUrl }) => {
    assert.deepEqual([canvas.selector, dataUrl], ['#unity-canvas', 'Build/game.data']);
    const socket = new WebSocket(`ws://${globalThis.gatewayHost}/match/7`, []);
    socket.binaryType = 'arraybuffer';
    socket.onmessage = ({ data }) => engine.heard(Buffer.from(data).toString());
    Object.assign(engine, { socket, send: (text) => socket.send(Buffer.from(text)) });
  };
  t.after(() => delete globalThis.document);
  const html = replaced(recipe('The page', 'unity.md').code('html'), { '{{{ DATA_FILENAME }}}': 'game.data' });
  const world = await play(t, page, { title: 'The page', page: 'unity.md' }, html);
  page.onLeave(() => engine.socket.close());
  await tenCuts(world, flows(world, engine));
});

test('a Phaser scene plays through ten cuts, and says when the player is away', { timeout: 180_000 }, async (t) => {
  const page = new Page(t);
  const shown = [];
  let scene;
  const stub = (extra) => new Proxy(extra, { get: (target, key) => target[key] ?? (() => stub({})) });
  globalThis.Phaser = {
    AUTO: 0,
    Scene: class {
      constructor(key) {
        assert.equal(key, 'match');
        this.ships = null;
        this.add = {
          text: () => ({ setVisible: (on) => (shown.push(on), { setVisible: (now) => shown.push(now) }) }),
          image: () => ({ setPosition: (x) => scene.heard(x) }),
        };
        this.input = { keyboard: { on: (_type, run) => (this.press = (code) => run({ code })) } };
        this.events = { once: (type, run) => (this[type] = run) };
        this.scene = stub({});
      }
    },
    Game: class {
      constructor({ scene: [Scene] }) {
        scene = new Scene();
        scene.create();
        this.frames = setInterval(() => scene.update(), 16);
      }
    },
  };
  const world = await play(t, page, { title: 'The scene', page: 'phaser.md' });
  page.onLeave(() => {
    clearInterval(world.names.game.frames);
    scene.shutdown();
  });
  scene.heard = () => {};
  const up = new Flow('up', (n, text) => scene.press(`${n} ${text}`));
  const down = new Flow('down', (n, text) => world.game.send(JSON.stringify({ id: 1, x: `${n} ${text}`, y: 0 })));
  const hear = (flow, text) => {
    const [, n, rest] = /^(\d+) ([^]*)$/.exec(text) ?? [];
    flow.heard(Number(n), rest);
  };
  world.game.on('message', (data) => hear(up, JSON.parse(data.toString()).key));
  scene.heard = (text) => hear(down, text);
  await tenCuts(world, [up, down]);
  assert.equal(shown.shift(), false);
  assert.ok(shown.filter((on) => on).length >= 10);
  assert.equal(shown.at(-1), false);
});
