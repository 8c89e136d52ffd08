// @ts-check
// The panel of --dev: a custom element that shows the page's sockets, and cuts their connections.
import { seconds } from './links.js';
import { html, socketReport } from './report.js';
import { STYLE } from './style.js';
import { COLUMN_MS, Track, draw } from './timeline.js';

/** @typedef {import('./links.js').Link} Link */
/** @typedef {{fault: string, for?: string, direction?: string, latency?: string, jitter?: string, rate?: number}} Fault */

/** How often an open panel asks the gateway, in ms. */
const ASK_MS = 1000;
const STORIES = 6;
/** How far an arrow key moves the panel, in px. */
const STEP = 20;
const AIRPLANE = '60s';
const NO_SOCKET =
  'This page has no open socket. One in a frame has a panel there; one in a worker needs importScripts("/reseat.install.js"). Of one that was refused, the log of the gateway says why.';
/** The gateway's refusal if there is nothing to cut. */
const LOST_ALREADY = 'no client is connected';

/** Where the tab keeps the panel's place and the token of --dev-token-file. */
const PLACE = 'reseat.dev.place';
const TOKEN = 'reseat.dev.token';
const WITHOUT = 'reseat.dev.without';
const CLUSTER = 'reseat.dev.cluster';
/** Followed by whether the run had the client. */
const RUN = 'reseat.dev.run.';

/** @type {[string, Fault, string][]} what a button says, what it asks for, and its explanation */
const PRESETS = [
  ['Tunnel', { fault: 'tunnel' }, 'No network for 12 s'],
  ['Wi-Fi to LTE', { fault: 'wifi-to-lte' }, 'The connection goes silent for good, a new one is slower'],
  ['Laptop sleep', { fault: 'laptop-sleep' }, 'No network for 20 s, then the old connection is reset'],
  ['Bad hotel Wi-Fi', { fault: 'hotel-wifi' }, 'Slow for 40 s, silent twice, reset once'],
  ['Elevator', { fault: 'elevator' }, 'Slow, no network for 8 s, slow'],
];

/** @type {[string, Fault, string][]} */
const CUTS = [
  ['Silence 8 s', { fault: 'silence', for: '8s' }, 'Nothing passes; a new connection works'],
  ['Silence up', { fault: 'silence', for: '8s', direction: 'up' }, 'Nothing reaches the gateway for 8 s'],
  ['Silence down', { fault: 'silence', for: '8s', direction: 'down' }, 'Nothing reaches the page for 8 s'],
  ['Reset', { fault: 'reset' }, 'TCP RST'],
  ['Close cleanly', { fault: 'close' }, 'Close frame with 1001, as from a proxy that restarts'],
];

/** @type {[string, Fault, string]} */
const LOSE_NODE = [
  'Lose the node',
  { fault: 'node' },
  'This page alone goes through another node of the cluster, as if its own had died; the session goes on',
];

const STATES = {
  connecting: 'connecting',
  attached: 'connected',
  silent: 'silent',
  detached: 'reconnecting',
  closed: 'closed',
  plain: 'connected',
};

/** Elements that show none of their content. */
const NO_CONTENT = /^(CANVAS|VIDEO|IFRAME|IMG|OBJECT|EMBED)$/;

/** What a fault is called that no button began. @param {Fault | null} fault */
function nameOf(fault) {
  const text = JSON.stringify(fault);
  return (
    [...PRESETS, ...CUTS, LOSE_NODE].find((each) => JSON.stringify(each[1]) === text)?.[0] ??
    Object.values(fault ?? {}).join(' ')
  );
}

/** The order in which the badge shows states. */
const WORST = /** @type {const} */ (['closed', 'detached', 'silent', 'connecting', 'attached', 'plain']);

/**
 * Makes an element.
 * @param {string} name @param {Record<string, any>} [set] attributes, and listeners as functions
 * @param {...(Node | string)} content
 * @returns {any}
 */
function make(name, set = {}, ...content) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(set)) {
    if (typeof value === 'function') element.addEventListener(key, value);
    else if (value !== false) element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...content);
  return element;
}

/** @param {HTMLElement} element @param {string | number} text */
function write(element, text) {
  if (element.textContent !== `${text}`) element.textContent = `${text}`;
}

