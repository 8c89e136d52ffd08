// The receiver of docs/webhooks.md, run as it stands there: the gateway posts to it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { join } from 'node:path';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { directory } from './lib/directory.js';
import { startGateway } from '../../web/e2e/support/gateway.js';
import { openServer } from './lib/server.js';

const page = readFileSync(new URL('../../docs/webhooks.md', import.meta.url), 'utf8');
const [, code] = page.match(/^```js\n([^]*?)^```$/m);

/** Runs the receiver of the page on a port of its own. @param {import('node:test').TestContext} t */
async function startReceiver(t) {
  const dir = directory(t);
  assert.match(code, /server\.listen\(4000\);/);
  writeFileSync(join(dir, 'receiver.mjs'), code.replace('server.listen(4000);', "server.listen(0, '127.0.0.1', () => console.log(server.address().port));"));
  writeFileSync(join(dir, 'webhook-secret'), `whsec_${Buffer.alloc(32, 7).toString('base64')}\n`);
  const child = spawn(process.execPath, ['receiver.mjs'], { cwd: dir, stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => (await lines.next()).value;
  const port = await next();
  return { url: `http://127.0.0.1:${port}/events`, secret: join(dir, 'webhook-secret'), next };
}

test('the receiver of the page verifies what the gateway posts, in order', { timeout: 60_000 }, async (t) => {
  const game = await openServer(t);
  new WebSocketServer({ server: game });
  const receiver = await startReceiver(t);
  const gateway = await startGateway(t, '--upstream', `ws://${game.addr}`, '--webhook', receiver.url, '--webhook-secret-file', receiver.secret);
  const player = new WebSocket(`ws://${gateway.host}/`);
  await once(player, 'open');
  const [type, session] = (await receiver.next()).split(' ');
  assert.equal(type, 'session.created');
  player.close(1000);
  assert.equal(await receiver.next(), `session.ended ${session} bye`);
});

test('the receiver of the page refuses what is signed by another', { timeout: 60_000 }, async (t) => {
  const receiver = await startReceiver(t);
  const answer = await fetch(receiver.url, {
    method: 'POST',
    body: '{"type":"session.ended"}',
    headers: { 'webhook-id': 'evt_1', 'webhook-timestamp': String(Math.floor(Date.now() / 1000)), 'webhook-signature': `v1,${Buffer.alloc(32).toString('base64')}` },
  });
  assert.equal(answer.status, 401);
});
