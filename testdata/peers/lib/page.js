// As much of a web page as a client library needs, in this process: its own address, a
// WebSocket that sends an Origin, scripts from the server or from the recipes page.

import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { runInThisContext } from 'node:vm';
import { WebSocket as NodeWebSocket } from 'ws';
import { declared, replaced } from './recipes.js';
import { Tap } from './tap.js';

const XMLHttpRequest = createRequire(import.meta.url)('xmlhttprequest-ssl');

const OUT = fileURLToPath(new URL(`../out/${process.pid}/`, import.meta.url));

const MODULE = / type="module"/;

/** Scripts written so far: a module is loaded once, so each needs a name of its own. */
let scripts = 0;

/** A WebSocket that says which page it belongs to, as a browser's does. */
class PageWebSocket extends NodeWebSocket {
  constructor(url, protocols) {
    super(url, protocols, { origin: location.origin });
  }
}

/** What a plain page gets for /reseat.js. */
const PLAIN = `export class ReseatSocket extends WebSocket {
  constructor(url, protocols) {
    super(url, protocols);
  }
}`;

/** The sessionStorage of a tab. */
class TabStorage {
  #items = new Map();

  getItem(key) {
    return this.#items.get(key) ?? null;
  }

  setItem(key, value) {
    this.#items.set(key, String(value));
  }

  removeItem(key) {
    this.#items.delete(key);
  }
}

/** One page at a time: it stands in this process's globals. */
export class Page {
  /** What its sockets do. */
  tap = new Tap();
  #addresses = {};
  #client = null;
  #leaving = [];
  #storage = new TabStorage();
  #plain;

  /** Made before the other parts of `t`, the page is left before they end. A plain one's scripts get native WebSockets. */
  constructor(t, plain = false) {
    this.#plain = plain;
    t.after(() => this.#leave());
  }

  /** Opens the page at its origin. `addresses` has what stands in the recipe's code, and what to put there. */
  open(origin, addresses = {}) {
    this.#addresses = addresses;
    const window = new EventTarget();
    const { addEventListener, removeEventListener, dispatchEvent } = window;
    for (const method of [addEventListener, removeEventListener, dispatchEvent]) globalThis[method.name] = method.bind(window);
    Object.assign(globalThis, { WebSocket: PageWebSocket, XMLHttpRequest, location: new URL(origin), sessionStorage: this.#storage });
    mkdirSync(OUT, { recursive: true });
  }

  /** Loads the page again, in the same tab: its scripts are still to be run. Nothing of the old page's code may run on. */
  reload() {
    dispatchEvent(new Event('pagehide'));
    this.tap = new Tap();
    this.#client = null;
    this.#leaving = [];
    this.open(location.origin, this.#addresses);
  }

  /** What the page does when it is left: end the library's connection. */
  onLeave(run) {
    this.#leaving.push(run);
  }

  async #leave() {
    for (const run of this.#leaving) await run();
    await this.tap.until(() => this.tap.closed);
    rmSync(OUT, { recursive: true, force: true });
  }

  /**
   * Runs the scripts of the HTML one after the other, as a browser does. The engine or library
   * of a classic script that `files`, the code of `src="/NAME"` by name, does not have is taken to
   * be there already. Resolves with what the modules declare with `const` at the top.
   */
  async run(html, files = {}) {
    const scripts = [...html.matchAll(/<script([^>]*)>([^]*?)<\/script>/g)];
    assert.ok(scripts.length > 0, 'the page has scripts');
    const names = {};
    for (const [, attributes, inline] of scripts) {
      const [, src] = / src="\/([^"]+)"/.exec(attributes) ?? [];
      if (src === 'reseat.install.js') await (this.#plain || this.#install(attributes));
      else if (MODULE.test(attributes)) Object.assign(names, await this.module(src ? files[src] : inline));
      else if (src in files) runInThisContext(files[src], src);
    }
    return names;
  }

  /** Runs the install script, as the element with these attributes does. */
  async #install(attributes) {
    const src = `${location.origin}/reseat.install.js`;
    const dataset = {};
    for (const [, name, value = ''] of attributes.matchAll(/data-([a-z-]+)(?:="([^"]*)")?/g)) {
      dataset[name.replace(/-(.)/g, (_, letter) => letter.toUpperCase())] = value;
    }
    const script = await (await fetch(src)).text();
    const document = { currentScript: { src, dataset }, baseURI: location.href };
    Reflect.deleteProperty(globalThis, 'Reseat'); // an earlier page's
    Object.assign(globalThis, { document });
    try {
      runInThisContext(script, src);
    } finally {
      Reflect.deleteProperty(globalThis, 'document');
    }
    this.tap.attach(globalThis.Reseat.ReseatSocket);
  }

  /** Runs one module. Resolves with what it declares. */
  async module(code) {
    const own = await this.#withFetchedImports(replaced(code, this.#addresses));
    return import(this.#write(`${own}\nexport { ${declared(code)} };\n`));
  }

  /** Replaces what a module imports from a server by files that hold it. */
  async #withFetchedImports(code) {
    let own = code;
    for (const [, specifier] of code.matchAll(/from '((?:https?:\/)?\/[^']+)'/g)) {
      own = own.replace(`'${specifier}'`, `'${await this.#fetched(new URL(specifier, location.href))}'`);
    }
    return own;
  }

  /** The file that holds the script. */
  async #fetched(url) {
    if (url.pathname !== '/reseat.js') return this.#write(await fetchScript(url));
    if (this.#plain) return this.#write(PLAIN);
    this.#client ??= this.#fetchClient(url);
    return this.#client;
  }

  /** The gateway's client is one module however often it is imported; what its sockets do is tapped. */
  async #fetchClient(url) {
    const file = this.#write(await fetchScript(url));
    this.tap.attach((await import(file)).ReseatSocket);
    return file;
  }

  /** The file, under this project's own node_modules. */
  #write(code) {
    const file = `${OUT}${++scripts}.mjs`;
    writeFileSync(file, code);
    return file;
  }
}

/** */
async function fetchScript(url) {
  const answer = await fetch(url);
  assert.equal(answer.status, 200, `GET ${url}`);
  if (url.origin !== location.origin) assert.equal(answer.headers.get('access-control-allow-origin'), '*');
  assert.match(answer.headers.get('content-type') ?? '', /^(text|application)\/javascript/);
  return answer.text();
}
