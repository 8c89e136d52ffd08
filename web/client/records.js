// Records of sessions, which keep them while their page reloads (option `storage`).

/** @typedef {{ id: string, born: number, saved: number, keep: number, [state: string]: any }} SavedSession */

/** How much unacked data a record may hold, in bytes. */
export const RECORD_MAX = 1 << 20;

/** The keys of records are this and the URL. */
export const PREFIX = 'reseat:';

/**
 * The records of the sessions of one URL, oldest session first, in a store that no other tab has.
 */
export class Records {
  #store;
  #key;

  /**
   * @param {Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>} store
   * @param {string} key
   */
  constructor(store, key) {
    this.#store = store;
    this.#key = key;
  }

  /** @returns {SavedSession[]} */
  #read() {
    try {
      const list = JSON.parse(/** @type {any} */ (this.#store.getItem(this.#key)));
      return Array.isArray(list) ? list : [];
    } catch {
      return []; // it belongs to another script, or storage is denied
    }
  }

  /**
   * Replaces the records. Returns false if they do not fit.
   * @param {SavedSession[]} list
   */
  #write(list) {
    try {
      if (list.length > 0) this.#store.setItem(this.#key, JSON.stringify(list));
      else this.#store.removeItem(this.#key);
      return true;
    } catch {
      return false;
    }
  }

  /**
   * Adds a record, or replaces the one of the same session. Returns false if it does not fit.
   * @param {SavedSession} record
   */
  _put(record) {
    const others = this.#read().filter(({ id }) => id !== record.id);
    if (this.#write([...others, record].sort((a, b) => a.born - b.born))) return true;
    this.#write(others);
    return false;
  }

  /** @param {number} wall the time now */
  #alive(wall) {
    return this.#read().filter((record) => wall - record?.saved < record?.keep);
  }

  /**
   * Removes expired records of every URL: one with a ticket in it is not used again.
   * @param {number} wall the time now
   */
  #sweep(wall) {
    for (const key of Object.keys(this.#store)) {
      if (!key.startsWith(`${PREFIX}ws`)) continue; // it belongs to another script
      const records = new Records(this.#store, key);
      records.#write(records.#alive(wall));
    }
  }

  /**
   * Removes and returns the record of the oldest session that has not expired.
   * @param {number} wall the time now
   * @returns {SavedSession | undefined}
   */
  _take(wall) {
    this.#sweep(wall);
    const list = this.#alive(wall);
    const first = list.shift();
    // If it cannot be removed, another page may find it too: then no page may use it.
    return this.#write(list) ? first : undefined;
  }

  /**
   * Removes the record of this session. Returns false if there is none.
   * @param {string} id
   */
  _takeBack(id) {
    const list = this.#read();
    const others = list.filter((record) => record.id !== id);
    return others.length < list.length && this.#write(others);
  }
}

/**
 * The store of option `storage`; null without one.
 * @param {any} store
 * @throws TypeError if tabs share it
 */
export function storeOf(store) {
  if (store === undefined || store === null) return null;
  let shared;
  try {
    shared = globalThis.localStorage;
  } catch {
    // Denied: then it is not the given store.
  }
  if (store === shared || typeof store.getItem !== 'function') {
    throw new TypeError('storage: want sessionStorage; tabs share localStorage');
  }
  return store;
}

/**
 * A message as JSON can hold it: text as a string, bytes as an array with base64 in it.
 * @param {string | ArrayBuffer} data
 */
export const packed = (data) =>
  typeof data === 'string'
    ? data
    : [btoa(Array.from(new Uint8Array(data), (byte) => String.fromCharCode(byte)).join(''))];

/**
 * @param {string | string[]} data
 * @returns {string | ArrayBuffer}
 */
export const unpacked = (data) =>
  typeof data === 'string' ? data : Uint8Array.from(atob(data[0]), (char) => char.charCodeAt(0)).buffer;
