// @ts-check
// Requests to the control API: docs/control-api.md.
import { Parser } from './sse.js';

const BASE = '/api/v1';
/** The key of the token in sessionStorage. */
const TOKEN = 'reseat.token';

/**
 * A session as the API shows it.
 * @typedef {object} Session
 * @property {string} id
 * @property {'connecting' | 'attached' | 'detached' | 'ended'} state
 * @property {string} player
 * @property {string} group
 * @property {string} peer
 * @property {string} route
 * @property {string} path of its first request
 * @property {'resumable' | 'cookie' | 'plain'} client how it can come back
 * @property {boolean} resumable any but a plain one
 * @property {boolean} started
 * @property {string} since
 * @property {string} grace
 * @property {string} overflow
 * @property {string | null} detached_since
 * @property {string | null} expires
 * @property {string | null} ended_since
 * @property {number | null} rtt_ms null until measured
 * @property {string} keepalive the flag for what the client sends at a steady pace; empty for nothing
 * @property {string} newest_hint the flag for messages that look like states; empty for none
 * @property {number | null} silent_ms since anything was heard of the client; null where nothing ever was, and for an ended one
 * @property {number} received
 * @property {number} written
 * @property {number} sent
 * @property {number} acked
 * @property {number} buffer_messages
 * @property {number} buffer_bytes
 * @property {number} buffer_max_messages
 * @property {number} buffer_max_bytes
 * @property {string[]} newest which messages are states
 * @property {number} dropped by the overflow policy
 * @property {number} skipped replaced by newer ones
 * @property {string} [reason]
 * @property {string} [detail]
 * @property {string} [by] who ended it by the API
 * @property {'covered' | 'exposed' | 'no'} durable whether it outlives its node
 * @property {number} epoch how often a node has taken it from another one
 * @property {'' | 'failover' | 'handoff'} moved how it came to its node
 * @property {string} [node] name of the node that has it, in a cluster
 */

/** A refusal by the gateway, with its status; 0 if there was no answer. */
export class Refusal extends Error {
  /** @param {number} status @param {string} detail */
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export class Api {
  #token = sessionStorage.getItem(TOKEN) ?? '';

  get hasToken() {
    return this.#token !== '';
  }

  /** @param {string} token empty to forget it */
  set token(token) {
    this.#token = token;
    if (token) sessionStorage.setItem(TOKEN, token);
    else sessionStorage.removeItem(TOKEN);
  }

  /** @param {Record<string, string | number>} query */
  overview(query) {
    return this.#json('GET', `/overview?${queryOf(query)}`);
  }

  /** @param {string} id @returns {Promise<Session>} */
  session(id) {
    return this.#json('GET', path(id));
  }

  /** @param {string} id */
  history(id) {
    return this.#json('GET', `${path(id)}/history`);
  }

  /** The newest refused handshakes and resumes. @returns {Promise<{refusals: import('./refused.js').Refused[]}>} */
  refusals() {
    return this.#json('GET', '/refusals');
  }

  drain() {
    return this.#json('POST', '/drain');
  }

  cancelDrain() {
    return this.#json('DELETE', '/drain');
  }

  /** @param {string} id */
  disconnect(id) {
    return this.#json('POST', `${path(id)}/disconnect`);
  }

  /** @param {string} id @param {string} reason */
  end(id, reason) {
    return this.#json('DELETE', `${path(id)}?${queryOf({ reason })}`);
  }

  /** @param {string} id @param {string} grace as flags take it */
  setGrace(id, grace) {
    return this.#json('PATCH', path(id), { grace });
  }

  /**
   * Reads the event stream until it ends: after the given event, or else from the newest ones on.
   * @param {string} after an id, or empty
   * @param {number} last how many of the newest
   * @param {AbortSignal} signal
   * @param {(messages: import('./sse.js').Message[]) => void} take
   */
  async events(after, last, signal, take) {
    const response = await this.#ask('GET', `/events?${queryOf({ last })}`, {
      signal,
      headers: after ? { 'Last-Event-ID': after } : {},
    });
    const parser = new Parser();
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body)
      .pipeThrough(new TextDecoderStream())
      .getReader();
    take([]); // it is open
    for (let part = await reader.read(); !part.done; part = await reader.read()) take(parser.take(part.value));
  }

  /** @param {string} method @param {string} where @param {object} [body] */
  async #json(method, where, body) {
    const response = await this.#ask(method, where, { body: body && JSON.stringify(body) });
    return response.status === 204 ? null : response.json();
  }

  /** @param {string} method @param {string} where @param {RequestInit} [init] */
  async #ask(method, where, { headers, ...init } = {}) {
    const authorization = this.#token ? { Authorization: `Bearer ${this.#token}` } : {};
    const response = await fetch(BASE + where, { method, headers: { ...headers, ...authorization }, ...init }).catch(
      () => {
        throw new Refusal(0, 'the gateway cannot be reached'); // browsers word it differently
      },
    );
    if (!response.ok) throw new Refusal(response.status, await detail(response));
    return response;
  }
}

/** @param {Response} response */
async function detail(response) {
  const problem = await response.json().catch(() => null);
  return problem?.detail ?? response.statusText;
}

/** @param {string} id */
function path(id) {
  return `/sessions/${encodeURIComponent(id)}`;
}

/** What is empty is left out. @param {Record<string, string | number>} members */
function queryOf(members) {
  const filled = Object.entries(members).filter(([, value]) => value !== '');
  return new URLSearchParams(filled.map(([name, value]) => [name, String(value)])).toString();
}
