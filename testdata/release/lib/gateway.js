// The released gateway in front of a game server that echoes, and greets each player.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { WebSocketServer } from 'ws';
import { unpacked } from './release.js';

/**
 * @param {import('node:test').TestContext} t
 * @returns {Promise<{ addr: string, admin: string, games: Set<any>, disconnect: () => Promise<void> }>}
 */
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
  const flags = ['--upstream', `ws://127.0.0.1:${server.address().port}`, '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--log-format', 'json'];
  const child = spawn(join(unpacked(t), 'reseat'), flags, { stdio: ['ignore', 'ignore', 'pipe'], env: {} });
  t.after(() => child.kill('SIGKILL'));
  const found = {};
  for await (const line of createInterface({ input: child.stderr })) {
    const { msg, addr } = JSON.parse(line);
    found[msg] = addr;
    if (found['listen.clients'] && found['listen.admin']) break;
  }
  child.stderr.resume();
  const admin = `http://${found['listen.admin']}`;
  const disconnect = async () => {
    const { sessions } = await (await fetch(`${admin}/api/v1/sessions?state=attached`)).json();
    for (const { id } of sessions) await fetch(`${admin}/api/v1/sessions/${id}/disconnect`, { method: 'POST' });
  };
  return { addr: found['listen.clients'], admin, games, disconnect };
}