/** Whether this tab goes without the client: the comparison. */
export const isWithout = () => kept(WITHOUT) !== '';

/** A sandboxed frame has no storage. @param {string} key @param {string} value */
function keep(key, value) {
  try {
    sessionStorage.setItem(key, value);
  } catch {
    // until the page is left
  }
}

/** @param {string} key */
function kept(key) {
  try {
    return sessionStorage.getItem(key) ?? '';
  } catch {
    return '';
  }
}

/** @param {number} bytes */
const size = (bytes) => (bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(1)} KiB`);

/** Figures that are good only if they are 0. */
const JUDGED = ['missed', 'duplicated', 'seats'];

/** What the panel shows of one Link. */
class Row {
  track = new Track();
  root;
  /** Whether faults act on it. @type {HTMLInputElement} */
  chosen;
  /** Messages of each second: SocketReport. @type {number[]} */
  seconds = [];
  #ticks = 0;
  #second = 0;
  #link;
  #state = make('span', { class: 'state' });
  #canvas = make('canvas', { role: 'img' });
  /** @type {Record<string, HTMLElement>} */
  #cells = {};

  /** @param {Link} link */
  constructor(link) {
    this.#link = link;
    const cell = (/** @type {string} */ key, /** @type {string} */ title) => {
      this.#cells[key] = make('dd', { 'data-part': key }, '–');
      return make('div', {}, make('dt', {}, title), this.#cells[key]);
    };
    const { host, pathname } = link.url;
    this.chosen = make('input', {
      type: 'checkbox',
      checked: true,
      'data-testid': `cut-${link.session ? 'reseat' : 'plain'}`,
      change: () => this.root.dispatchEvent(new Event('choose', { bubbles: true })),
    });
    this.root = make(
      'article',
      { 'data-session': link.session },
      make(
        'h3',
        {},
        make('label', { title: 'Cut this socket' }, this.chosen, link.name),
        make('span', {}, host === location.host ? pathname : host + pathname),
        this.#state,
      ),
    );
    const outages = cell('outages', 'Outages');
    if (!link.session) {
      this.root.append(
        make('dl', { class: 'truth' }, cell('seats', 'Sessions lost'), outages),
        make('dl', {}, cell('got', 'Messages in'), cell('sent', 'Messages out')),
        this.#canvas,
      );
      return;
    }
    this.root.append(
      make(
        'dl',
        { class: 'truth' },
        cell('missed', 'Missed'),
        cell('duplicated', 'Duplicated'),
        cell('replayed', 'Replayed'),
      ),
      make('dl', {}, cell('rtt', 'Round trip'), cell('here', 'Buffered here'), cell('there', 'Buffered there')),
      make('dl', {}, cell('got', 'Messages in'), cell('sent', 'Messages out'), outages),
      this.#canvas,
    );
  }

  /** Ends a column of the timeline. */
  tick() {
    const { delivered, state } = this.#link;
    this.track.add(delivered, state);
    this.#second += this.track.columns[this.track.columns.length - 1].got;
    if (++this.#ticks % (1000 / COLUMN_MS)) return;
    this.seconds.push(this.#second === 0 && state !== 'attached' && state !== 'plain' ? -1 : this.#second);
    this.#second = 0;
  }

  /** @type {import('./report.js').SocketReport} */
  get report() {
    const script = /** @type {HTMLElement | null} */ (document.querySelector('script[src*="/reseat.install.js"]'));
    return socketReport(this.#link, this.seconds, script?.dataset);
  }

  show() {
    const link = this.#link;
    this.root.dataset.state = link.state;
    write(this.#state, STATES[link.state]);
    const { gateway, outages } = link;
    /** @type {Record<string, string | number>} */
    const values = {
      seats: link.sessionsLost,
      missed: gateway ? link.missed : '–',
      duplicated: gateway ? link.duplicated : '–',
      replayed: link.skipped ? `${link.replayed}, ${link.skipped} skipped` : link.replayed,
      rtt: gateway?.rtt_ms == null ? '–' : `${Math.round(gateway.rtt_ms)} ms`,
      here: size(link.socket?.bufferedAmount ?? 0),
      there: gateway ? `${gateway.buffer_messages} (${size(gateway.buffer_bytes)})` : '–',
      got: link.delivered,
      sent: link.sends,
      outages: outages.length ? `${outages.length}, last ${seconds(outages[outages.length - 1])}` : 0,
    };
    for (const [key, element] of Object.entries(this.#cells)) {
      write(element, values[key]);
      if (JUDGED.includes(key) && values[key] !== '–') element.dataset.verdict = values[key] === 0 ? 'good' : 'bad';
    }
    this.#canvas.setAttribute('aria-label', this.track.summary);
    draw(this.#canvas, this.track);
  }
}

/**
 * The element. `links` must be set before it is made. With the attribute `docked` it is open, at its
 * place in the page. Event: `fault`, with the fault and the names of its `sockets` as detail.
 */
export class ReseatDev extends HTMLElement {
  /** @type {import('./links.js').Links} */
  static links;
  links = ReseatDev.links;
  /** @type {Map<Link, Row>} */
  #rows = new Map();
  #begun = false;
  /** @type {import('./report.js').Cut[]} */
  #cuts = [];
  #without = isWithout();
  #badge = make('button', {
    type: 'button',
    class: 'badge',
    title: 'Alt+Shift+R',
    'aria-expanded': 'false',
    click: () => this.toggle(true),
  });
  #says = make('span');
  #list = make('div', { class: 'rows' });
  #notice = make('p', { class: 'notice end', role: 'status', 'data-testid': 'cut-notice' });
  #story = make('ol', { class: 'end', 'aria-label': 'What happened', 'data-testid': 'story' });
  #airplane = make(
    'button',
    {
      type: 'button',
      'aria-pressed': 'false',
      'data-testid': 'airplane',
      click: () => this.airplane(!this.flying),
      title: 'No network until you press it again, a minute at most',
    },
    'Airplane mode',
  );
  #asks = make(
    'label',
    { hidden: true },
    'Token of --dev-token-file ',
    make('input', {
      type: 'password',
      autocomplete: 'off',
      change: (/** @type {any} */ { target }) => keep(TOKEN, target.value),
    }),
  );
  #restart = this.#button(['Restart the game server', { fault: 'restart' }, 'For all players']);
  #node = this.#button(LOSE_NODE);
  #panel;

  constructor() {
    super();
    const root = this.attachShadow({ mode: 'open' });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    this.#badge.append(make('span', { class: 'dot' }), this.#says);
    const move = make(
      'button',
      {
        type: 'button',
        class: 'move',
        'aria-label': 'Move the panel with the arrow keys',
        keydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
      },
      '✥',
    );
    const close = make(
      'button',
      { type: 'button', 'aria-label': 'Close the panel', click: () => this.toggle(false) },
      '✕',
    );
    const header = make(
      'header',
      { pointerdown: (/** @type {PointerEvent} */ event) => this.#drag(event) },
      move,
      make('h2', {}, this.#without ? 'Without Reseat' : 'Reseat: your connection'),
      close,
    );
    this.#panel = make(
      'section',
      {
        class: 'panel',
        role: 'region',
        'aria-label': 'Reseat',
        hidden: true,
        keydown: (/** @type {KeyboardEvent} */ event) => event.key === 'Escape' && this.toggle(false),
      },
      header,
      this.#asks,
      this.#list,
      this.#notice,
      this.#story,
      make('h4', {}, 'What happens to players'),
      make('div', { class: 'buttons' }, ...PRESETS.map((each) => this.#button(each))),
      make('h4', {}, 'Cut the connection'),
      make(
        'div',
        { class: 'buttons' },
        ...CUTS.map((each) => this.#button(each)),
        this.#airplane,
        this.#node,
        this.#restart,
      ),
      make('h4', {}, 'Slow line'),
      this.#sliders(),
      make('h4', { class: 'only-alone' }, 'Compare and report'),
      make(
        'div',
        { class: 'buttons only-alone' },
        this.#compare(),
        make('button', { type: 'button', click: () => this.#save('html') }, 'Report'),
        make('button', { type: 'button', click: () => this.#save('json') }, 'Report as JSON'),
      ),
    );
    // What the player does in the panel is not for the game.
    for (const type of ['keydown', 'keyup', 'keypress', 'pointerdown', 'mousedown', 'click', 'wheel', 'touchstart'])
      root.addEventListener(type, (event) => event.stopPropagation());
    root.append(make('div', { class: 'all' }, this.#badge, this.#panel));
  }

  connectedCallback() {
    if (this.#begun) return; // moved by the page
    this.#begun = true;
    this.links.addEventListener('change', () => this.#sync());
    this.#list.addEventListener('choose', () => this.#say(''));
    document.addEventListener('fullscreenchange', () => this.#raise());
    addEventListener('keydown', (event) => this.#shortcut(event), { capture: true });
    document.addEventListener('securitypolicyviolation', (event) => this.#violated(event));
    addEventListener('resize', () => this.#place());
    addEventListener('pagehide', () => keep(RUN + !this.#without, JSON.stringify(this.#run)));
    setInterval(() => this.#tick(), COLUMN_MS);
    setInterval(() => this.#ask(), ASK_MS);
    this.#sync();
    if (this.hasAttribute('docked')) {
      this.#panel.hidden = false;
      this.#badge.hidden = true;
      return;
    }
    this.setAttribute('popover', 'manual');
    this.#raise();
    this.#place(JSON.parse(kept(PLACE) || 'null') ?? undefined);
  }

  /** Opens or closes the panel. @param {boolean} open */
  toggle(open) {
    if (open === !this.#panel.hidden) return;
    this.#panel.hidden = !open;
    this.#badge.hidden = open;
    if (open) document.exitPointerLock?.();
    this.#enterDialog(open);
    this.#badge.setAttribute('aria-expanded', String(open));
    this.#place();
    this.#ask();
    this.#tick();
    (open ? this.#panel.querySelector('.move') : this.#badge).focus();
  }

  /** Brings the panel above what is in full screen: into it, if it can contain elements. */
  #raise() {
    const full = document.fullscreenElement;
    const home = !full || NO_CONTENT.test(full.tagName) ? document.documentElement : full;
    if (!this.isConnected || this.parentElement?.localName !== 'dialog') home.append(this);
    this.togglePopover?.(false);
    this.togglePopover?.(true);
  }

  /** Above a canvas in full screen, or a modal dialog, only another one can be clicked. @param {boolean} open */
  #enterDialog(open) {
    const full = document.fullscreenElement;
    if (open && ((full && NO_CONTENT.test(full.tagName)) || document.querySelector('dialog:modal'))) {
      const dialog = make('dialog', { close: () => this.toggle(false) }, this);
      document.documentElement.append(dialog);
      dialog.showModal();
    } else if (!open && this.parentElement?.localName === 'dialog') {
      const dialog = this.parentElement;
      document.documentElement.append(this);
      dialog.remove();
    } else return;
    this.#raise();
  }

  /** @param {KeyboardEvent} event */
  #shortcut(event) {
    if (!event.altKey || !event.shiftKey || event.code !== 'KeyR') return;
    event.preventDefault();
    event.stopImmediatePropagation();
    this.toggle(!!this.#panel.hidden);
  }

  // ---- what it shows

  #sync() {
    for (const [link, row] of this.#rows) {
      if (this.links.all.includes(link)) continue;
      row.root.remove();
      this.#rows.delete(link);
    }
    for (const link of this.links.all) {
      if (this.#rows.has(link)) continue;
      const row = new Row(link);
      this.#rows.set(link, row);
      link.addEventListener('story', (/** @type {any} */ { text, mood }) => {
        if (mood === 'good') {
          row.track.mark('back');
          this.#ask(true); // the session may be over soon
        }
        if (mood === 'bad') row.track.mark('lost');
        this.#tell(this.links.all.length > 1 ? `${link.name}: ${text}` : text, mood);
      });
      // Others may have begun a fault: the control API, or a rehearsal.
      link.addEventListener('detach', async () =>
        this.#follow(link.home, await this.#send(link, '/reseat.dev/faults', {}, link.home)),
      );
    }
    this.#list.append(...this.links.all.map((link) => /** @type {Row} */ (this.#rows.get(link)).root));
  }

  #tick() {
    if (this.#rows.size !== this.links.all.length) this.#sync();
    if (!this.isConnected) this.#raise(); // the page has replaced all that it had
    const { host, elsewhere } = this.links;
    if (elsewhere && this.links.all.length === 0)
      this.#say(
        `This page connects to ${elsewhere}, past the gateway. Name ${host} there, or give the gateway that address: --listen ${elsewhere}, and the game server another.`,
      );
    const states = this.links.current.map(({ state }) => state);
    const worst = WORST.find((state) => states.includes(state));
    this.#badge.dataset.state = worst ?? '';
    write(
      this.#says,
      `${this.#without ? 'Without Reseat' : 'Reseat'}: ${worst ? STATES[worst] : elsewhere ? 'not used' : 'no socket'}${states.length > 1 ? ` (${states.length})` : ''}`,
    );
    this.hidden = this.links.framed && states.length === 0;
    this.#restart.hidden = !this.links.all.some(({ gateway }) => gateway?.restart);
    this.#node.hidden = !kept(CLUSTER) || this.hasAttribute('docked'); // the demo has its own
    for (const row of this.#rows.values()) {
      row.tick();
      if (!this.#panel.hidden) row.show();
    }
  }

  /** @param {string} text @param {string} mood */
  #tell(text, mood) {
    const line = make('li', { 'data-mood': mood }, `${new Date().toLocaleTimeString('en-GB')} ${text}`);
    this.#story.prepend(line);
    while (this.#story.children.length > STORIES) this.#story.lastElementChild.remove();
    return line;
  }

  /** @param {string} text */
  #say(text) {
    write(this.#notice, text);
  }

  /** @param {SecurityPolicyViolationEvent} event */
  #violated({ blockedURI, disposition, effectiveDirective }) {
    const link = this.#targets[0];
    if (!link || disposition === 'report' || !blockedURI.startsWith(link.at(''))) return;
    this.#say(
      `The page's Content-Security-Policy forbids the panel to ask the gateway. Add: ${effectiveDirective} ${link.at('')}`,
    );
  }

  // ---- what it does

  /** The sessions that faults act on. */
  get #targets() {
    return this.links.all.filter(({ session, state }) => session && state !== 'closed');
  }

  /** The chosen ones of them, and one for all plain sockets, which share the page's key. */
  get #cuttable() {
    const chosen = this.links.all.filter((link) => this.#rows.get(link)?.chosen.checked);
    const plain = chosen.filter(({ session }) => !session).slice(0, 1); // a closed one, too: its page opens another
    return [...this.#targets.filter((link) => chosen.includes(link)), ...plain];
  }

  /** @param {[string, Fault, string]} what */
  #button([text, fault, title]) {
    return make(
      'button',
      {
        type: 'button',
        title,
        'data-testid': `cut-${fault.fault}${fault.direction ?? ''}`,
        click: () => this.cut(fault, text),
      },
      text,
    );
  }

  /**
   * Makes the connections of all sessions of the page fail. Returns the statuses of the gateway's answers.
   * @param {Fault | null} fault null ends all faults @param {string} [name]
   */
  async cut(fault, name = nameOf(fault)) {
    const links = fault?.fault === 'restart' ? this.#targets.slice(0, 1) : this.#cuttable;
    const none = this.links.all.some(({ state }) => state !== 'closed') ? 'Choose whose connection to cut.' : NO_SOCKET;
    this.#say(links.length > 0 ? '' : none);
    if (links.length === 0) return [];
    const at_s = Math.round(performance.now() / 1000);
    const line = fault && this.#tell(`${name}.`, ''); // its effects may come before the answer
    if (fault)
      for (const link of links) {
        this.#rows.get(link)?.track.mark('cut');
        link.cut();
      }
    const answers = await Promise.all(
      links.map(async (link) => {
        const node = link.at('');
        const answer = await this.#send(link, '/reseat.dev/faults', {
          method: fault ? 'POST' : 'DELETE',
          body: fault && JSON.stringify(fault),
        });
        await this.#follow(node, answer);
        return answer;
      }),
    );
    const taken = answers.some((answer) => answer?.ok);
    if (!taken) line?.remove();
    const refused = await Promise.all(answers.map(async (answer) => (answer?.ok === false ? answer.text() : '')));
    const why = refused.find((text) => text && !text.startsWith(LOST_ALREADY));
    if (why) this.#say(this.#asks.hidden ? `The gateway refuses: ${why.trim()}` : 'The gateway wants a token first.');
    else if (fault && taken) {
      this.#cuts.push({ at_s, name, fault });
      this.dispatchEvent(new CustomEvent('fault', { detail: { ...fault, sockets: links.map((link) => link.name) } }));
    }
    return answers.map((answer) => answer?.status ?? 0);
  }

  /** Leads the page away from a node that is lost to it. @param {string} node @param {Response | undefined} answer what it says of faults */
  async #follow(node, answer) {
    if (answer?.status !== 200 || this.links.led(node) !== node) return;
    const { nodes, ms } = await answer.json();
    const { host } = new URL(node);
    this.#tell(`${host} is lost to this page. It connects to ${this.links.lead(host, nodes, ms)}.`, 'warn');
  }

  /** @param {Link} link @param {string} path @param {RequestInit} [init] @param {string} [node] */
  async #send(link, path, init = {}, node = link.at('')) {
    const headers = {
      Authorization: link.session ? `Bearer ${link.token}` : `Page ${this.links.key}`,
      'Reseat-Dev': kept(TOKEN),
    };
    try {
      const answer = await fetch(node + path, { ...init, headers, cache: 'no-store', credentials: 'omit' });
      this.#asks.hidden = answer.status !== 403;
      return answer;
    } catch {
      if (!this.#notice.textContent) this.#say('The gateway does not answer the panel.');
      return undefined;
    }
  }

  /** @param {boolean} [always] not only while the panel is open */
  async #ask(always = false) {
    if (this.#panel.hidden && !always) return;
    for (const link of this.#targets) {
      const { counted } = link;
      let answer = await this.#send(link, '/reseat.dev/session');
      // Its connection goes through a node that does not have the session.
      if (answer?.status === 204 && link.home !== link.at(''))
        answer = await this.#send(link, '/reseat.dev/session', {}, link.home);
      if (answer?.status !== 200) continue;
      link.compare(await answer.json(), counted);
      if (link.gateway.cluster) keep(CLUSTER, '1'); // the run without the client does not learn it
    }
  }

  /** Whether airplane mode is on. */
  get flying() {
    return this.#airplane.getAttribute('aria-pressed') === 'true';
  }

  /** Takes the network away from the chosen sockets, for a minute at most, or gives it back. @param {boolean} on */
  async airplane(on) {
    if (on === this.flying) return;
    const statuses = await this.cut(on ? { fault: 'airplane', for: AIRPLANE } : null, 'Airplane mode');
    if (on && !statuses.includes(204)) return;
    this.#land(!on);
    if (on) this.#landing = setTimeout(() => this.#land(true), parseInt(AIRPLANE) * 1000);
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #landing;

  /** @param {boolean} landed */
  #land(landed) {
    clearTimeout(this.#landing);
    if (landed === this.flying) dispatchEvent(new Event(landed ? 'online' : 'offline')); // as browsers do
    this.#airplane.setAttribute('aria-pressed', String(!landed));
  }

  /** The run of this page. @returns {import('./report.js').Run} */
  get #run() {
    const now = performance.now();
    return {
      reseat: !this.#without,
      began: new Date(performance.timeOrigin).toISOString(),
      lasted_s: Math.round(now / 1000),
      cuts: this.#cuts,
      sockets: this.links.all.map((link) => /** @type {Row} */ (this.#rows.get(link)).report),
    };
  }

  /** The timelines, in the order of the sockets. */
  get tracks() {
    return this.links.all.map((link) => /** @type {Row} */ (this.#rows.get(link)).track);
  }

  /** This run, and the last one of the other kind in this tab. @returns {import('./report.js').Report} */
  report() {
    const run = this.#run;
    const other = /** @type {import('./report.js').Run | null} */ (JSON.parse(kept(RUN + !run.reseat) || 'null'));
    const runs = [run, ...(other ? [other] : [])];
    return { made: new Date().toISOString(), page: location.origin + location.pathname, runs };
  }

  /** The same, after the gateway was asked. */
  async freshReport() {
    await this.#ask(true);
    return this.report();
  }

  /** @param {'html' | 'json'} kind */
  async #save(kind) {
    const report = await this.freshReport();
    const text = kind === 'html' ? html(report) : JSON.stringify(report, null, 2);
    const file = new Blob([text], { type: kind === 'html' ? 'text/html' : 'application/json' });
    const link = make('a', { href: URL.createObjectURL(file), download: `reseat-report.${kind}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  /** Loads the page again with the other WebSocket: the same game, the same cuts. */
  #compare() {
    const without = this.#without;
    const other = () => {
      keep(WITHOUT, without ? '' : '1');
      location.reload();
    };
    return make(
      'button',
      { type: 'button', title: 'Loads the page again', click: other },
      without ? 'Play with Reseat again' : 'Play without Reseat',
    );
  }

  #sliders() {
    const slider = (/** @type {string} */ title, /** @type {number} */ max, /** @type {number} */ step) => {
      const id = title.toLowerCase();
      const says = make('output', {}, '0 ms');
      const input = make('input', {
        type: 'range',
        'data-testid': id,
        min: 0,
        max,
        step,
        value: 0,
        input: () => write(says, `${input.value} ms`),
        change: () => apply(),
      });
      return { input, label: make('label', {}, title, input, says) };
    };
    const latency = slider('Latency', 1000, 20);
    const jitter = slider('Jitter', 500, 10);
    const rate = make('select', { change: () => apply() });
    for (const [text, bytes] of [
      ['any', 0],
      ['1 MiB/s', 1 << 20],
      ['128 KiB/s', 128 << 10],
      ['32 KiB/s', 32 << 10],
      ['4 KiB/s', 4 << 10],
      ['1 KiB/s', 1 << 10],
    ])
      rate.append(make('option', { value: bytes }, `${text}`));
    const apply = () => {
      const fault = {
        fault: 'slow',
        for: '10m',
        latency: `${latency.input.value}ms`,
        jitter: `${jitter.input.value}ms`,
        rate: Number(rate.value) || undefined,
      };
      const none = !latency.input.valueAsNumber && !jitter.input.valueAsNumber && !fault.rate;
      this.cut(none ? null : fault, 'Slow line');
    };
    const clear = make(
      'button',
      {
        type: 'button',
        click: () => {
          for (const { input, label } of [latency, jitter]) {
            input.value = 0;
            write(label.querySelector('output'), '0 ms');
          }
          rate.value = '0';
          this.#land(true);
          this.cut(null);
        },
      },
      'End all faults',
    );
    return make('div', { class: 'buttons' }, latency.label, jitter.label, make('label', {}, 'Rate', rate), clear);
  }

  // ---- where it is

  /** Keeps the panel in the window. @param {{x: number, y: number}} [to] its right and bottom distance */
  #place(to = this.#at) {
    const { width, height } = this.getBoundingClientRect();
    this.#at = {
      x: Math.max(4, Math.min(to.x, innerWidth - width - 4)),
      y: Math.max(4, Math.min(to.y, innerHeight - height - 4)),
    };
    this.style.setProperty('inset', `auto ${this.#at.x}px ${this.#at.y}px auto`);
  }

  #at = { x: 12, y: 12 };

  #keep() {
    keep(PLACE, JSON.stringify(this.#at));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const by = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] }[event.key];
    if (!by) return;
    event.preventDefault();
    this.#place({ x: this.#at.x + by[0], y: this.#at.y + by[1] });
    this.#keep();
  }

  /** @param {PointerEvent} event */
  #drag(event) {
    const header = /** @type {HTMLElement} */ (event.currentTarget);
    if (/** @type {Element} */ (event.target).closest('button:not(.move)')) return;
    const from = { x: this.#at.x + event.clientX, y: this.#at.y + event.clientY };
    const move = (/** @type {PointerEvent} */ { clientX, clientY }) =>
      this.#place({ x: from.x - clientX, y: from.y - clientY });
    header.setPointerCapture(event.pointerId);
    header.addEventListener('pointermove', move);
    header.addEventListener(
      'lostpointercapture',
      () => (header.removeEventListener('pointermove', move), this.#keep()),
      { once: true },
    );
  }
}
