// @ts-check
// Parses server-sent events: WHATWG HTML section 9.2.6. The
// browser's EventSource can send no Authorization header.

/** @typedef {{id: string, event: string, data: string}} Message */

/** A Parser takes a stream piece by piece, cut wherever it happens to be. */
export class Parser {
  /** The newest id. */
  lastId = '';
  #rest = '';
  #fresh = { event: '', data: /** @type {string[]} */ ([]) };

  /** @param {string} piece @returns {Message[]} what is complete now */
  take(piece) {
    const lines = (this.#rest + piece).split('\n');
    this.#rest = lines.pop() ?? '';
    return lines.map((line) => this.#line(line.replace(/\r$/, ''))).filter((message) => message !== null);
  }

  /** @param {string} line @returns {Message | null} */
  #line(line) {
    if (line === '') return this.#end();
    const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
    if (field === 'id') this.lastId = value ?? '';
    if (field === 'event') this.#fresh.event = value ?? '';
    if (field === 'data') this.#fresh.data.push(value ?? '');
    return null; // a comment has no field
  }

  #end() {
    const { event, data } = this.#fresh;
    this.#fresh = { event: '', data: [] };
    return data.length > 0 ? { id: this.lastId, event: event || 'message', data: data.join('\n') } : null;
  }
}
