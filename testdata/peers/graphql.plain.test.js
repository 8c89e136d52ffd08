import { test } from 'node:test';
import { createClient } from 'graphql-ws';
import { WebSocket } from 'ws';
import { sameAsDirect } from './lib/direct.js';
import { openGraphQL } from './lib/graphql.js';

// A graphql-ws client on `ws`, which knows nothing of Reseat.

/** A client whose connection's events are noted. */
function open(addr, log, name) {
  const on = {
    connecting: () => log.client.push('connecting'),
    opened: (socket) => log.client.push({ opened: socket.protocol }),
    connected: (_socket, payload) => log.client.push({ connected: payload }),
    closed: ({ code, wasClean }) => log.client.push({ closed: code, wasClean }),
  };
  return createClient({ url: `ws://${addr}/graphql`, webSocketImpl: WebSocket, connectionParams: { name }, retryAttempts: 0, lazy: false, onNonLazyError: () => {}, on });
}

/** Resolves when the server has noted an entry of that name. */
function noted(game, log, name) {
  return new Promise((done) => (game.note = (entry) => log.server.push(entry) && Object.hasOwn(entry, name) && done(undefined)));
}

/** Everything that an operation brings, as one list. */
async function all(client, query, limit = Infinity) {
  const came = [];
  for await (const answer of client.iterate({ query })) if (came.push(answer) >= limit) break;
  return came;
}

test('queries, mutations, subscriptions, and the end', { timeout: 180_000 }, async (t) => {
  const game = await openGraphQL(t);
  await sameAsDirect(t, game.addr, async (addr, log) => {
    const closed = noted(game, log, 'close');
    game.onUp = (n, filler) => log.server.push({ n, bytes: filler.length });
    const client = open(addr, log, 'ada');
    const filler = 'long '.repeat(40_000);
    for (const query of ['{ hello }', '{ fails }', `mutation { up(n: 7, filler: "${filler}") }`, 'subscription { count(to: 300) }']) {
      log.client.push(JSON.stringify(await all(client, query)));
    }
    log.client.push(await all(client, '{ nonsense }').catch(([{ message }]) => message));
    log.client.push((await all(client, 'subscription { count(to: 1000000) }', 5)).length);
    const left = new Promise((done) => client.on('closed', done));
    client.dispose();
    await Promise.all([left, closed]);
  });
});

test('a refused connection_init', { timeout: 180_000 }, async (t) => {
  const game = await openGraphQL(t);
  await sameAsDirect(t, game.addr, async (addr, log) => {
    const closed = noted(game, log, 'close');
    const client = open(addr, log, 'eve');
    await new Promise((done) => client.on('closed', done));
    await closed;
  });
});
