// A graphql-ws server, and the recipe for graphql-ws in front of it.

import assert from 'node:assert/strict';
import { GraphQLInt, GraphQLNonNull, GraphQLObjectType, GraphQLSchema, GraphQLString } from 'graphql';
import { useServer } from 'graphql-ws/use/ws';
import { WebSocketServer } from 'ws';
import { Flow } from './flow.js';
import { recipe } from './recipes.js';
import { openWorld } from './world.js';

const RECIPE = recipe('graphql-ws');

const Int = { type: new GraphQLNonNull(GraphQLInt) };
const Text = { type: new GraphQLNonNull(GraphQLString) };
const Message = new GraphQLObjectType({ name: 'Message', fields: { n: Int, filler: Text } });

/** What a subscription to `down` brings: messages as they are pushed, to the newest reader. */
class Feed {
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
  query: new GraphQLObjectType({ name: 'Query', fields: { hello: Text } }),
  mutation: new GraphQLObjectType({
    name: 'Mutation',
    fields: { up: { ...Int, args: { n: Int, filler: Text }, resolve: (_root, { n, filler }) => (game.onUp(n, filler), n) } },
  }),
  subscription: new GraphQLObjectType({
    name: 'Subscription',
    fields: { down: { type: Message, resolve: (message) => message, subscribe: () => game.feed.read() } },
  }),
});

/** The game calls `onUp` at mutations; `feed` is what the subscription `down` reads. */
function serve(server) {
  const wss = new WebSocketServer({ server, path: '/graphql' });
  const game = { wss, feed: new Feed(), onUp: (_n, _filler) => {}, serverEvents: [], opened: 0 };
  wss.once('connection', () => (game.opened = performance.now()));
  useServer({
    schema: schemaOf(game),
    onConnect: () => void game.serverEvents.push('connect'),
    onDisconnect: () => game.serverEvents.push('disconnect'),
    onClose: () => game.serverEvents.push('close'),
  }, wss);
  return { game };
}

/** The recipe's world, and a subscription that is never over. @param {any} t @param {import('./world.js').Options} options */
export async function play(t, options = {}) {
  const world = await openWorld(t, RECIPE, serve, options);
  const { game, page } = world;
  const subscribed = game.feed.nextReader();
  const { client } = await page.module(RECIPE.code('js'));
  page.onLeave(() => client.dispose());
  const clientEvents = [];
  for (const name of ['connecting', 'opened', 'connected', 'closed', 'error']) client.on(name, () => clientEvents.push(name));
  const [up, down] = flows(client, game);
  const ended = new Promise((done) => client.subscribe({ query: 'subscription { down { n filler } }' }, {
    next: ({ data }) => down.heard(data.down.n, data.down.filler),
    error: done,
    complete: () => done('complete'),
  }));
  await subscribed;
  const want = () => {
    assert.deepEqual(clientEvents, ['connecting', 'opened', 'connected']);
    assert.deepEqual(game.serverEvents, ['connect']);
  };
  return { ...world, ...game, client, clientEvents, ended, flows: [up, down], want };
}

/** Messages of a subscription downward, mutations upward. */
function flows(client, game) {
  const query = 'mutation ($n: Int!, $filler: String!) { up(n: $n, filler: $filler) }';
  const up = new Flow('up', (n, filler) => client.subscribe({ query, variables: { n, filler } }, {
    next: ({ data }) => data.up === n || up.fault(`answer ${data.up} to ${n}`),
    error: (error) => up.fault(`${n}: ${error}`),
    complete: () => {},
  }));
  game.onUp = (n, filler) => up.heard(n, filler);
  return [up, new Flow('down', (n, filler) => game.feed.push({ n, filler }))];
}
