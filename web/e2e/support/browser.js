import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { chromium } from 'playwright-core';
import { said, start } from './processes.js';

/** The browser. */
const EXECUTABLE = process.env.CHROMIUM ?? '/usr/bin/chromium';

const ARGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Some versions of Chromium keep no page with an open WebSocket in the back/forward cache unless they are asked to. */
const CACHE_PAGES = '--enable-features=DisconnectWebSocketOnBFCache';

/** @typedef {import('playwright-core').Browser} Browser */
/** @typedef {import('playwright-core').BrowserContext} BrowserContext */

/** A Chromium for the tests of one suite. */
class SuiteBrowser {
  /** @type {Browser | undefined} */
  browser;

  /**
   * A context of its own, with nothing stored, until the test ends.
   * @param {{after: (run: () => Promise<void>) => void}} t
   * @param {import('playwright-core').BrowserContextOptions} [options]
   * @returns {Promise<BrowserContext>}
   */
  async context(t, options) {
    const context = await /** @type {Browser} */ (this.browser).newContext(options);
    t.after(() => context.close());
    return context;
  }

  /**
   * A page in a context of its own.
   * @param {{after: (run: () => Promise<void>) => void}} t
   * @param {import('playwright-core').BrowserContextOptions} [options]
   */
  async page(t, options) {
    return (await this.context(t, options)).newPage();
  }
}

/** Chromium, with a new profile. It hangs on a pipe of this process, and so does not outlive it. */
export function launch() {
  return chromium.launch({
    executablePath: EXECUTABLE,
    args: ARGS,
    handleSIGINT: false,
    handleSIGTERM: false,
    handleSIGHUP: false,
  });
}

/** A Chromium that runs while the tests of the suite around the call do. */
export function suiteBrowser() {
  const own = new SuiteBrowser();
  before(async () => void (own.browser = await launch()));
  after(() => own.browser?.close());
  return own;
}

/**
 * A Chromium as people have it, while the tests of the suite around the call run:
 * Playwright keeps every page in the foreground and the back/forward cache off,
 * and neither of that is so here. All pages share one context.
 */
export function ordinaryBrowser() {
  /** @type {Awaited<ReturnType<typeof launchOrdinary>> | undefined} */
  let own;
  before(async () => void (own = await launchOrdinary()));
  after(() => own?.stop());
  return {
    /** The ids of the processes that run its pages. */
    async renderers() {
      const session = await /** @type {Browser} */ (own?.browser).newBrowserCDPSession();
      const { processInfo } = await session.send('SystemInfo.getProcessInfo');
      return processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => id);
    },
    /** A page until the test ends. @param {{after: (run: () => Promise<void>) => void}} t */
    async page(t) {
      const page = await /** @type {Browser} */ (own?.browser).contexts()[0].newPage();
      t.after(() => page.close());
      return page;
    },
  };
}

export async function launchOrdinary() {
  const profile = await mkdtemp(join(tmpdir(), 'reseat-e2e-'));
  const own = [
    CACHE_PAGES,
    '--headless',
    '--disable-breakpad',
    '--remote-debugging-port=0',
    `--user-data-dir=${profile}`,
  ];
  const started = start(EXECUTABLE, [...ARGS, ...own, 'about:blank'], process.env);
  const { child, gone } = started;
  const address = await said(started, /DevTools listening on (ws:\S+)/);
  const browser = await chromium.connectOverCDP(address, { noDefaults: true });
  const stop = async () => {
    const session = await browser.newBrowserCDPSession();
    await session.send('Browser.close').catch(() => child.kill('SIGKILL'));
    await gone;
    await rm(profile, { recursive: true, maxRetries: 5 });
  };
  return { browser, stop, pid: /** @type {number} */ (child.pid) };
}
