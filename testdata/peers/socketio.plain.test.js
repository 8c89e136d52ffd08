import { test } from 'node:test';
import { Server } from 'socket.io';
import { io as connect } from 'socket.io-client';
import { sameAsDirect } from './lib/direct.js';
import { openServer } from './lib/server.js';

// Socket.IO's own client for Node, which knows nothing of Reseat, by each of its transports.

const TRANSPORTS = {
  'default transports': undefined,
  'websocket alone': ['websocket'],
  'polling alone': ['polling'],
};

/** A server with a lobby that anybody may join, and a room that asks for a name. */
async function openGame(t) {
  const server = await openServer(t);
  const io = new Server(server);
  const game = { addr: server.addr, log: { server: [] }, left: () => {} };
  io.of('/guarded').use((socket, next) => next(socket.handshake.auth.name === 'ada' ? undefined : Object.assign(new Error('no'), { data: { code: 7 } })));
  for (const space of [io, io.of('/guarded')]) space.on('connection', (socket) => serve(game, space, socket));
  io.engine.on('connection', (raw) => raw.on('close', () => game.left()));
  return game;
}

function serve(game, space, socket) {
  const note = (entry) => game.log.server.push(entry);
  note({ connection: space.name ?? '/', auth: socket.handshake.auth, query: socket.handshake.query.room });
  socket.on('say', (n, data, answer) => {
    note({ say: n, data: String(data), binary: Buffer.isBuffer(data) });
    socket.emit('said', n, data);
    answer(n, { nested: [data] });
  });
  socket.on('join', async (room, done) => {
    await socket.join(room);
    done();
  });
  socket.on('shout', (room) => space.to(room).emit('heard', room));
  socket.on('throw me out', () => socket.disconnect(true));
  socket.on('disconnect', (reason) => {
    note({ disconnect: reason });
  });
}

/** Opens a socket whose events are noted in their order. */
function open(addr, path, log, options) {
  const socket = connect(`http://${addr}${path}`, { forceNew: true, reconnection: false, ...options });
  socket.on('connect', () => log.client.push('connect'));
  socket.on('connect_error', (error) => log.client.push({ refused: error.message, data: error.data }));
  socket.on('said', (n, data) => log.client.push({ said: n, data: String(data), binary: Buffer.isBuffer(data) }));
  socket.on('heard', (room) => log.client.push({ heard: room }));
  socket.on('disconnect', (reason) => log.client.push({ disconnect: reason }));
  return socket;
}

const event = (emitter, name) => new Promise((done) => emitter.once(name, done));

/** Resolves when the socket is on its last transport. */
async function settled(socket, transports) {
  await event(socket, 'connect');
  if (!transports && socket.io.engine.transport.name === 'polling') await event(socket.io.engine, 'upgrade');
  return socket.io.engine.transport.name;
}

/** Talks, and leaves in the given way; resolves when both sides know of it. */
async function visit(game, addr, log, transports, leave) {
  game.log = log;
  const left = new Promise((done) => (game.left = done));
  const socket = open(addr, '/', log, { transports, auth: { name: 'ada' }, query: { room: '7 & 8' } });
  const gone = event(socket, 'disconnect');
  const talk = event(socket, 'connect').then(() => conversation(socket, log)); // begins before the upgrade
  const transport = await settled(socket, transports);
  await talk;
  log.client.push({ transport });
  await conversation(socket, log);
  leave(socket);
  await Promise.all([gone, left]);
}

async function conversation(socket, log) {
  for (let n = 1; n <= 20; n++) {
    const data = n % 2 ? 'text '.repeat(n * 500) : Buffer.alloc(n * 1000, n);
    log.client.push({ answer: await socket.emitWithAck('say', n, data).catch(String) });
  }
  await socket.emitWithAck('join', 'red');
  const heard = event(socket, 'heard');
  socket.emit('shout', 'red');
  await heard;
}

for (const [name, transports] of Object.entries(TRANSPORTS)) {
  test(`a visit by ${name}`, { timeout: 180_000 }, async (t) => {
    const game = await openGame(t);
    const leaves = { 'the client goes': (socket) => socket.disconnect(), 'the server throws it out': (socket) => socket.emit('throw me out') };
    for (const [how, leave] of Object.entries(leaves)) {
      await t.test(how, (t) => sameAsDirect(t, game.addr, (addr, log) => visit(game, addr, log, transports, leave)));
    }
  });

  test(`a refusal by a namespace's middleware reaches the client by ${name}`, { timeout: 180_000 }, async (t) => {
    const game = await openGame(t);
    await sameAsDirect(t, game.addr, async (addr, log) => {
      const left = new Promise((done) => (game.left = done));
      const socket = open(addr, '/guarded', log, { transports, auth: { name: 'eve' } });
      await event(socket, 'connect_error');
      log.server.push('nobody came in');
      socket.disconnect();
      socket.io.engine.close();
      await left;
    });
  });
}
