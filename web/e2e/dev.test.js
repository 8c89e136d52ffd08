// --dev in front of a game that knows nothing of it: the panel, its buttons, and what they do to the game.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WebSocketServer } from 'ws';
import { suiteBrowser } from './support/browser.js';
import { startGateway } from './support/gateway.js';
import { overflowing, violations } from './support/looks.js';
import { freePort } from './support/port.js';
import { start } from './support/processes.js';
import { serve } from './support/serve.js';
import { until } from './support/until.js';

const limit = { timeout: 180_000 };

const GAME = `
  const game = (window.game = { next: 1, bad: 0, closed: 0 });
  const socket = (game.socket = new WebSocket('ws://' + location.host + '/play'));
  socket.onmessage = ({ data }) => Number(data) === game.next++ || game.bad++;
  socket.onclose = () => game.closed++;
  let inputs = 0;
  setInterval(() => socket.readyState === 1 && socket.send(String(++inputs)), 50);`;

/**
 * A game server that numbers its messages, and what it sees of its players.
 * @param {any} t @param {string} [policy] @param {string} [nonce]
 */
async function startGame(t, policy, nonce = '') {
  const seen = { players: 0, gone: 0, inputs: 0, bad: 0 };
  const { server, host } = await serve(t, (request, response) => {
    if (request.url === '/game.js') return response.setHeader('Content-Type', 'text/javascript').end(GAME);
    response.setHeader('Content-Type', 'text/html');
    if (request.url === '/frame') return response.end('<iframe src="/" width="600" height="500"></iframe>');
    if (request.url !== '/') return response.writeHead(404).end('the game has no such page');
    if (policy) response.setHeader('Content-Security-Policy', policy);
    return response.end(
      `<!doctype html><html lang="en"><head><title>game</title></head><body><main><h1>Game</h1><canvas></canvas></main><script nonce="${nonce}" src="/game.js"></script></body></html>`,
    );
  });
  new WebSocketServer({ server }).on('connection', (socket) => {
    seen.players++;
    let next = 0;
    const timer = setInterval(() => socket.send(String(++next)), 50);
    socket.on('message', (data) => Number(data) === ++seen.inputs || seen.bad++);
    socket.on('close', () => (clearInterval(timer), seen.gone++));
  });
  return { host, seen };
}

const NATS = fileURLToPath(new URL('../../bin/nats-server', import.meta.url));

/** Two nodes of a cluster, before one game server. @param {any} t @param {string} game */
async function startNodes(t, game) {
  const folder = await mkdtemp(join(tmpdir(), 'reseat-dev-'));
  const key = join(folder, 'key');
  await writeFile(key, 'k'.repeat(32), { mode: 0o600 });
  const port = await freePort();
  const nats = start(NATS, ['-a', '127.0.0.1', '-p', `${port}`, '-js', '-sd', folder], process.env);
  const flags = [
    '--dev',
    '--upstream',
    `ws://${game}`,
    '--cluster',
    `nats://127.0.0.1:${port}`,
    '--token-key-file',
    key,
  ];
  const nodes = [];
  for (const name of ['n1', 'n2'])
    nodes.push(
      await startGateway(
        t,
        ...flags,
        '--node-name',
        name,
        '--node-listen',
        '127.0.0.1:0',
        '--origin',
        'http://127.0.0.1:*',
      ),
    );
  // After the nodes, which complain of its end.
  t.after(async () => {
    nats.child.kill();
    await nats.gone;
    await rm(folder, { recursive: true });
  });
  await until('both nodes know each other', async () => {
    const lists = await Promise.all(
      nodes.map(async ({ admin }) => (await fetch(`http://${admin}/api/v1/nodes`)).json()),
    );
    return lists.every(({ nodes: known }) => known.length === 2);
  });
  return nodes;
}

/** @param {any} page */
const inPanel = (page) => {
  const panel = page.locator('reseat-dev');
  return {
    panel,
    open: () => panel.locator('.badge').click(),
    press: (/** @type {string} */ name) => panel.getByRole('button', { name, exact: true }).click(),
    part: async (/** @type {string} */ name) => (await panel.locator(`[data-part=${name}]`).textContent()) ?? '',
    story: (/** @type {string} */ text) => panel.locator('li', { hasText: text }).first().waitFor({ timeout: 30_000 }),
  };
};

