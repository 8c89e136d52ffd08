// A graphql-ws server.

import { GraphQLInt, GraphQLNonNull, GraphQLObjectType, GraphQLSchema, GraphQLString } from 'graphql';
import { useServer } from 'graphql-ws/use/ws';
import { WebSocketServer } from 'ws';
import { openServer } from './server.js';

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
  const game = { addr: server.addr, server, feed: new Feed(), note: (_entry) => {}, onUp: (_n, _filler) => {} };
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
