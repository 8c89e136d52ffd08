// A graphql-ws server, and the recipe for graphql-ws in front of it.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GraphQLInt, GraphQLNonNull, GraphQLObjectType, GraphQLSchema, GraphQLString } from 'graphql';
import { useServer } from 'graphql-ws/use/ws';
import { WebSocketServer } from 'ws';
import { Flow } from './flow.js';
import { startGateway } from './gateway.js';
import { Page } from './page.js';
import { recipe } from './recipes.js';
import { Relay } from './relay.js';
import { openServer } from './server.js';

const RECIPE = recipe('graphql-ws');

const Int = { type: new GraphQLNonNull(GraphQLInt) };
const Text = { type: new GraphQLNonNull(GraphQLString) };
const Message = new GraphQLObjectType({ name: 'Message', fields: { n: Int, filler: Text } });

/** What a subscription to `down` brings: messages as they are pushed, to the newest reader. */
export class Feed {
  #queue = [];
  #reader = 0;
  #wake = () => {};
  #read = () => {};

  /** Resolves at the next subscription. */
  nextReader() {
    return new Promise((done) => (this.#read = () => done(undefined)));
  }

  push(message) {
    this.#queue.push(message);
    this.#wake();
  }

  async *read() {
    const me = ++this.#reader;
    this.#wake(); // an older reader sees that it is one
    this.#read();
    while (me === this.#reader) {
      while (this.#queue.length > 0) yield this.#queue.shift();
      await new Promise((done) => (this.#wake = () => done(undefined)));
    }
  }
}

/** @param {any} game */
const schemaOf = (game) => new GraphQLSchema({
  query: new GraphQLObjectType({
    name: 'Query',
    fields: {
      hello: { ...Text, resolve: () => 'world' },
      fails: { type: GraphQLString, resolve: () => Promise.reject(new Error('on purpose')) },
    },
  }),
  mutation: new GraphQLObjectType({
    name: 'Mutation',
    fields: { up: { ...Int, args: { n: Int, filler: Text }, resolve: (_root, { n, filler }) => (game.onUp(n, filler), n) } },
  }),
  subscription: new GraphQLObjectType({
    name: 'Subscription',
    fields: {
      down: { type: Message, resolve: (message) => message, subscribe: () => game.feed.read() },
      count: { ...Int, args: { to: Int }, resolve: (n) => n, subscribe: (_root, { to }) => count(to) },
    },
  }),
});

/** Counts up, as long as anybody listens. @param {number} to */
async function* count(to) {
  for (let n = 1; n <= to; n++) {
    yield n;
    await new Promise(setImmediate);
  }
}

/**
 * Starts the server. `game.note` hears of connections, `game.onUp` of mutations; `game.feed`
 * is what the subscription `down` reads.
 *
 * @param {import('node:test').TestContext} t
 */
export async function openGraphQL(t) {
  const server = await openServer(t);
  const wss = new WebSocketServer({ server, path: '/graphql' });
  const game = { addr: server.addr, server, wss, feed: new Feed(), note: (_entry) => {}, onUp: (_n, _filler) => {} };
  useServer({
    schema: schemaOf(game),
    onConnect: ({ connectionParams }) => {
      game.note({ connect: connectionParams ?? 'no params' });
      return connectionParams?.name === 'eve' ? false : { welcome: true };
    },
    onDisconnect: (_ctx, code, reason) => game.note({ disconnect: code, reason }),
    onClose: (_ctx, code) => game.note({ close: code }),
  }, wss);
  return game;
}

/** The recipe's server, gateway and page, and a subscription that is never over. */
export async function play(t, { withKey = true } = {}) {
  const page = new Page(t);
  const cwd = mkdtempSync(join(tmpdir(), 'reseat-'));
  t.after(() => rmSync(cwd, { recursive: true }));
  const game = await openGraphQL(t);
  const flags = RECIPE.flags({ 'localhost:4000': game.addr }, cwd).slice(0, withKey ? undefined : -2);
  const gateway = await startGateway(t, flags, cwd);
  const relay = await Relay.open(t, gateway.addr);
  page.open(`http://${relay.addr}`);
  const serverEvents = [];
  game.note = (entry) => serverEvents.push(Object.keys(entry)[0]);
  const subscribed = game.feed.nextReader();
  const { client } = await page.module(RECIPE.code('js'));
  const clientEvents = [];
  for (const event of ['connecting', 'opened', 'connected', 'closed', 'error']) client.on(event, () => clientEvents.push(event));
  const ended = new Promise((done) => client.subscribe({ query: 'subscription { down { n filler } }' }, {
    next: ({ data }) => world.onDown(data.down),
    error: done,
    complete: () => done('complete'),
  }));
  const world = { page, tap: page.tap, cwd, flags, game, gateway, relay, client, clientEvents, serverEvents, ended, onDown: (_message) => {} };
  page.onLeave(() => client.dispose());
  await subscribed;
  return world;
}

/** Messages of a subscription downward, mutations upward. */
export function flows(world) {
  const query = 'mutation ($n: Int!, $filler: String!) { up(n: $n, filler: $filler) }';
  const complete = () => {};
  const up = new Flow('up', (n, filler) => world.client.subscribe({ query, variables: { n, filler } }, {
    next: ({ data }) => data.up === n || up.fault(`answer ${data.up} to ${n}`),
    error: (error) => up.fault(`${n}: ${error}`),
    complete,
  }));
  const down = new Flow('down', (n, filler) => world.game.feed.push({ n, filler }));
  world.game.onUp = (n, filler) => up.heard(n, filler);
  world.onDown = ({ n, filler }) => down.heard(n, filler);
  return [up, down];
}