describe('--dev before a game that knows nothing of it', () => {
  const own = suiteBrowser();

  /**
   * A page of the game behind a gateway with --dev, and its panel.
   * @param {any} t @param {{game?: [string, string?], look?: object, path?: string, open?: boolean}} [how] game: policy and nonce
   */
  async function visit(t, { game = /** @type {any} */ ([]), look = {}, path = '/', open = true } = {}) {
    const { host, seen } = await startGame(t, ...game);
    const gateway = await startGateway(t, '--dev', '--upstream', `ws://${host}`);
    const page = await own.page(t, look);
    await page.goto(`http://${gateway.host}${path}`);
    const inside = inPanel(page);
    if (open) await inside.open();
    return { seen, gateway, page, ...inside };
  }

  test('its connection is cut from the panel, and neither side notices', limit, async (t) => {
    const { seen, page, press, part, story, panel } = await visit(t);
    for (const cut of ['Silence 8 s', 'Reset', 'Close cleanly', 'Tunnel']) {
      const before = Number((await part('outages')).split(',')[0]);
      await press(cut);
      await story(`${cut}.`);
      let pressed = Date.now();
      await until(`an outage after ${cut}`, async () => {
        if (Date.now() - pressed > 25_000) {
          pressed = Date.now();
          await press(cut); // a busy machine may have slept through it; none lasts longer
        }
        return Number((await part('outages')).split(',')[0]) > before;
      });
    }
    await press('End all faults');
    await press('Airplane mode');
    await story('Connection lost');
    await press('Airplane mode');
    await until('the connection', async () => (await panel.locator('.state').textContent()) === 'connected');
    const inputs = seen.inputs;
    await until('inputs', () => seen.inputs > inputs);
    await until('the counts of the gateway', async () => Number(await part('replayed')) > 0);
    assert.deepEqual([await part('missed'), await part('duplicated')], ['0', '0']);
    const { bad, closed } = await page.evaluate(() => /** @type {any} */ (window).game);
    assert.deepEqual({ bad, closed, ...seen, inputs: 0 }, { bad: 0, closed: 0, players: 1, gone: 0, inputs: 0 });
  });

  test('its node is lost to this page alone, and the session goes on through another', limit, async (t) => {
    const { host, seen } = await startGame(t);
    const [one, two] = await startNodes(t, host);
    const [page, other] = [await own.page(t), await own.page(t)];
    await page.goto(`http://${one.host}/`);
    await other.goto(`http://${one.host}/`);
    const { open, press, part, story, panel } = inPanel(page);
    await open();
    await press('Lose the node');
    await story(`${one.host} is lost to this page. It connects to ${two.host}.`);
    await story('Back after');
    await press('Reset'); // at the other node
    await until('two outages', async () => (await part('outages')).startsWith('2,'));
    const replayed = await part('got');
    await until('figures of the session, which is at the first node', async () => (await part('got')) !== replayed);
    assert.deepEqual([await part('missed'), await part('duplicated')], ['0', '0']);
    assert.equal(await panel.locator('article').count(), 1);
    assert.match(await page.evaluate(() => /** @type {any} */ (window).game.socket.url), new RegExp(one.host));
    for (const each of [page, other]) {
      const { bad, closed } = await each.evaluate(() => /** @type {any} */ (window).game);
      assert.deepEqual({ bad, closed }, { bad: 0, closed: 0 });
    }
    assert.deepEqual({ players: seen.players, gone: seen.gone }, { players: 2, gone: 0 });
    assert.ok((await other.locator('reseat-dev .badge').textContent())?.endsWith('connected'));
    // By the control API, as a rehearsal does: the panel learns of it when the connection is lost.
    const mine = await other.locator('reseat-dev article').getAttribute('data-session');
    const fault = { method: 'POST', body: '{"fault":"node","for":"60s"}' };
    assert.equal((await fetch(`http://${one.admin}/api/v1/sessions/${mine}/faults`, fault)).status, 204);
    for (const text of [`It connects to ${two.host}`, 'Back after'])
      await other.locator('reseat-dev li', { hasText: text }).waitFor({ state: 'attached' });
    assert.equal(await other.evaluate(() => /** @type {any} */ (window).game.closed), 0);
    await press('Play without Reseat');
    await page.waitForFunction(() => /** @type {any} */ (window).game?.next > 1);
    await open();
    await press('Lose the node');
    await until('the lost session', async () => (await part('seats')) === '1');
  });

  // States that newer ones replaced are skipped, never missed; and the server's own ping has gone unanswered.
  test(
    'of a game that declares its states the report says what was skipped, and which keepalive it needs',
    limit,
    async (t) => {
      const { server, host } = await serve(t, (_, response) => {
        response.setHeader('Content-Type', 'text/html');
        response.end(
          `<script>socket = new WebSocket('ws://' + location.host + '/play'); socket.onmessage = ({ data }) => data === 'ping' && socket.send('pong')</script>`,
        );
      });
      new WebSocketServer({ server }).on('connection', (socket) => {
        let n = 0;
        const timers = [
          setInterval(() => socket.send(`{"type":"state","n":${++n}}`), 50),
          setInterval(() => socket.send('ping'), 1500),
        ];
        socket.on('close', () => timers.forEach(clearInterval));
      });
      const gateway = await startGateway(
        t,
        '--dev',
        '--upstream',
        `ws://${host}`,
        '--newest',
        'state=json:/type=state',
      );
      const page = await own.page(t);
      await page.goto(`http://${gateway.host}/`);
      const { open, press, part, story } = inPanel(page);
      await open();
      await until('some pings', async () => Number(await part('sent')) >= 3);
      await press('Elevator');
      await story('Back after');
      await until('skipped states', async () => / \d+ skipped$/.test(await part('replayed')));
      for (let i = 0; i < 3; i++) {
        assert.deepEqual([await part('missed'), await part('duplicated')], ['0', '0']);
        await page.waitForTimeout(1100); // the gateway is asked each second
      }
      const [{ sockets }] = (await page.evaluate(() => /** @type {any} */ (window).reseatDev.report())).runs;
      assert.ok(sockets[0].skipped > 20);
      const ping = sockets[0].advice.find(({ line }) => line === 'keepalive-reply = ["ping=>pong"]');
      assert.match(ping?.why, /^your game server sent a ping of its own \d s into the outage; set --keepalive-reply$/);
    },
  );

  test('a slow line delays messages, and ends', limit, async (t) => {
    const { press, part, panel } = await visit(t);
    await panel.getByLabel('Latency').fill('500');
    await until('a long round trip', async () => parseInt(await part('rtt')) > 700, 60_000);
    await press('End all faults');
    assert.equal(await panel.getByLabel('Latency').inputValue(), '0');
  });

  test('the panel works under a strict policy, in the keyboard alone, and at 390 px', limit, async (t) => {
    const { page, panel, story } = await visit(t, {
      game: ["default-src 'none'; script-src 'nonce-abc'; connect-src 'self'", 'abc'],
      look: { viewport: { width: 390, height: 700 }, colorScheme: 'dark' },
      open: false,
    });
    await panel.locator('.badge').focus();
    await page.keyboard.press('Enter');
    await panel.getByText('connected', { exact: true }).waitFor();
    const place = await panel.boundingBox();
    await page.keyboard.press('ArrowUp');
    assert.equal((await panel.boundingBox())?.y, (place?.y ?? 0) - 20);
    await panel.getByRole('button', { name: 'Reset' }).focus();
    await page.keyboard.press('Enter');
    await story('Back after');
    assert.deepEqual(await violations(page, 'reseat-dev'), []);
    assert.deepEqual(await overflowing(page), []);
    await page.keyboard.press('Escape');
    assert.ok(await panel.locator('.badge').evaluate((badge) => badge.getRootNode().activeElement === badge));
  });

  // The same page, the same cuts, as a plain client: the developer sees their own game lose its seat.
  test('without Reseat the same cut ends the session', limit, async (t) => {
    const { seen, page, open, press, part, story } = await visit(t);
    await press('Play without Reseat');
    await page.waitForFunction(() => /** @type {any} */ (window).game?.next > 1);
    assert.match(await page.evaluate(() => /** @type {any} */ (window).game.socket.url), /\/play$/);
    await open();
    const { gone } = seen;
    await press('Close cleanly');
    await story('Connection lost (1001');
    await until('it is counted', async () => (await part('seats')) === '1');
    await until('the game server to lose the player', () => seen.gone > gone);
    await press('Play with Reseat again');
    await open();
    await press('Reset');
    await story('Back after');
    const [download] = await Promise.all([page.waitForEvent('download'), press('Report as JSON')]);
    const { runs } = JSON.parse(await readFile(await download.path(), 'utf8'));
    const told = runs.map(
      ({ reseat, cuts, sockets: [{ sessions_lost: lost, missed, duplicated, outages_ms: outages }] }) => [
        reseat,
        cuts.map(({ name }) => name),
        lost,
        missed + duplicated,
        outages.length,
      ],
    );
    assert.deepEqual(told, [
      [true, ['Reset'], 0, 0, 1],
      [false, ['Close cleanly'], 1, 0, 0],
    ]);
    const [file] = await Promise.all([page.waitForEvent('download'), press('Report')]);
    const shown = await own.page(t);
    await shown.setContent(await readFile(await file.path(), 'utf8'));
    await shown.getByText('nothing: one connection all the time').waitFor();
    await shown.setViewportSize({ width: 180, height: 700 }); // as small as a long address makes 390
    assert.deepEqual(await overflowing(shown), []);
    assert.deepEqual(await violations(shown), []);
  });

  test('a policy that forbids the panel to ask is named', limit, async (t) => {
    const { gateway, panel } = await visit(t, { game: ["default-src 'self'; connect-src ws:"] });
    await panel.getByText(`Add: connect-src http://${gateway.host}`).waitFor();
  });

  test('the panel is above a canvas in full screen', limit, async (t) => {
    const { page, panel } = await visit(t, { open: false });
    await panel.getByText('Reseat: connected').waitFor();
    await page.evaluate(() =>
      document
        .querySelector('canvas')
        ?.addEventListener('click', ({ target }) => /** @type {any} */ (target).requestFullscreen()),
    );
    await page.locator('main canvas').click();
    await page.waitForFunction(() => document.fullscreenElement);
    await page.keyboard.press('Alt+Shift+R'); // Chromium lets nothing else be clicked
    await panel.getByRole('button', { name: 'Reset' }).click();
    await panel.locator('li', { hasText: 'Back after' }).waitFor();
    await page.keyboard.press('Alt+Shift+R');
    assert.ok(await page.evaluate(() => document.fullscreenElement && !document.querySelector('dialog')));
  });

  test('the panel can be reached whatever a page does', limit, async (t) => {
    const { page, panel, open, press } = await visit(t, { open: false });
    const height = (await panel.locator('.badge').boundingBox())?.height;
    await page.addStyleTag({
      content: '* { pointer-events: none; cursor: none; font: 40px serif; visibility: inherit }',
    });
    assert.equal((await panel.locator('.badge').boundingBox())?.height, height);
    await page.evaluate(() => (document.documentElement.innerHTML = '<body><dialog><p>Your name?</p></dialog></body>'));
    await open();
    await press('Close the panel');
    await page.evaluate(() => document.querySelector('dialog')?.showModal());
    await page.keyboard.press('Alt+Shift+R');
    await press('Reset');
    await panel.locator('li', { hasText: 'Back after' }).waitFor();
    await press('Close the panel');
    await page.evaluate(() => (document.querySelector('dialog')?.close(), document.body.requestPointerLock()));
    await page.waitForFunction(() => document.pointerLockElement);
    await page.keyboard.press('Alt+Shift+R');
    await page.waitForFunction(() => !document.pointerLockElement);
  });

  test('in a frame the panel of the page around makes way', limit, async (t) => {
    const { page } = await visit(t, { path: '/frame', open: false });
    const panel = page.frameLocator('iframe').locator('reseat-dev');
    await panel.locator('.badge').click();
    await panel.getByRole('button', { name: 'Reset' }).click();
    await panel.locator('li', { hasText: 'Back after' }).waitFor();
    assert.equal(await page.locator('reseat-dev').isVisible(), false);
  });

  test('nothing of it is there without --dev', limit, async (t) => {
    const { host } = await startGame(t);
    const gateway = await startGateway(t, '--upstream', `ws://${host}`);
    const origin = `http://${gateway.host}`;
    for (const path of ['/reseat.dev.js', '/reseat.dev/faults', '/reseat.dev/session'])
      assert.equal(await (await fetch(origin + path)).text(), 'the game has no such page');
    for (const path of ['/', '/reseat.js', '/reseat.install.js']) {
      const text = await (await fetch(origin + path, { headers: { Accept: 'text/html' } })).text();
      assert.ok(
        !text.includes('reseat.dev') && !text.includes('reseat-dev') && (path !== '/' || !text.includes('reseat')),
        path,
      );
    }
    const answer = await fetch(`http://${gateway.admin}/api/v1/sessions/x/faults`, {
      method: 'POST',
      body: '{"fault":"reset"}',
    });
    assert.equal(answer.status, 409);
  });
});
