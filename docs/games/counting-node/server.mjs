// A game server that is exactly once, end to end, even when a gateway dies. ../README.md explains each step.
//
// The game: a player sends numbers, the server adds them up. Each number is answered by {"n": 3, "add": 7}: the server's
// message number 3, 7 was added. {"n": 3, "sum": 40} is the whole state, in place of messages that are no longer kept.

import { createServer } from 'node:http';
import { WebSocketServer } from 'ws';

const setting = (name, otherwise) => Number(process.env[name] ?? otherwise);
const TICK_MS = setting('TICK_MS', 1000); // how often the game adds 1 by itself; 0: never
const KEPT_MESSAGES = setting('KEPT_MESSAGES', 4096); // for each player, as many as the gateway's --buffer-messages
const KEPT_SEAT_MS = setting('KEPT_SEAT_MS', 600_000); // without a connection; longer than the gateway's --grace
const WAIT_MS = setting('WAIT_MS', 2000); // for messages that are still unread on older connections
const LINGER_MS = setting('LINGER_MS', 10_000); // until the game closes an older connection by itself

/** A player's part of the game, and the two counts of their session. */
class Seat {
  epoch = 0; // of the newest connection
  newest; // the connection that is written to; it may be closed
  connections = []; // the open ones, oldest first
  received = 0; // number of the player's newest message that was applied
  sent = 0; // number of the newest message to the player
  log = []; // the newest messages to the player, the last one with the number `sent`
  sum = 0;
  report = { applied: [], connections: 0, refused: 0, repeats: 0, lost: 0, resyncs: 0 };

  /** Takes a connection as the newest one. */
  attach(ws, headers) {
    const from = numberIn(headers, 'reseat-up-from', 1);
    const connection = { ws, from, waited: false };
    const older = this.newest;
    this.epoch = numberIn(headers, 'reseat-epoch', 0);
    this.newest = ws;
    this.connections.push(connection);
    this.report.connections++;
    let next = from;
    ws.on('message', (data) => this.take(next++, data));
    ws.on('error', () => {}); // 'close' follows
    ws.on('close', () => this.detach(connection));
    // Not closed at once: its gateway would report the end of the session to a player who is still on the way here.
    setTimeout(() => older?.terminate(), LINGER_MS).unref();
    clearTimeout(this.expiry);
    this.resend(numberIn(headers, 'reseat-down-from', 1));
    ws.pause();
    this.settle();
    setTimeout(() => {
      connection.waited = true;
      this.settle();
    }, WAIT_MS).unref();
  }

  detach(connection) {
    this.connections = this.connections.filter((c) => c !== connection);
    this.settle();
    if (this.connections.length === 0) this.expiry = setTimeout(() => seats.delete(this.id), KEPT_SEAT_MS).unref();
  }

  /**
   * Reads each connection that begins with the next message or a repeat. Messages that are missing before it were acked
   * to the player, who does not send them again: they are on an older connection, unread, or died with the gateway.
   */
  settle() {
    for (const connection of this.connections) {
      const missing = connection.from - 1 - this.received;
      if (missing > 0 && connection !== this.connections[0] && !connection.waited) continue;
      if (missing > 0) {
        this.received += missing;
        this.report.lost += missing;
        this.sendState();
      }
      connection.ws.resume();
    }
  }

  /** Applies a message of the player's. Number 7 is the same message on every connection. */
  take(number, data) {
    if (number <= this.received) {
      this.report.repeats++;
      return;
    }
    this.received = number; // counted whatever it says: the gateway has counted it too
    const x = Number.parseInt(data, 10);
    if (!Number.isNaN(x)) {
      this.report.applied.push(x);
      this.add(x);
    }
    if (this.connections.length > 1) this.settle();
  }

  add(x) {
    this.sum += x;
    this.send({ add: x });
  }

  /** Numbers a message to the player and keeps it. If the connection is closed, the next one brings it. */
  send(message) {
    const text = JSON.stringify({ n: ++this.sent, ...message });
    this.log.push(text);
    if (this.log.length > KEPT_MESSAGES) this.log.shift();
    this.newest?.send(text);
  }

  /** Sends the whole state, with the number of the player's messages that were lost. */
  sendState() {
    this.send({ sum: this.sum, lost: this.report.lost || undefined });
  }

  /** Sends again all from this number on. What is before it has reached the player, or the gateway; nothing else has. */
  resend(from) {
    const kept = from - 1 - (this.sent - this.log.length);
    if (kept >= 0 && from <= this.sent + 1) {
      for (const text of this.log.slice(kept)) this.newest.send(text);
      return;
    }
    this.sent = from - 1; // the numbers from here on have reached nobody: they are free
    this.log = [];
    this.report.resyncs++;
    this.sendState();
  }
}

const seats = new Map();
const numberIn = (headers, name, otherwise) => Number(headers[name] ?? otherwise);

const server = createServer((request, response) => {
  if (request.url !== '/report') return response.writeHead(404).end();
  const report = [...seats].map(([session, { epoch, received, sent, sum, report }]) => ({
    session,
    epoch,
    received,
    sent,
    sum,
    ...report,
  }));
  response.setHeader('Content-Type', 'application/json').end(JSON.stringify({ sessions: report }));
});

const sockets = new WebSocketServer({ noServer: true });
server.on('upgrade', (request, socket, head) => {
  const { headers } = request;
  const refuse = (status) => socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`);
  const id = headers['reseat-session'];
  if (!id) return refuse('400 Bad Request'); // it has not come through the gateway
  if (headers['reseat-resumed'] && !headers['reseat-up-from']) return refuse('400 Bad Request'); // not a durable session
  const seat = seats.get(id) ?? Object.assign(new Seat(), { id });
  if (numberIn(headers, 'reseat-epoch', 0) < seat.epoch) {
    seat.report.refused++;
    return refuse('409 Conflict');
  }
  sockets.handleUpgrade(request, socket, head, (ws) => {
    seats.set(id, seat);
    seat.attach(ws, headers);
  });
});

if (TICK_MS > 0) setInterval(() => seats.forEach((seat) => seat.add(1)), TICK_MS);
server.listen(setting('PORT', 9000), '127.0.0.1', () => console.log(JSON.stringify({ listening: server.address() })));
