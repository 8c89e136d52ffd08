import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './port.js';
import { said, start } from './processes.js';
import { until } from './until.js';

// WebKitGTK's MiniBrowser, steered by WebDriver. It needs a display, which Xvfb is.

/** @param {string} driver the program */
export async function launchWebKit(driver) {
  const home = await mkdtemp(join(tmpdir(), 'reseat-webkit-'));
  const screen = start('Xvfb', ['-displayfd', '1', '-screen', '0', '1280x900x24', '-nolisten', 'tcp'], process.env);
  const display = await said(screen, /^(\d+)$/, screen.child.stdout);
  const port = await freePort();
  const { child, gone } = start(driver, ['--host=127.0.0.1', `--port=${port}`], {
    ...process.env,
    DISPLAY: `:${display}`,
    GDK_BACKEND: 'x11',
    HOME: home,
    XDG_RUNTIME_DIR: home,
    NO_AT_BRIDGE: '1',
  });
  let dead = '';
  gone.then((how) => (dead = `${driver}: ${how}`));
  /** @param {string} method @param {string} path @param {object} [body] */
  const call = async (method, path, body) => {
    const answer = await fetch(`http://127.0.0.1:${port}${path}`, { method, body: body && JSON.stringify(body) });
    const { value } = await answer.json();
    if (!answer.ok) throw new Error(`WebKit: ${value.error}: ${value.message}`);
    return value;
  };
  await until(
    'WebKitWebDriver answers',
    () =>
      dead ||
      call('GET', '/status').then(
        () => true,
        () => false,
      ),
  );
  if (dead) throw new Error(dead);
  const { sessionId, capabilities } = await call('POST', '/session', { capabilities: {} });
  const base = `/session/${sessionId}`;
  let turn = Promise.resolve();
  let current = '';
  /**
   * Calls go to the window that was chosen last, so each chooses its own.
   * @param {string} handle @param {string} method @param {string} path @param {object} [body]
   */
  const at = (handle, method, path, body) => {
    const result = turn.then(async () => {
      if (current !== handle) await call('POST', `${base}/window`, { handle });
      current = handle;
      return call(method, base + path, body);
    });
    turn = result.catch(() => {});
    return result;
  };
  const first = await call('GET', `${base}/window`);
  return {
    version: `WebKitGTK ${capabilities.browserVersion}`,
    pid: /** @type {number} */ (child.pid),
    offline: false,
    /** A tab is behind the page that is there, a window is not. @param {{hidden?: boolean}} how */
    async open({ hidden = false }) {
      const { handle } = await at(first, 'POST', '/window/new', { type: hidden ? 'tab' : 'window' });
      return new Page((method, path, body) => at(handle, method, path, body));
    },
    async stop() {
      await call('DELETE', base).catch(() => {});
      for (const process of [child, screen.child]) process.kill('SIGTERM');
      await Promise.all([gone, screen.gone]);
      await rm(home, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

class Page {
  #call;

  /** @param {(method: string, path: string, body?: object) => Promise<any>} call */
  constructor(call) {
    this.#call = call;
  }

  /** @param {string} url */
  goto = (url) => this.#call('POST', '/url', { url });
  reload = () => this.#call('POST', '/refresh', {});
  /** @param {number} delta */
  go = (delta) => this.#call('POST', delta < 0 ? '/back' : '/forward', {});
  close = () => this.#call('DELETE', '/window');

  /** @param {string} script whose value is JSON */
  async run(script) {
    const { value, error } = await this.#call('POST', '/execute/async', {
      script: `const done = arguments[0]; (${script}).then((value) => done({ value }), (error) => done({ error: String(error) }));`,
      args: [],
    });
    if (error) throw new Error(error);
    return value;
  }
}
