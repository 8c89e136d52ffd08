import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { start } from './processes.js';

/** The program under test. */
const BINARY = process.env.RESEAT_BIN ?? fileURLToPath(new URL('../../../bin/reseat', import.meta.url));

/** How long the program may take to listen, in ms. */
const START_MS = 60_000;

/**
 * A running gateway on free ports of loopback.
 * @typedef {object} Gateway
 * @property {string} host host and port where clients connect
 * @property {string} admin host and port of the admin address
 * @property {() => () => void} pause
 * @property {(id: string) => Promise<any>} session what the control API says of a session
 * @property {(id: string) => Promise<string[]>} history the types of the events of a session
 * @property {(state?: string) => Promise<any[]>} sessions
 * @property {(id: string) => Promise<number>} disconnect cuts a client; the status of the answer
 */

/**
 * Starts a gateway that ends with the test. A log line of level ERROR, or one
 * that is no JSON (a panic), fails the test.
 * @param {{after: (run: () => Promise<void>) => void}} t
 * @param {string[]} flags
 * @returns {Promise<Gateway>}
 */
export async function startGateway(t, ...flags) {
  const fixed = ['--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--log-format', 'json'];
  // Every RESEAT_ name in the environment would be a setting of the program's.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('RESEAT_')));
  const { child, gone } = start(BINARY, [...flags, ...fixed], env);
  const log = readLog(child.stderr);
  t.after(async () => {
    child.kill('SIGKILL');
    await gone;
    assert.deepEqual(log.bad, [], 'the gateway logs no error');
  });
  const ended = gone.then((how) => Promise.reject(new Error(`${BINARY} ended with ${how}: ${log.bad.join(' | ')}`)));
  const late = new Promise((_, fail) =>
    setTimeout(() => fail(new Error(`${BINARY} did not listen within ${START_MS} ms`)), START_MS).unref(),
  );
  const [host, admin] = await Promise.race([Promise.all([log.clients, log.admin]), ended, late]);
  ended.catch(() => {});
  /** The process stands still until the returned function is called. */
  const pause = () => {
    child.kill('SIGSTOP');
    return () => void child.kill('SIGCONT');
  };
  return { host, admin, pause, ...control(admin) };
}

/**
 * Reads the log for where the gateway listens, and for what it must not say.
 * @param {import('node:stream').Readable} stderr
 */
function readLog(stderr) {
  /** @type {Record<string, (addr: string) => void>} */
  const waiting = {};
  /** @param {string} msg @returns {Promise<string>} */
  const address = (msg) => new Promise((done) => (waiting[msg] = done));
  const log = {
    clients: address('listen.clients'),
    admin: address('listen.admin'),
    bad: /** @type {string[]} */ ([]),
  };
  createInterface({ input: stderr }).on('line', (line) => {
    const { level, msg, addr } = entry(line);
    if (level === 'ERROR') log.bad.push(line);
    waiting[msg]?.(addr);
  });
  return log;
}

/** @param {string} line */
function entry(line) {
  try {
    return JSON.parse(line);
  } catch {
    return { level: 'ERROR' };
  }
}

/** @param {string} admin host and port of the admin address */
function control(admin) {
  const base = `http://${admin}/api/v1/sessions`;
  /** @param {string} path @param {RequestInit} [init] */
  const call = (path, init) => fetch(base + path, init);
  return {
    /** @param {string} id */
    session: async (id) => (await call(`/${id}`)).json(),
    /** @param {string} id */
    history: async (id) => (await (await call(`/${id}/history`)).json()).events.map(({ type }) => type),
    /** @param {string} [state] */
    sessions: async (state = '') => (await (await call(`?state=${state}`)).json()).sessions,
    refusals: async () => (await (await fetch(`http://${admin}/api/v1/refusals`)).json()).refusals,
    /** @param {string} id */
    disconnect: async (id) => (await call(`/${id}/disconnect`, { method: 'POST' })).status,
  };
}
