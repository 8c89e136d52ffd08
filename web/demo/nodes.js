// @ts-check
// The nodes of a cluster: which one has the seat, which one the connection goes to, and buttons
// to continue at another. Hidden without a cluster.

/** @typedef {import('./line.js').Line} Line */
/** @typedef {{id: string, name: string, state: string, url: string}} Node */
/** @typedef {{self: string, owner: string, front: string, nodes: Node[]}} Overview what a node says of a session */
/** @typedef {{game: import('./game.js').Game}} Side */

/** How often the nodes are polled, in ms. */
const ASK_MS = 2000;

/** Why no new connection goes to a node, by its state. @type {Record<string, string>} */
const CLOSED = {
  up: 'is closed to this page',
  draining: 'is being stopped',
  silent: 'does not answer',
  gone: 'has ended',
};

export class Nodes {
  #line;
  #sides;
  #roots;
  /** Whether there is a cluster, until a node says that there is none. */
  #cluster = true;
  /** The node that served this page. */
  #home = '';
  /** @type {Node[]} */
  #nodes = [];
  /** @type {Map<string, HTMLButtonElement>} by a node's id */
  #buttons = new Map();

  /**
   * @param {Line} line
   * @param {Side[]} sides
   * @param {HTMLElement[]} roots of their panels
   */
  constructor(line, sides, roots) {
    this.#line = line;
    this.#sides = sides;
    this.#roots = roots;
    line.addEventListener('moved', () => {
      this.#say(
        `A node does not answer. The connections go to ${this.#name(this.current)} now, as a load balancer would do.`,
      );
      this.#draw();
    });
    this.#begin();
  }

  async #begin() {
    await this.#overview('');
    if (!this.#cluster) return;
    for (const { game } of this.#sides) {
      for (const type of ['welcome', 'back', 'phase']) game.addEventListener(type, () => this.ask());
    }
    const again = async () => {
      await this.ask();
      setTimeout(again, ASK_MS);
    };
    again();
  }

  /** The id of the node that new connections go to. */
  get current() {
    const { through } = this.#line;
    return through ? (this.#nodes.find(({ url }) => url === through)?.id ?? '') : this.#home;
  }

  /** Cuts the connections. They are made anew at another node. @param {string} id */
  carryOn(id) {
    const node = this.#nodes.find((each) => each.id === id);
    if (!node?.url || node.state !== 'up' || id === this.current) return;
    this.#line.through = id === this.#home ? null : node.url;
    this.#say(`The connections go to ${this.#name(id)} from now on.`);
    this.#draw();
    this.#line.cut();
    dispatchEvent(new Event('online')); // no pause for what waits
  }

  /** The newest state. */
  get report() {
    return { current: this.current, nodes: this.#nodes };
  }

  /** Asks a node where the sessions are, and shows the answer. */
  async ask() {
    const answers = await Promise.all(this.#sides.map(({ game }) => this.#overview(game.session)));
    const [first] = answers;
    if (!first) return;
    if (!this.#line.through) this.#home = first.self;
    this.#nodes = first.nodes.toSorted((a, b) => (a.name < b.name ? -1 : 1));
    this.#line.others = this.#nodes.filter(({ state, url }) => url && state === 'up').map(({ url }) => url);
    answers.forEach((answer, i) => answer && this.#showWhere(i, answer));
    this.#draw();
  }

  /** What the nearest node that answers says. @param {string} session @returns {Promise<Overview | undefined>} */
  async #overview(session) {
    const own = this.#line.through ?? location.href;
    for (const base of [own, ...this.#line.others.filter((url) => url !== own)]) {
      try {
        const answer = await fetch(new URL(`/demo/nodes?session=${encodeURIComponent(session)}`, base));
        if (answer.status === 204) this.#cluster = false;
        return answer.status === 200 ? await answer.json() : undefined;
      } catch {
        // It does not answer: ask another one.
      }
    }
    return undefined;
  }

  /** @param {number} i which side @param {Overview} answer */
  #showWhere(i, { owner, front }) {
    const where = /** @type {HTMLElement} */ (this.#roots[i].querySelector('[data-part="where"]'));
    const state = this.#nodes.find(({ id }) => id === owner)?.state;
    const text = whereText(this.#name(owner), this.#name(front), state);
    where.hidden = owner === '';
    if (where.textContent !== text) where.textContent = text;
  }

  /** The name of a node; two of one name have their id with it. @param {string} id */
  #name(id) {
    const node = this.#nodes.find((each) => each.id === id);
    if (!node) return id;
    const unique = this.#nodes.filter(({ name, state }) => name === node.name && state !== 'gone').length < 2;
    return unique ? node.name : `${node.name} (${id})`;
  }

  /** Shows a button for each node. Existing ones stay, since one may have the focus. */
  #draw() {
    const list = byId('nodes-list');
    byId('nodes').hidden = this.#nodes.length === 0;
    for (const [id, button] of this.#buttons) {
      if (this.#nodes.some((node) => node.id === id)) continue;
      button.remove();
      this.#buttons.delete(id);
    }
    for (const { id, state, url } of this.#nodes) {
      const button = this.#buttons.get(id) ?? document.createElement('button');
      button.type = 'button';
      const current = id === this.current;
      const open = state === 'up' && url !== '';
      const label = current
        ? `At ${this.#name(id)}`
        : open
          ? `Carry on at ${this.#name(id)}`
          : `${this.#name(id)}: ${CLOSED[state]}`;
      if (button.textContent !== label) button.textContent = label;
      if (current) button.setAttribute('aria-current', 'true');
      else button.removeAttribute('aria-current');
      button.disabled = !current && !open;
      if (this.#buttons.has(id)) continue;
      button.addEventListener('click', () => this.carryOn(id));
      this.#buttons.set(id, button);
      list.append(button);
    }
  }

  /** @param {string} text */
  #say(text) {
    byId('nodes-notice').textContent = text;
  }
}

/**
 * Describes where a seat and its connection are.
 * @param {string} owner the node that has the seat
 * @param {string} front the node that the connection has reached; '' for none
 * @param {string} [state] of the owner, as far as it is known
 */
export function whereText(owner, front, state) {
  if (state === 'gone' || state === 'silent') return `The seat is at ${owner}, which ${CLOSED[state]}.`;
  if (!front) return `The seat is at ${owner}. No connection.`;
  return front === owner
    ? `Seat and connection are at ${owner}.`
    : `The seat is at ${owner}, the connection goes through ${front}.`;
}

/** @param {string} id */
function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}
