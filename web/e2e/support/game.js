import { once } from 'node:events';
import { WebSocketServer } from 'ws';
import { Ledger, make } from '../site/numbered.js';

/** A Seat is the game server's end of one connection: numbered messages both ways. */
export class Seat {
  sent = 0;
  ledger = new Ledger();
  /** What the handshake asked for. */
  offered;
  path;
  /** How the connection ended, null while it lives. @type {{code: number, reason: string} | null} */
  ended = null;

  #ws;
  /** @type {NodeJS.Timeout | undefined} */
  #timer;

  /** @param {import('ws').WebSocket} ws @param {import('node:http').IncomingMessage} request */
  constructor(ws, request) {
    this.#ws = ws;
    this.offered = request.headers['sec-websocket-protocol'] ?? '';
    this.path = request.url ?? '';
    ws.on('message', (data, binary) => this.ledger.note(binary ? /** @type {Buffer} */ (data) : String(data)));
    ws.on('close', (code, reason) => {
      this.stop();
      this.ended = { code, reason: String(reason) };
    });
  }

  /** Sends the next message. @param {number} [length] of its filler */
  send(length) {
    const { data } = make(++this.sent, length);
    this.#ws.send(data, { binary: typeof data !== 'string' });
  }

  /** Sends on and on. @param {number} ms between two messages */
  start(ms) {
    this.stop();
    this.#timer = setInterval(() => this.send(), ms);
  }

  stop() {
    clearInterval(this.#timer);
  }

  /** @param {number} code @param {string} reason */
  close(code, reason) {
    this.#ws.close(code, reason);
  }

  report() {
    const { sent, ended } = this;
    const { received, faults } = this.ledger;
    return { sent, received, faults, ended };
  }
}

/**
 * Starts a game server on loopback that ends with the test. It knows nothing of
 * Reseat, and keeps every connection that it ever had in `seats`.
 * @param {{after: (run: () => void) => void}} t
 * @param {import('ws').ServerOptions} [options]
 */
export async function startGame(t, options) {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, ...options });
  /** @type {Seat[]} */
  const seats = [];
  const game = {
    seats,
    /** What is done first with every new seat. */
    greet: /** @type {(seat: Seat) => void} */ (() => {}),
  };
  server.on('connection', (ws, request) => {
    const seat = new Seat(ws, request);
    seats.push(seat);
    game.greet(seat);
  });
  t.after(() => {
    for (const seat of seats) seat.stop();
    for (const client of server.clients) client.terminate();
    server.close();
  });
  await once(server, 'listening');
  const host = `127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}`;
  return Object.assign(game, { url: `ws://${host}` });
}

/** @typedef {Awaited<ReturnType<typeof startGame>>} Game */
