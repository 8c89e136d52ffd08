import * as ReadyState from './readystate.js';
import { DLE } from './wire.js';

/** @typedef {import('./types.js').Verdict} Verdict */

/** One connection, or the attempt at one. Its session's alone. */
export class Connection {
  opened = false;
  hello = 0; // which of the session's hellos this connection got; 0: none yet
  last = 0; // number of the newest message that came on it, repeats included
  acked = -1; // the newest ack given on it
  owed = { messages: 0, bytes: 0 }; // what came since
  replay = 0; // replayed messages still to come
  bye = 0; // the code of the bye that was said on it; 0: none
  useful = false; // whether it brought anything new
  awaited = false; // whether at its hello there was anything new to come
  owing = false; // an attempt that is made even when the time is over
  errored = false;
  since = 0;
  backlog = 0; // bufferedAmount at the last look
  flowed = false; // whether it was 0 at any time since
  /** @type {Verdict | null} */
  verdict = null;

  /**
   * @param {any} transport
   * @param {string} kind
   * @param {string} token that it resumes with
   * @param {number} stated the N that it resumes with
   * @param {number} settled what was acked of the application's messages when it was opened
   */
  constructor(transport, kind, token, stated, settled) {
    this.transport = transport;
    this.kind = kind;
    this.token = token;
    this.stated = stated;
    this.settled = settled;
  }

  /** @param {string | ArrayBuffer} data */
  send(data) {
    // A browser complains on its console of what is sent to a closing connection, and drops it.
    if (this.transport.readyState >= ReadyState.CLOSING) return;
    this.flowed ||= !this.transport.bufferedAmount;
    try {
      this.transport.send(data);
    } catch {
      // A connection that is closing takes nothing; its close event follows.
    }
  }

  /** @param {string} verb @param {string} [rest] */
  say(verb, rest = '') {
    this.send(DLE + verb + rest);
  }

  /**
   * Whether the peer goes on taking bytes: some have gone since the last look, and at no
   * time since was there room for all. Where there was, the machine's own buffers took them.
   */
  drains() {
    const { backlog, flowed } = this;
    this.backlog = this.transport.bufferedAmount || 0;
    this.flowed = false;
    return this.backlog < backlog && !flowed;
  }

  /** @param {number} [code] @param {string} [reason] */
  close(code, reason) {
    try {
      if (code === undefined) this.transport.close();
      else this.transport.close(code, reason);
    } catch {
      // Some transports refuse to close before they are open. Nobody listens any more.
    }
  }
}

/** @param {any} transport @param {string} type @param {(event: any) => void} heard */
export function listen(transport, type, heard) {
  if (typeof transport.addEventListener === 'function') transport.addEventListener(type, heard);
  else transport[`on${type}`] = heard;
}
