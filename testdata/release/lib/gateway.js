// The released gateway in front of a game server that echoes, and greets each player.

import { once } from 'node:events';
import { join } from 'node:path';
import { WebSocketServer } from 'ws';
import { runGateway } from '../../../web/e2e/support/gateway.js';
import { unpacked } from './release.js';

/** Resolves with the gateway, and the connections of the game server as `games`. */
export async function startGateway(t) {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await once(server, 'listening');
  const games = server.clients;
  server.on('connection', (game, { url }) => {
    game.send(`welcome to ${url}`);
    game.on('message', (data, binary) => game.send(data, { binary }));
  });
  t.after(() => {
    for (const game of games) game.terminate();
    server.close();
  });
  const dir = unpacked(t);
  const gateway = await runGateway(t, ['--upstream', `ws://127.0.0.1:${server.address().port}`], { cwd: dir, binary: join(dir, 'reseat') });
  return Object.assign(gateway, { games });
}
