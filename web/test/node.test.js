import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { install } from '../reseat.js';
import { attached, scriptedTransport, settle } from './helpers.js';

// What can be seen in Node alone: the other tests that need no servers also run in browsers (e2e/engines.test.js).

test('an exception in a listener breaks no counting', () => {
  // In a process of its own: Node reports such an exception as uncaught.
  const script = `
    import { attached } from './test/helpers.js';
    const { socket, last, log } = attached();
    let thrown = 0;
    process.on('uncaughtException', () => thrown++);
    socket.onmessage = () => { throw new Error('handler'); };
    socket.addEventListener('message', () => { throw new Error('listener'); });
    for (let i = 0; i < 33; i++) last().receive('x');
    process.on('exit', () => console.log(JSON.stringify({ sent: last().take(), heard: log.length, thrown })));`;
  const web = fileURLToPath(new URL('..', import.meta.url));
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], { cwd: web, encoding: 'utf8' });
  assert.deepEqual(JSON.parse(output), { sent: ['^ack 32'], heard: 33, thrown: 66 });
});

test('a socket that has ended leaves no listener behind', () => {
  const target = new EventTarget();
  const types = ['freeze', 'online', 'pagehide', 'pageshow', 'resume', 'visibilitychange'];
  const heard = () => types.filter((type) => getEventListeners(target, type).length > 0);
  const { socket, last } = attached({ runtime: { window: target, document: target } });
  assert.deepEqual(heard(), types);
  socket.close();
  last().end(1000);
  assert.deepEqual(heard(), []);
});

test('buffers of another realm, shared memory and empty messages are sent as bytes', async () => {
  const { socket, last } = attached();
  const { runInNewContext } = await import('node:vm');
  socket.send(runInNewContext('new Uint8Array([1, 2]).buffer'));
  socket.send(new Uint8Array(new SharedArrayBuffer(2)));
  socket.send(new ArrayBuffer(0));
  socket.send('');
  const sent = last().take();
  assert.deepEqual(
    sent.map((data) => data.byteLength ?? data),
    [2, 2, 0, ''],
  );
  assert.ok(sent.slice(0, 3).every((data) => data instanceof ArrayBuffer));
});

test('importing touches no window and keeps nothing running', () => {
  const script = `
    const touched = [];
    for (const name of ['window', 'document', 'navigator', 'location', 'localStorage', 'sessionStorage', 'addEventListener', 'setTimeout', 'setInterval', 'BroadcastChannel']) {
      Object.defineProperty(globalThis, name, { configurable: true, get() { touched.push(name); return undefined; } });
    }
    await import('./reseat.js');
    console.log(touched.join());`;
  const web = fileURLToPath(new URL('..', import.meta.url));
  assert.equal(
    execFileSync(process.execPath, ['--input-type=module', '-e', script], { cwd: web, encoding: 'utf8' }).trim(),
    '',
  );
});

test('it runs in a worker', async () => {
  const script = `
    import { parentPort } from 'node:worker_threads';
    import { attached } from ${JSON.stringify(new URL('helpers.js', import.meta.url).href)};
    const { socket, last, log } = attached({ runtime: { window: globalThis, document: undefined, navigator: undefined } });
    last().receive('x');
    parentPort.postMessage([socket.readyState, ...log]);`;
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(script)}`));
  const answer = await new Promise((done, fail) => worker.once('message', done).once('error', fail));
  assert.deepEqual(answer, [1, 'x']);
  await worker.terminate();
});

test('in Node install() says that libraries which import ws have another WebSocket', async (t) => {
  const { mock } = t.mock.method(console, 'warn', () => {});
  const uninstall = install({ WebSocket: scriptedTransport(), runtime: { window: undefined, document: undefined } });
  t.after(uninstall);
  await import('../client/page.js');
  await settle();
  assert.match(mock.calls[0].arguments[0], /import 'ws'.*ReseatSocket/);
});
