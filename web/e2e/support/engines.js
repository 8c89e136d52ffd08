import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { after, before, describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Script } from 'node:vm';
import { launchOrdinary } from './browser.js';
import { launchFirefox } from './firefox.js';
import { until } from './until.js';
import { launchWebKit } from './webkit.js';

/** Each engine with the programs that it needs, the first of which is the one to start. */
const ENGINES = {
  Chromium: { needs: [process.env.CHROMIUM ?? 'chromium'], launch: launchChromium },
  Firefox: { needs: [process.env.FIREFOX ?? 'firefox-esr'], launch: launchFirefox },
  WebKit: { needs: ['WebKitWebDriver', 'Xvfb'], launch: launchWebKit },
};

/** @typedef {keyof typeof ENGINES} Name */

/** ENGINES='Firefox WebKit' takes no others. */
const WANTED = process.env.ENGINES?.split(' ') ?? Object.keys(ENGINES);

/** What .ci/parts says at its end. */
const ABSENT = fileURLToPath(new URL('../../../bin/absent', import.meta.url));

/** The programs of an engine that are not installed. @param {Name} name */
function missing(name) {
  return ENGINES[name].needs.filter((program) => {
    try {
      execFileSync('sh', ['-c', 'command -v "$0"', program]);
      return false;
    } catch {
      return true;
    }
  });
}

/**
 * Tests in a browser of each engine, which runs while they do. Where an engine is not installed, that
 * is said with the results, and again at the end of `make test` and `make proof`.
 * @param {string} claim
 * @param {(engine: Engine) => void} tests
 * @param {Name[]} [names]
 */
export function inEngines(claim, tests, names = /** @type {Name[]} */ (Object.keys(ENGINES))) {
  for (const name of names.filter((name) => WANTED.includes(name))) {
    const absent = missing(name);
    const skip = absent.length > 0 && `NOT TESTED in ${name}: no ${absent.join(', ')}; see .ci/tools`;
    if (skip) {
      console.error(skip);
      mkdirSync(new URL('.', `file://${ABSENT}`), { recursive: true });
      appendFileSync(ABSENT, `${skip}: ${claim}\n`);
    }
    describe(`${name}: ${claim}`, { skip }, () => {
      const engine = new Engine(name);
      before(() => engine.start());
      after(() => engine.stop());
      tests(engine);
    });
  }
}

/** A browser of one engine. */
export class Engine {
  /** @type {any} */
  #browser;

  /** @param {Name} name */
  constructor(name) {
    this.name = name;
  }

  async start() {
    const { needs, launch } = ENGINES[this.name];
    this.#browser = await launch(needs[0]);
  }

  stop = () => this.#browser?.stop();

  get version() {
    return this.#browser.version;
  }

  /** Whether its pages can be put offline. */
  get canBeOffline() {
    return this.#browser.offline;
  }

  /**
   * A page until the test ends: visible, or behind another one.
   * @param {{after: (run: () => Promise<any>) => void}} t
   * @param {{hidden?: boolean}} [how]
   */
  async page(t, how = {}) {
    const page = new Page(await this.#browser.open(how));
    t.after(() => page.close().catch(() => {}));
    return page;
  }

  /** Stops all processes of the browser, as when the machine sleeps, until the returned function is called. */
  sleep() {
    const ids = descendants(this.#browser.pid);
    const signal = (/** @type {string} */ name) =>
      ids.forEach((id) => {
        try {
          process.kill(id, name);
        } catch {
          // It has ended.
        }
      });
    signal('SIGSTOP');
    return () => signal('SIGCONT');
  }
}

/** A page of any engine: what is common to Playwright's, WebDriver's and BiDi's. */
export class Page {
  #own;

  /** @param {any} own */
  constructor(own) {
    this.#own = own;
  }

  /** @param {string} url */
  goto = (url) => this.#own.goto(url);
  reload = () => this.#own.reload();
  back = () => this.#own.go(-1);
  forward = () => this.#own.go(1);
  close = () => this.#own.close();
  /** @param {boolean} off */
  offline = (off) => this.#own.offline(off);

  /**
   * The value of an expression, or what a function returns; a promise is awaited. Statements have none.
   * @param {string | ((given: any) => unknown)} script
   * @param {unknown} [given]
   * @returns {Promise<any>}
   */
  async evaluate(script, given) {
    const value = typeof script === 'function' ? `(${script})(${JSON.stringify(given)})` : script;
    const body = isExpression(value) ? `return (${value});` : value;
    const text = await this.#own.run(`(async () => { ${body} })().then((value) => JSON.stringify(value) ?? '')`);
    return text ? JSON.parse(text) : undefined;
  }

  /** Waits until a script has a true value; while a page loads it may have none. @param {string} script @param {number} [ms] */
  waitForFunction(script, ms) {
    return until(script, () => this.evaluate(`Boolean(${script})`).catch(() => false), { ms });
  }
}

/** @param {string} text */
function isExpression(text) {
  try {
    return Boolean(new Script(`async () => (${text})`));
  } catch {
    return false;
  }
}

/** Chromium has many processes, of which some are others' children. @param {number} root @returns {number[]} */
function descendants(root) {
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((id) => [Number(id), parentOf(id)]);
  const found = [root];
  for (const pid of found) found.push(...parents.filter(([, parent]) => parent === pid).map(([id]) => id));
  return found;
}

/** @param {string} id */
function parentOf(id) {
  try {
    return Number(/\) \S (\d+) /.exec(readFileSync(`/proc/${id}/stat`, 'utf8'))?.[1]);
  } catch {
    return 0; // it has ended
  }
}

async function launchChromium() {
  const { browser, stop, pid } = await launchOrdinary();
  const context = browser.contexts()[0];
  return {
    version: `Chromium ${browser.version()}`,
    pid,
    offline: true,
    /** @param {{hidden?: boolean}} how */
    async open({ hidden = false }) {
      const page = await context.newPage();
      const session = await context.newCDPSession(page);
      const focus = (/** @type {boolean} */ enabled) => session.send('Emulation.setFocusEmulationEnabled', { enabled });
      await focus(!hidden);
      if (hidden) await context.newPage(); // the one in front
      return {
        goto: (/** @type {string} */ url) => page.goto(url),
        reload: () => page.reload(),
        go: (/** @type {number} */ delta) => page.evaluate(`history.go(${delta})`),
        close: () => page.close(),
        run: (/** @type {string} */ script) => page.evaluate(script),
        offline: (/** @type {boolean} */ offline) =>
          session.send('Network.emulateNetworkConditions', {
            offline,
            latency: 0,
            downloadThroughput: -1,
            uploadThroughput: -1,
          }),
      };
    },
    stop,
  };
}
