import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test as untimed } from 'node:test';
import { BINARY } from '../../web/e2e/support/gateway.js';
import { tenCuts } from './lib/cuts.js';
import { Flow, filler } from './lib/flow.js';
import { recipe, replaced } from './lib/recipes.js';
import { detached, openWorld, outage } from './lib/world.js';
import { PAGE, openGame } from './lib/ws.js';

// The recipes for game engines. The engines are not at hand: stand-ins use the page's
// WebSocket as their own code does.

const test = (name, run) => untimed(name, { timeout: 180_000 }, run);

/**
 * The world of an engine's recipe, whose HTML is run once `stub` has put the engine into the globals.
 * @param {string} title of the recipe
 * @param {Record<string, string>} placeholders what the engine's export replaces in the HTML
 * @param {(url: string) => any} stub gets the address of the game's WebSocket
 */
async function play(t, title, placeholders, stub) {
  const world = await openWorld(t, recipe('Game engines'), openGame, { origin: PAGE });
  stub(`ws://${world.relay.host}/match/7`);
  const names = await world.page.run(replaced(recipe(title).code('html'), placeholders));
  const [game] = await world.joined;
  await world.tap.until(() => world.tap.events.includes('open'));
  return { ...world, game, names, want: () => {} };
}

/** Traffic both ways: `say` sends for the engine, and what `send` sends for the game comes to `engine.heard`. */
function flows(game, engine, say = (text) => engine.send(text), send = (text) => game.send(Buffer.from(text)), decode = String) {
  const up = new Flow('up', (_n, _filler, text) => say(text));
  const down = new Flow('down', (_n, _filler, text) => send(text));
  game.on('message', (data) => up.read(decode(data)));
  engine.heard = (text) => down.read(text);
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
  const code = recipe('Godot').code('gdscript');
  const value = (name) => {
    const [, product] = new RegExp(`socket\\.${name} = ([\\d *]+)`).exec(code) ?? [];
    return product.split('*').reduce((n, factor) => n * Number(factor), 1);
  };
  return { inbound: value('inbound_buffer_size'), packets: value('max_queued_packets'), outbound: value('outbound_buffer_size') };
}

/** The shell of the page with a Godot game whose peer has these queues. */
async function playGodot(t, queues) {
  let peer;
  const world = await play(t, 'Godot', { $GODOT_CONFIG: '{ canvasResizePolicy: 2 }' }, (url) => {
    globalThis.Engine = class {
      constructor(config) {
        assert.deepEqual(config, { canvasResizePolicy: 2 });
      }

      startGame() {
        peer = new GodotPeer(url, queues);
      }
    };
  });
  world.page.onLeave(() => peer.close());
  return { ...world, peer };
}

test('a Godot game plays through ten cuts in the shell of the page', async (t) => {
  const world = await playGodot(t, buffers());
  await tenCuts({ ...world, flows: flows(world.game, world.peer) });
  assert.equal(world.peer.dropped, 0);
});

for (const [whose, queues, lost] of [['the page', buffers(), false], ['Godot itself', { inbound: 65_535, packets: 4096, outbound: 65_535 }, true]]) {
  test(`the queues of ${whose} ${lost ? "don't hold" : 'hold'} a whole replay`, async (t) => {
    const { peer, game, tap, ...world } = await playGodot(t, queues);
    clearInterval(peer.frames); // one frame that takes long, as at a change of scene
    await outage({ tap, ...world }, async () => {
      await detached({ tap });
      for (let n = 0; n < 900; n++) game.send(Buffer.alloc(1000, filler(7)));
    });
    await tap.until(() => [...tap.came.values()].flat().length === 900);
    assert.equal(peer.dropped > 0, lost, `${peer.dropped} dropped`);
  });
}

test('the queues of the page are as large as the buffers of the gateway', () => {
  const help = execFileSync(BINARY, ['--help'], { encoding: 'utf8' }).replace(/\s+/g, ' ');
  assert.match(help, /--buffer-bytes SIZE [^[]*\[1MiB\]/);
  assert.match(help, /--buffer-messages N [^[]*\[4096\]/);
  const { inbound, packets } = buffers();
  assert.ok(inbound >= 2 * 1024 * 1024 && packets >= 2 * 4096);
});

test('a Unity game plays through ten cuts in the template of the page', async (t) => {
  const engine = {};
  t.after(() => delete globalThis.document);
  const world = await play(t, 'Unity', { '{{{ DATA_FILENAME }}}': 'game.data' }, (url) => {
    globalThis.document = { querySelector: (selector) => ({ selector }) };
    globalThis.createUnityInstance = async (canvas, { dataUrl }) => {
      assert.deepEqual([canvas.selector, dataUrl], ['#unity-canvas', 'Build/game.data']);
      const socket = new WebSocket(url, []);
      socket.binaryType = 'arraybuffer';
      socket.onmessage = ({ data }) => engine.heard(Buffer.from(data).toString());
      Object.assign(engine, { socket, send: (text) => socket.send(Buffer.from(text)) });
    };
  });
  world.page.onLeave(() => engine.socket.close());
  await tenCuts({ ...world, flows: flows(world.game, engine) });
});

test('a Phaser scene plays through ten cuts, and says when the player is away', async (t) => {
  const shown = [];
  let scene;
  const label = { setVisible: (on) => (shown.push(on), label) };
  const stub = (extra) => new Proxy(extra, { get: (target, key) => target[key] ?? (() => stub({})) });
  const world = await play(t, 'Phaser', {}, () => {
    globalThis.Phaser = {
      AUTO: 0,
      Scene: class {
        constructor(key) {
          assert.equal(key, 'match');
          this.ships = null;
          this.add = { text: () => label, image: () => ({ setPosition: (x) => scene.heard(x) }) };
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
  });
  world.page.onLeave(() => {
    clearInterval(world.names.game.frames);
    scene.shutdown();
  });
  const send = (text) => world.game.send(JSON.stringify({ id: 1, x: text, y: 0 }));
  await tenCuts({ ...world, flows: flows(world.game, scene, (text) => scene.press(text), send, (data) => JSON.parse(data.toString()).key) });
  assert.equal(shown.shift(), false);
  assert.ok(shown.filter((on) => on).length >= 10, `shown: ${shown}`);
  assert.equal(shown.at(-1), false);
});
