// A ReseatSocket that install() has put in the place of WebSocket, beside the engine's own: what a page can see is the
// same, through a gateway and without one.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { WebSocketServer } from 'ws';
import { inEngines } from '../support/engines.js';
import { startGateway } from '../support/gateway.js';
import { freePort } from '../support/port.js';
import { startSite } from '../support/site.js';

/** What differs all the same, by case, and in which engines; where none is named, in all. @type {Record<string, {why: string, engines?: string[], where?: string}>} */
const DIFFERENT = {
  'constructor: subprotocols that differ in case': {
    why: 'no engine fails them, as the standard and its tests demand',
  },
  'constructor: what is neither text nor a list of text': {
    why: 'a mistake, which is worth an error; engines make text of it',
  },
  'close: undefined and a reason': {
    why: 'the standard sends 1000; Chromium throws, Firefox and WebKit drop the reason',
  },
  'bufferedAmount after close': {
    engines: ['WebKit'],
    why: 'WebKit counts frame headers, which the standard does not',
  },
  'subprotocol: none chosen': {
    engines: ['Firefox', 'WebKit'],
    where: 'through a gateway',
    why: 'the standard fails the connection; Firefox and WebKit open',
  },
};

/** A server that does what the path says. */
async function startServer(t) {
  const chosen = (/** @type {Set<string>} */ offered, /** @type {any} */ { url }) => {
    const [, name] = /^\/protocol\/(.*)/.exec(url) ?? [];
    return name !== undefined && offered.has(name) && name;
  };
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, handleProtocols: chosen });
  const counts = /** @type {Record<string, number>} */ ({});
  server.on('connection', (ws, { url = '' }) => {
    const [, verb, code, reason] = url.split(/[/?]/);
    if (verb === 'close') return ws.close(code && Number(code), decodeURIComponent(reason ?? ''));
    if (verb === 'talk') {
      for (const text of ['1', '2', '3']) ws.send(text);
      return ws.close(1000, 'said');
    }
    if (verb === 'counted') return ws.send(String(counts[code]));
    if (verb === 'count') return ws.on('message', () => (counts[code] = (counts[code] ?? 0) + 1));
    return ws.on('message', (data, binary) => ws.send(data, { binary }));
  });
  t.after(() => {
    for (const client of server.clients) client.terminate();
    server.close();
  });
  await once(server, 'listening');
  return `127.0.0.1:${server.address().port}`;
}

inEngines('beside the native WebSocket', (engine) => {
  test('a page sees no difference', { timeout: 600_000 }, async (t) => {
    const [site, server] = await Promise.all([startSite(t), startServer(t)]);
    const gateway = await startGateway(t, '--upstream', `ws://${server}`, '--origin', site.origin);
    const page = await engine.page(t);
    const nobody = `127.0.0.1:${await freePort()}`;
    /** What a page sees of that server. @param {string} host @param {boolean} installed */
    const seen = async (host, installed) => {
      await page.goto(`${site.origin}/?gateway=${gateway.host}&nobody=${nobody}`);
      await page.waitForFunction('window.ready');
      if (installed) await page.evaluate('void install()');
      await page.evaluate(
        `void import('/shape.js').then(({ runCases }) => runCases('ws://${host}')).then((all) => (window.all = all), (error) => (window.all = { error: String(error) }))`,
      );
      await page.waitForFunction('window.all', 300_000);
      return page.evaluate('all');
    };
    const native = await seen(server, false);
    assert.ok(Object.keys(native).length > 30, Object.keys(native).join());
    for (const [where, host] of Object.entries({ 'through a gateway': gateway.host, 'without a gateway': server })) {
      const ours = await seen(host, true);
      const plain = JSON.parse(JSON.stringify(native).replaceAll(server, host));
      await t.test(where, async (t) => {
        for (const name of Object.keys(native)) {
          const { why, engines = [engine.name], where: only = where } = DIFFERENT[name] ?? {};
          const differs = why && engines.includes(engine.name) && only === where;
          if (differs) await t.test(`${name}: differs: ${why}`, () => assert.notDeepEqual(ours[name], plain[name]));
          else await t.test(name, () => assert.deepEqual(ours[name], plain[name]));
        }
      });
    }
  });
});
