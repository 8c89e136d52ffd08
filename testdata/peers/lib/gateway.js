// A gateway as an operator starts one: the program itself, on ports of its own choice.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** The program under test. */
export const BIN = process.env.RESEAT_BIN ?? fileURLToPath(new URL('../../../bin/reseat', import.meta.url));

/**
 * Starts a gateway with the given flags, which name its upstream, and ends it with the test.
 * Resolves when both of its ports are open; rejects with what the program wrote where it
 * leaves before that. Its log is read to the end, so that it never waits for that.
 */
export async function startGateway(t, flags, cwd, bin = BIN) {
  const child = spawn(bin, [...flags, '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--log-format', 'json'], {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: {},
    cwd,
  });
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  child.once('exit', () => process.off('exit', kill));
  const found = await new Promise((resolve, reject) => {
    const found = {};
    const lines = [];
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`reseat ${flags.join(' ')} left with status ${code}: ${lines.join('\n')}`)));
    createInterface({ input: child.stderr }).on('line', (line) => {
      if (found.clients && found.admin) return;
      lines.push(line);
      const { msg = '', addr } = line.startsWith('{') ? JSON.parse(line) : {};
      if (addr) found[msg.replace('listen.', '')] = addr;
      if (found.clients && found.admin) resolve(found);
    });
  });
  const gateway = new Gateway(child, found.clients, `http://${found.admin}`);
  t.after(() => gateway.stop());
  return gateway;
}

class Gateway {
  #child;

  constructor(child, addr, admin) {
    this.#child = child;
    this.addr = addr; // HOST:PORT where clients connect
    this.admin = admin; // URL
  }

  /** The sessions that live. */
  async sessions() {
    const answer = await fetch(`${this.admin}/api/v1/sessions`);
    assert.equal(answer.status, 200);
    return (await answer.json()).sessions;
  }

  /** Cuts the connections of all attached resumable sessions; resolves with how many. */
  async disconnect() {
    const attached = (await this.sessions()).filter((s) => s.resumable && s.state === 'attached');
    await Promise.all(attached.map(({ id }) => this.post(`/sessions/${id}/disconnect`)));
    return attached.length;
  }

  /** Has the control API do something. */
  async post(path, method = 'POST') {
    const answer = await fetch(`${this.admin}/api/v1${path}`, { method });
    assert.ok(answer.ok, `${method} ${path}: status ${answer.status}`);
  }

  /** The value of a metric's series, 0 where there is none yet. */
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
