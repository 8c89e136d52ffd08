// The world of a recipe: a game server, the gateway in front of it, a stretch of network, and a
// page that comes through that.

import { setTimeout as sleep } from 'node:timers/promises';
import { runGateway } from '../../../web/e2e/support/gateway.js';
import { Relay } from '../../../web/e2e/support/relay.js';
import { directory } from './directory.js';
import { Page } from './page.js';
import { openServer } from './server.js';

/**
 * @typedef {object} Options
 * @property {boolean} [plain] the page gets native WebSockets in place of Reseat's
 * @property {boolean} [bare] the gateway has the recipe's --upstream alone
 * @property {string[]} [flags] of the gateway, besides the recipe's
 * @property {string} [origin] of a page that another server serves
 * @property {Page} [page]
 * @property {any} [server]
 */

/**
 * @param {import('node:test').TestContext} t whose end ends all of it, the page first
 * @param {import('./recipes.js').Recipe} recipe
 * @param {(server: any) => any} serve makes the game of the server; what it returns becomes part of the world
 * @param {Options} options
 * @returns {Promise<any>}
 */
export async function openWorld(t, recipe, serve, { plain = false, bare = false, flags = [], origin, page = new Page(t, plain), server } = {}) {
  server ??= await openServer(t);
  const game = await serve(server);
  const cwd = directory(t);
  const command = [...recipe.flags(server.addr, cwd).slice(0, bare ? 2 : undefined), ...flags];
  const gateway = await runGateway(t, command, { cwd });
  const relay = await Relay.start(t, gateway.host);
  page.open(origin ?? `http://${relay.host}`, { 'localhost:8080': relay.host });
  /** The gateway crashes, and another one takes its place. */
  const restart = async () => {
    await gateway.stop();
    relay.leadTo((await runGateway(t, command, { cwd })).host);
  };
  return { page, tap: page.tap, server, gateway, relay, restart, ...game };
}

/** The network breaks, and is away until `until` resolves. @param {any} world @param {(world: any) => Promise<any>} until */
export async function outage(world, until = detached) {
  const comeUp = world.relay.goDown();
  const result = await until(world);
  comeUp();
  return result;
}

/**
 * Silence: nothing passes in these directions, not even the end of a connection, until the returned function is called. A new
 * connection needs both, and passes nothing until then.
 * @param {Relay} relay
 * @param {('up' | 'down')[]} ways
 */
export function silence(relay, ways) {
  const ends = [relay.hold(ways), relay.holdNew()];
  return () => ends.forEach((end) => end());
}

/** Some socket of the page has noticed that it has no connection. */
export const detached = ({ tap }) => tap.until(() => !tap.attached);

/** Resolves when the condition holds, or after 30 seconds: what should hold is then the caller's to check. @param {() => any} condition */
export async function eventually(condition) {
  for (const giveUp = Date.now() + 30_000; !(await condition()) && Date.now() < giveUp; ) await sleep(10);
}

/** Resolves with the arguments of the next such event. @param {any} emitter @param {string} name @param {(...args: any[]) => boolean} wanted */
export function event(emitter, name, wanted = () => true) {
  const off = (emitter.off ?? emitter.removeListener).bind(emitter);
  return new Promise((done) => {
    const heard = (...args) => {
      if (!wanted(...args)) return;
      off(name, heard);
      done(args);
    };
    emitter.on(name, heard);
  });
}
