// The example of docs/ci.md, before a game that numbers its messages, and before one that loses some.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { describe, test } from 'node:test';
import { WebSocketServer } from 'ws';
import { suiteBrowser } from './support/browser.js';
import { startGateway } from './support/gateway.js';
import { serve } from './support/serve.js';
import { until } from './support/until.js';

const PAGE = new URL('../../docs/ci.md', import.meta.url);

/** What the example uses of @playwright/test. */
const expect = Object.assign(
  (/** @type {any} */ got) => ({
    /** @param {Record<string, any>} want */
    toMatchObject(want) {
      for (const [key, value] of Object.entries(want)) assert.equal(got[key], value, key);
    },
  }),
  {
    poll: (/** @type {() => Promise<any>} */ read) => ({
      /** @param {number} n */
      toBeGreaterThan: (n) => until(`more than ${n}`, async () => (await read()) > n),
    }),
  },
);

/** The body of the example's test. @returns {Promise<(given: {page: any}) => Promise<void>>} */
async function example() {
  const [, spec] = /```js\n(\/\/ outage\.spec\.js\n[^`]+)```/.exec(await readFile(PAGE, 'utf8')) ?? [];
  assert.ok(spec, 'the page has the example');
  return new Promise((done) => {
    const declare = Object.assign((/** @type {string} */ _, /** @type {any} */ body) => done(body), {
      setTimeout() {},
    });
    new Function('test', 'expect', spec.replace(/^import .*$/m, ''))(declare, expect);
  });
}

/** A game behind a gateway with --dev. @param {any} t @param {import('playwright-core').Page} page */
async function play(t, page) {
  const seen = { players: 0 };
  const { server, host } = await serve(t, (_, response) => {
    response.setHeader('Content-Type', 'text/html');
    response.end(
      `<script>socket = new WebSocket('ws://' + location.host + '/play'); socket.onmessage = () => {}</script>`,
    );
  });
  new WebSocketServer({ server }).on('connection', (socket) => {
    seen.players++;
    const timer = setInterval(() => socket.send('state'), 50);
    socket.on('close', () => clearInterval(timer));
  });
  const gateway = await startGateway(t, '--dev', '--upstream', `ws://${host}`);
  const goto = page.goto.bind(page);
  page.goto = (path) => goto(`http://${gateway.host}${path}`); // as baseURL does
  return seen;
}

describe('the example for CI', () => {
  const browser = suiteBrowser();

  test('passes where nothing is noticed', { timeout: 180_000 }, async (t) => {
    const page = await browser.page(t);
    const seen = await play(t, page);
    await (
      await example()
    )({ page });
    assert.equal(seen.players, 1);
  });

  test('fails where the page gets a message twice', { timeout: 180_000 }, async (t) => {
    const page = await browser.page(t);
    await play(t, page);
    await page.addInitScript(() => {
      const { dispatchEvent } = EventTarget.prototype;
      let count = 0;
      EventTarget.prototype.dispatchEvent = function (event) {
        if (event instanceof MessageEvent && ++count === 20)
          dispatchEvent.call(this, new MessageEvent('message', { data: 'again' }));
        return dispatchEvent.call(this, event);
      };
    });
    await assert.rejects((await example())({ page }), /duplicated/);
  });
});
