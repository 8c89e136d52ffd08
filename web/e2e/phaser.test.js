// The scene of docs/recipes.md, with the engine itself.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { WebSocketServer } from 'ws';
import { suiteBrowser } from './support/browser.js';
import { startGateway } from './support/gateway.js';
import { Relay } from './support/relay.js';
import { serve } from './support/serve.js';
import { until } from './support/until.js';

/** @typedef {{after: (run: () => void) => void}} Context */

/** @param {string} path */
const text = (path) => readFileSync(new URL(path, import.meta.url), 'utf8');

const [, ENGINES] = text('../../docs/recipes.md').split('\n## Game engines\n');
const [INTRO, DOC] = (ENGINES ?? '').split(/^### /m);
const [, COMMAND] = /```sh\nreseat (.*)\n```/.exec(INTRO) ?? [];
const [, HTML] = /```html\n([^]*?)```/.exec(DOC) ?? [];

/** A game server that keeps what it receives. @param {Context} t */
async function startGame(t) {
  const { server, host } = await serve(t);
  const game = {
    host,
    keys: /** @type {string[]} */ ([]),
    closed: 0,
    say: (/** @type {object} */ _) => {},
  };
  new WebSocketServer({ server }).on('connection', (ws) => {
    t.after(() => ws.terminate());
    game.say = (what) => ws.send(JSON.stringify(what));
    ws.on('message', (data) => game.keys.push(JSON.parse(String(data)).key));
    ws.on('close', (code) => (game.closed = code));
  });
  return game;
}

test('the version that the page names is the one that is tried', () => {
  const { devDependencies } = JSON.parse(text('package.json'));
  assert.match(DOC, new RegExp(`Tried with Phaser ${devDependencies.phaser} `));
});

describe('the Phaser page', () => {
  const browser = suiteBrowser();

  /** The page, opened, with its game server, gateway and network. @param {Context & import('node:test').TestContext} t */
  async function open(t) {
    assert.ok(COMMAND && HTML, 'the page shows a command and a page');
    const game = await startGame(t);
    let html = '';
    const site = await serve(t, (request, response) => {
      const script = request.url === '/phaser.js';
      response.setHeader('Content-Type', script ? 'text/javascript' : 'text/html; charset=utf-8');
      response.end(
        script
          ? text('node_modules/phaser/dist/phaser.min.js')
          : `<!doctype html><link rel="icon" href="data:,">${html}`,
      );
    });
    const flags = COMMAND.replace('localhost:9000', game.host).replace('localhost:5173', site.host).split(' ');
    const gateway = await startGateway(t, ...flags);
    const relay = await Relay.start(t, gateway.host);
    html = HTML.replaceAll('localhost:8080', relay.host).replace('const game =', 'window.game =');
    const tab = await browser.page(t);
    const errors = /** @type {string[]} */ ([]);
    tab.on('pageerror', (error) => errors.push(error.message));
    await tab.goto(`http://${site.host}/`);
    /** @param {string} script with `scene` */
    const ask = (script) =>
      tab.evaluate(`(() => { const scene = window.game.scene.getScene('match'); return ${script}; })()`);
    await until('the scene is in its session', () => ask('scene?.socket?.readyState === 1').catch(() => false), {
      also: () => errors,
    });
    return { game, gateway, relay, tab, errors, ask };
  }

  test('a scene goes on through cuts: ships come up to date, keys arrive', { timeout: 180_000 }, async (t) => {
    const { game, gateway, relay, tab, errors, ask } = await open(t);
    const [{ id }] = await gateway.sessions();
    for (let n = 1; n <= 3; n++) {
      game.say({ id: 'ada', x: 100 * n, y: 50 });
      await until('the ship is there', () => ask(`scene.ships.get('ada')?.x === ${100 * n}`));
      if (n === 2) relay.reset();
      else await gateway.disconnect(id);
      for (let i = 1; i <= 20; i++) game.say({ id: 'ada', x: 100 * n + i, y: 60 });
      await tab.keyboard.press(`Digit${n}`);
      await until('the ship has caught up', () => ask(`scene.ships.get('ada').x === ${100 * n + 20}`));
      await until('the key has come', () => game.keys.length === n);
    }
    assert.deepEqual(game.keys, ['Digit1', 'Digit2', 'Digit3']);
    assert.equal(await ask('scene.ships.size'), 1);
    assert.deepEqual(errors, []);
  });

  test('the banner is shown for as long as the player is away', { timeout: 180_000 }, async (t) => {
    const { relay, tab, ask } = await open(t);
    const comeBack = relay.refuse();
    await until('the banner is there', () => ask('scene.banner.visible'));
    if (process.env.PICTURE) await tab.screenshot({ path: process.env.PICTURE });
    comeBack();
    await until('the banner is gone', () => ask('!scene.banner.visible'));
  });

  test('a scene that is left ends its session', { timeout: 180_000 }, async (t) => {
    const { game, gateway, ask } = await open(t);
    await ask("(scene.scene.stop('match'), true)");
    await until('the game server gets the close', () => game.closed === 1005);
    assert.deepEqual(await gateway.sessions(), []);
  });
});
