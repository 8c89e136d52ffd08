import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { start } from './processes.js';

/** The program under test. */
export const BINARY = process.env.RESEAT_BIN ?? fileURLToPath(new URL('../../../bin/reseat', import.meta.url));

/** How long the program may take to listen, in ms. */
const START_MS = 60_000;

/**
 * A running gateway on free ports of loopback.
 * @typedef {object} Gateway
 * @property {string} host host and port where clients connect
 * @property {string} admin host and port of the admin address
 * @property {() => () => void} pause
 * @property {() => Promise<void>} stop kills the program, as a crash would
 * @property {(id: string) => Promise<any>} session what the control API says of a session
 * @property {(id: string) => Promise<string[]>} history the types of the events of a session
 * @property {(state?: string) => Promise<any[]>} sessions
 * @property {(id: string) => Promise<number>} disconnect cuts a client; the status of the answer
 * @property {() => Promise<number>} disconnectAll cuts all attached clients that can resume; how many
 * @property {(path: string, method?: string) => Promise<void>} post has the control API do something
 * @property {(series: string) => Promise<number>} metric the value of a metric's series, 0 where there is none yet
 */

/**
 * Starts a gateway that ends with the test. A log line of level ERROR, or one
 * that is no JSON (a panic), fails the test.
 * @typedef {{after: (run: () => Promise<void>) => void}} Context
 * @param {Context} t
 * @param {string[]} flags
 */
export const startGateway = (t, ...flags) => runGateway(t, flags);

/** @param {Context} t @param {string[]} flags @param {{cwd?: string, binary?: string}} [where] @returns {Promise<Gateway>} */
export async function runGateway(t, flags, { cwd, binary = BINARY } = {}) {
  const fixed = ['--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--log-format', 'json'];
  // Every RESEAT_ name in the environment would be a setting of the program's.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('RESEAT_')));
  const { child, gone } = start(binary, [...flags, ...fixed], env, cwd);
  const log = readLog(child.stderr);
  const stop = async () => {
    child.kill('SIGKILL');
    await gone;
  };
  t.after(async () => {
    await stop();
    assert.deepEqual(log.bad, [], 'the gateway logs no error');
  });
  const ended = gone.then((how) => Promise.reject(new Error(`${binary} ended with ${how}: ${log.bad.join(' | ')}`)));
  const late = new Promise((_, fail) =>
    setTimeout(() => fail(new Error(`${binary} did not listen within ${START_MS} ms`)), START_MS).unref(),
  );
  const [host, admin] = await Promise.race([Promise.all([log.clients, log.admin]), ended, late]);
  ended.catch(() => {});
  /** The process stands still until the returned function is called. */
  const pause = () => {
    child.kill('SIGSTOP');
    return () => void child.kill('SIGCONT');
  };
  return { host, admin, pause, stop, ...control(admin) };
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
  const sessions = async (state = '') => (await (await call(`?state=${state}`)).json()).sessions;
  /** @param {string} id */
  const disconnect = async (id) => (await call(`/${id}/disconnect`, { method: 'POST' })).status;
  return {
    sessions,
    disconnect,
    disconnectAll: async () => {
      const attached = (await sessions('attached')).filter(({ resumable }) => resumable);
      for (const status of await Promise.all(attached.map(({ id }) => disconnect(id)))) assert.equal(status, 204);
      return attached.length;
    },
    /** @param {string} path */
    post: async (path, method = 'POST') => {
      const answer = await fetch(`http://${admin}/api/v1${path}`, { method });
      assert.ok(answer.ok, `${method} ${path}: status ${answer.status}`);
    },
    /** @param {string} series */
    metric: async (series) => {
      const text = await (await fetch(`http://${admin}/metrics`)).text();
      const line = text.split('\n').find((l) => l.startsWith(`${series} `));
      return line ? Number(line.slice(series.length + 1)) : 0;
    },
    /** @param {string} id */
    session: async (id) => (await call(`/${id}`)).json(),
    /** @param {string} id */
    history: async (id) => (await (await call(`/${id}/history`)).json()).events.map(({ type }) => type),
    refusals: async () => (await (await fetch(`http://${admin}/api/v1/refusals`)).json()).refusals,
  };
}
