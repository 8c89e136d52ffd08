import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WebSocket, WebSocketServer } from 'ws';
import { ReseatSocket } from '../reseat.js';
import { record } from './helpers.js';
import { Gateway } from './model.js';

// Over real connections, with the ws package as the transport.

/** A server on loopback that the test's end closes. */
async function serve(t, options, onConnection) {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, ...options });
  server.on('connection', onConnection);
  t.after(() => {
    for (const client of server.clients) client.terminate();
    server.close();
  });
  await once(server, 'listening');
  return Object.assign(server, { url: `ws://127.0.0.1:${server.address().port}/` });
}

/** The model of a gateway behind a server. */
function modelGateway() {
  const clock = {
    setTimeout: (run, ms) => setTimeout(run, ms).unref(),
    get mono() {
      return performance.now();
    },
  };
  const gateway = new Gateway(clock, () => 0.5);
  const accept = (ws, request) => {
    const wire = {
      down: (data) => data === 'the 101' || ws.send(data),
      closeDown: (code, reason) => ws.close(code, reason),
      forget: () => {},
      onMessage: () => {},
      onEnd: () => {},
    };
    ws.on('message', (data, binary) => wire.onMessage(binary ? Uint8Array.from(data).buffer : data.toString()));
    ws.on('close', () => wire.onEnd());
    gateway.accept(wire, request.headers['sec-websocket-protocol'].split(/, ?/));
  };
  return { gateway, accept };
}

const told = (socket, type) => new Promise((done) => socket.addEventListener(type, done, { once: true }));
const text = (data) => (typeof data === 'string' ? data : `binary ${Buffer.from(data)}`);

test('a session survives that its connections are cut', async (t) => {
  const { gateway, accept } = modelGateway();
  const server = await serve(t, { handleProtocols: () => 'reseat.v1' }, accept);
  const socket = new ReseatSocket(server.url, ['chat.v2'], { WebSocket });
  socket.binaryType = 'arraybuffer';
  const log = record(socket);
  await told(socket, 'open');
  for (let round = 0; round < 5; round++) {
    socket.send(`up ${round}`);
    socket.send(new TextEncoder().encode(`up ${round}`));
    gateway.send(`\x10down ${round}`);
    for (const client of server.clients) client.terminate();
    socket.send(new Blob([`blob ${round}`]));
    await told(socket, 'replayed');
  }
  const closed = told(socket, 'close');
  socket.close(4001, 'done');
  const { code, wasClean } = await closed;
  assert.deepEqual([code, wasClean], [4001, true]);
  assert.deepEqual(
    gateway.upstream.map(text),
    [0, 1, 2, 3, 4].flatMap((n) => [`up ${n}`, `binary up ${n}`, `binary blob ${n}`]),
  );
  assert.deepEqual(
    log.filter((line) => String(line).includes('down')),
    [0, 1, 2, 3, 4].map((n) => `\x10down ${n}`),
  );
  assert.deepEqual(gateway.violations, []);
  assert.deepEqual(gateway.bye, { code: 4001, reason: 'done' });
  assert.equal(socket.bufferedAmount, 0);
});

// The first moment of a socket without a gateway, with the native socket beside.

/** How servers answer a handshake: which subprotocol they choose, or that they refuse it. */
const SERVERS = {
  "chooses the application's subprotocol": { handleProtocols: (offered) => offered.has('chat.v1') && 'chat.v1' },
  'chooses reseat.v1 where it is offered': {
    handleProtocols: (offered) => (offered.has('reseat.v1') ? 'reseat.v1' : offered.has('chat.v1') && 'chat.v1'),
  },
  'chooses none': { handleProtocols: () => false },
  'refuses with 400 what it does not know': {
    verifyClient: ({ req }, done) => done(!/reseat/.test(req.headers['sec-websocket-protocol'] ?? ''), 400),
  },
  'refuses with 400': { verifyClient: (_, done) => done(false, 400) },
  'answers late': {
    verifyClient: (_, done) => setTimeout(() => done(true), 200),
    handleProtocols: (offered) => offered.has('chat.v1') && 'chat.v1',
  },
};

/** What a page sees of a socket from its constructor to the close that follows the echo. */
async function seen(Socket, url, protocols) {
  const socket = Reflect.construct(Socket, [url, protocols, { WebSocket }]);
  const log = [];
  const note = (type) =>
    log.push([type, socket.readyState, socket.protocol, socket.extensions, socket.bufferedAmount, socket.url]);
  socket.binaryType = 'arraybuffer';
  socket.addEventListener('open', () => {
    note('open');
    socket.send('from the listener of open');
    socket.send(new Uint8Array([1, 2]));
  });
  let left = 2;
  socket.addEventListener('message', ({ data }) => {
    log.push(['message', typeof data === 'string' ? data : data.byteLength]);
    if (--left === 0) socket.close(3001, 'done');
  });
  socket.addEventListener('error', () => log.push(['error'])); // whose readyState is CLOSED in browsers, CLOSING in ws
  await new Promise((done) =>
    socket.addEventListener('close', ({ code, reason, wasClean }) => {
      log.push(['close', code, reason, wasClean, socket.readyState]);
      done();
    }),
  );
  return log;
}

for (const [name, options] of Object.entries(SERVERS)) {
  for (const protocols of [[], ['chat.v1']]) {
    test(`a page sees what it sees of a native socket: a server that ${name}, ${protocols.length} subprotocols`, async (t) => {
      const { url } = await serve(t, options, (ws) => ws.on('message', (data, binary) => ws.send(data, { binary })));
      const native = await seen(WebSocket, url, protocols);
      for (const entry of native) if (entry[0] === 'open') entry[3] = ''; // ws offers compression by itself
      const ours = await seen(ReseatSocket, url, protocols);
      for (const entry of ours) if (entry[0] === 'open') entry[3] = '';
      assert.deepEqual(ours, native);
    });
  }
}

test('a closed socket keeps no process alive, and no transport throws', () => {
  const script = `
    import { WebSocket, WebSocketServer } from 'ws';
    import { ReseatSocket } from './reseat.js';
    const server = new WebSocketServer({ host: '127.0.0.1', port: 0, handleProtocols: () => 'reseat.v1' });
    server.on('listening', () => {
      const url = 'ws://127.0.0.1:' + server.address().port;
      const socket = new ReseatSocket(url, [], { WebSocket });
      socket.onopen = () => socket.close();
      socket.onclose = ({ code }) => { console.log(code); server.close(); };
      new ReseatSocket(url, [], { WebSocket }).close();
    });
    server.on('connection', (ws) => {
      ws.send('\\x10hello {"session":"s","token":"t"}');
      ws.on('message', (data) => String(data).startsWith('\\x10bye') && ws.close(1000));
    });`;
  const web = fileURLToPath(new URL('..', import.meta.url));
  assert.equal(
    execFileSync(process.execPath, ['--input-type=module', '-e', script], {
      cwd: web,
      encoding: 'utf8',
      timeout: 20_000,
    }).trim(),
    '1005',
  );
});
