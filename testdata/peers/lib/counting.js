// A counting game server of docs/games, and a stand-in for the gateways in front of it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';

const GAMES = new URL('../../../docs/games/', import.meta.url);

/** The command of docs/games/README.md that starts the Node program, and the directory it is started in. */
const [, DIRECTORY, PORT, FILE] = readFileSync(new URL('README.md', GAMES), 'utf8').match(/^cd docs\/games\/(\S+)\nnpm install\nPORT=(\d+) node (\S+)$/m);

const PATIENCE_MS = 10_000;

/** What the player's message n says. @param {number} n */
export const value = (n) => n * n + 1;

/** What the messages from the first to the last one say. @param {number} first @param {number} last */
export const values = (first, last) => Array.from({ length: Math.max(last - first + 1, 0) }, (_, i) => value(first + i));

/**
 * Starts the program as the page says, on a free port, and ends it with the test.
 *
 * @param {import('node:test').TestContext} t
 * @param {Record<string, string | number>} [settings] by environment variable; without others the game does nothing by itself
 */
export async function startGame(t, settings = {}) {
  assert.ok(PORT);
  const dir = mkdtempSync(join(tmpdir(), 'reseat-counting-'));
  copyFileSync(new URL(`${DIRECTORY}/${FILE}`, GAMES), join(dir, FILE));
  symlinkSync(fileURLToPath(new URL('../node_modules', import.meta.url)), join(dir, 'node_modules'));
  const env = { ...process.env, TICK_MS: '0', ...settings, PORT: '0' };
  const child = spawn(process.execPath, [FILE], { cwd: dir, env, stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    rmSync(dir, { recursive: true });
  });
  const { value: line } = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
  return new Game(JSON.parse(line).listening.port);
}

class Game {
  /** @param {number} port */
  constructor(port) {
    this.addr = `127.0.0.1:${port}`;
  }

  /** What the game reports of a session. @param {string} session @returns {Promise<any>} */
  async report(session) {
    const answer = await fetch(`http://${this.addr}/report`);
    assert.equal(answer.status, 200);
    return (await answer.json()).sessions.find((s) => s.session === session);
  }

  /** Resolves with the report once it is as wanted. @param {string} session @param {(report: any) => boolean} wanted */
  async until(session, wanted) {
    const giveUp = Date.now() + PATIENCE_MS;
    for (;;) {
      const report = await this.report(session);
      if (report && wanted(report)) return report;
      assert.ok(Date.now() < giveUp, `the game reports ${JSON.stringify(report)}`);
      await new Promise((done) => setTimeout(done, 5));
    }
  }

  /**
   * Dials the game as a gateway does.
   * @param {Record<string, string | number>} headers names without `Reseat-`
   */
  async dial(headers) {
    const line = new Line(this.addr, headers);
    await line.opened;
    return line;
  }

  /** The status that the game answers to a dial. @param {Record<string, string | number>} headers */
  async refusal(headers) {
    const { socket } = new Line(this.addr, headers);
    const [, answer] = await once(socket, 'unexpected-response');
    return answer.statusCode;
  }
}

/** A gateway's connection to the game. Its messages to the player have the numbers that the dial has promised. */
class Line {
  /** @type {{ number: number, message: any }[]} */
  came = [];
  /** @type {number | undefined} code of the game's Close; 1006 without one */
  closed;
  #changed = () => {};

  constructor(addr, headers) {
    const named = Object.entries(headers).map(([name, value]) => [`Reseat-${name}`, String(value)]);
    this.socket = new WebSocket(`ws://${addr}/match/7`, { headers: Object.fromEntries(named) });
    this.opened = once(this.socket, 'open');
    this.opened.catch(() => {});
    this.socket.on('error', () => {});
    let next = Number(headers['Down-From'] ?? 1);
    this.socket.on('message', (data) => {
      this.came.push({ number: next++, message: JSON.parse(String(data)) });
      this.#changed();
    });
    this.socket.on('close', (code) => {
      this.closed = code;
      this.#changed();
    });
  }

  /** Writes the player's messages from the first to the last one, each whole. @param {number} first @param {number} last */
  write(first, last) {
    for (const x of values(first, last)) this.socket.send(String(x));
  }

  /** Resolves with the first n messages of the game's. @param {number} n */
  async read(n) {
    const timer = setTimeout(() => this.#changed(), PATIENCE_MS);
    const giveUp = Date.now() + PATIENCE_MS;
    while (this.came.length < n && this.closed === undefined && Date.now() < giveUp) {
      await new Promise((changed) => (this.#changed = () => changed(undefined)));
    }
    clearTimeout(timer);
    assert.ok(this.came.length >= n, `${this.came.length} messages have come, want ${n}; the Close: ${this.closed}`);
    return this.came.slice(0, n);
  }

  /** The gateway dies while it writes a message: some bytes of a frame are the last. @param {number} bytes */
  die(bytes) {
    const frame = Buffer.concat([Buffer.from([0x81, 0x80 + 9, 0, 0, 0, 0]), Buffer.from('123456789')]);
    this.socket['_socket'].write(frame.subarray(0, bytes));
    this.socket['_socket'].resetAndDestroy();
  }
}

/** A player who gives each message a number, and takes each message once. */
export class Player {
  received = 0;
  sum = 0;

  /** Takes what a gateway's connection has brought, in order. @param {{ number: number, message: any }[]} came */
  take(came) {
    for (const { number, message } of came) {
      assert.equal(message.n, number, 'the number that the game counts, and the one of the connection');
      assert.equal(number, this.received + 1, `after message ${this.received}`);
      this.received = number;
      this.sum = message.sum ?? this.sum + message.add;
    }
  }
}
