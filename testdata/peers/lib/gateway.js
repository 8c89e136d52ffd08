// A gateway as an operator starts one: the program itself, on ports of its own choice.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** The program under test. */
export const BIN = process.env.RESEAT_BIN ?? fileURLToPath(new URL('../../../bin/reseat', import.meta.url));

const CLIENTS = 'listen.clients';
const ADMIN = 'listen.admin';

/**
 * Starts a gateway with the given flags, which name its upstream, and ends it with the
 * test. Resolves when both of its ports are open; rejects with what the program wrote
 * where it leaves before that.
 *
 * @param {import('node:test').TestContext} t
 * @param {string[]} flags
 * @param {string} [cwd] where it runs
 * @returns {Promise<Gateway>}
 */
export async function startGateway(t, flags, cwd) {
  const child = spawn(BIN, [...flags, '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--log-format', 'json'], {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: {},
    cwd,
  });
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  child.once('exit', () => process.off('exit', kill));
  const { [CLIENTS]: clients, [ADMIN]: admin } = await addresses(child);
  const gateway = new Gateway(child, clients, admin);
  t.after(() => gateway.stop());
  return gateway;
}

/**
 * Reads the log until it has named both addresses, and goes on reading so that the program
 * never waits for its log.
 *
 * @param {import('node:child_process').ChildProcess} child
 * @returns {Promise<Record<string, string>>} addresses by the log key
 */
function addresses(child) {
  return new Promise((resolve, reject) => {
    const found = {};
    const lines = [];
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`reseat left with status ${code}: ${lines.join('\n')}`)));
    createInterface({ input: child.stderr }).on('line', (line) => {
      if (found[CLIENTS] && found[ADMIN]) return;
      lines.push(line);
      const { msg, addr } = line.startsWith('{') ? JSON.parse(line) : {};
      if (addr) found[msg] = addr;
      if (found[CLIENTS] && found[ADMIN]) resolve(found);
    });
  });
}

export class Gateway {
  #child;

  /**
   * @param {import('node:child_process').ChildProcess} child
   * @param {string} addr where clients connect, HOST:PORT
   * @param {string} admin the admin address, HOST:PORT
   */
  constructor(child, addr, admin) {
    this.#child = child;
    this.addr = addr;
    this.admin = `http://${admin}`;
  }

  /** The sessions that live. @returns {Promise<{ id: string, state: string, resumable: boolean }[]>} */
  async sessions() {
    const answer = await fetch(`${this.admin}/api/v1/sessions`);
    assert.equal(answer.status, 200);
    return (await answer.json()).sessions;
  }

  /** Cuts the connections of all attached resumable sessions. @returns {Promise<number>} how many */
  async disconnect() {
    const attached = (await this.sessions()).filter((s) => s.resumable && s.state === 'attached');
    await Promise.all(attached.map((s) => this.#post(`/api/v1/sessions/${s.id}/disconnect`)));
    return attached.length;
  }

  /** @param {string} path */
  async #post(path) {
    const answer = await fetch(this.admin + path, { method: 'POST' });
    assert.equal(answer.status, 204, `POST ${path}`);
  }

  /** The value of a metric's series, 0 where there is none yet. @param {string} series as `name{label="value"}` */
  async metric(series) {
    const text = await (await fetch(`${this.admin}/metrics`)).text();
    const line = text.split('\n').find((l) => l.startsWith(`${series} `));
    return line ? Number(line.slice(series.length + 1)) : 0;
  }

  /** Kills the program, as a crash would; resolves when it is gone. */
  async stop() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const gone = new Promise((done) => this.#child.once('exit', done));
    this.#child.kill('SIGKILL');
    await gone;
  }
}
