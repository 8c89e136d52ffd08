import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WebSocket } from 'ws';
import { said, start } from './processes.js';

// Firefox, steered by WebDriver BiDi.

/** It asks for nothing but what pages ask for, and reaches loopback alone. */
const PREFS = {
  'app.update.enabled': false,
  'browser.aboutwelcome.enabled': false,
  'browser.newtabpage.enabled': false,
  'browser.safebrowsing.malware.enabled': false,
  'browser.safebrowsing.phishing.enabled': false,
  'browser.sessionstore.resume_from_crash': false,
  'browser.shell.checkDefaultBrowser': false,
  'browser.startup.homepage_override.mstone': 'ignore',
  'datareporting.policy.dataSubmissionEnabled': false,
  'datareporting.policy.firstRunURL': '',
  'dom.push.connection.enabled': false,
  'dom.push.enabled': false,
  'extensions.update.enabled': false,
  'network.captive-portal-service.enabled': false,
  'network.connectivity-service.enabled': false,
  'network.dns.disablePrefetch': true,
  'network.prefetch-next': false,
  'network.proxy.http': '127.0.0.1',
  'network.proxy.http_port': 9,
  'network.proxy.no_proxies_on': '127.0.0.0/8',
  'network.proxy.ssl': '127.0.0.1',
  'network.proxy.ssl_port': 9,
  'network.proxy.type': 1,
  'network.trr.mode': 5,
  'services.settings.server': 'data:,',
  'toolkit.telemetry.enabled': false,
};

/** @param {string} file the program */
export async function launchFirefox(file) {
  const profile = await mkdtemp(join(tmpdir(), 'reseat-firefox-'));
  const prefs = Object.entries(PREFS).map((pref) => `user_pref(${pref.map((part) => JSON.stringify(part))});\n`);
  await writeFile(join(profile, 'user.js'), prefs.join(''));
  const args = ['--headless', '--no-remote', '--profile', profile, '--remote-debugging-port=0', 'about:blank'];
  const started = start(file, args, { ...process.env, HOME: profile });
  const { child, gone } = started;
  const address = await said(started, /BiDi listening on (ws:\S+)/);
  const call = await connect(`${address}/session`);
  const { capabilities } = await call('session.new', { capabilities: {} });
  return {
    version: `Firefox ${capabilities.browserVersion}`,
    pid: /** @type {number} */ (child.pid),
    offline: true,
    /** @param {{hidden?: boolean}} how */
    async open({ hidden = false }) {
      const type = hidden ? 'tab' : 'window'; // a window is visible, whichever is in front
      const { context } = await call('browsingContext.create', { type, background: hidden });
      return new Page(call, context);
    },
    async stop() {
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), 5_000);
      await gone;
      clearTimeout(timer);
      await rm(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** @typedef {(method: string, params: object) => Promise<any>} Call */

/** @param {string} url @returns {Promise<Call>} */
async function connect(url) {
  const socket = new WebSocket(url);
  /** @type {Map<number, [(result: any) => void, (error: Error) => void]>} */
  const waiting = new Map();
  let id = 0;
  socket.on('message', (data) => {
    const { id, type, result, error, message } = JSON.parse(String(data));
    const [done, fail] = waiting.get(id) ?? [() => {}, () => {}];
    waiting.delete(id);
    if (type === 'error') fail(new Error(`Firefox: ${error}: ${message}`));
    else done(result);
  });
  socket.on('close', () => waiting.forEach(([, fail]) => fail(new Error('Firefox has gone'))));
  await new Promise((done, fail) => socket.once('open', done).once('error', fail));
  return (method, params) =>
    new Promise((done, fail) => {
      waiting.set(++id, [done, fail]);
      socket.send(JSON.stringify({ id, method, params }));
    });
}

class Page {
  #call;
  #context;

  /** @param {Call} call @param {string} context */
  constructor(call, context) {
    this.#call = call;
    this.#context = context;
  }

  /** @param {string} method @param {object} [params] */
  #do(method, params) {
    return this.#call(`browsingContext.${method}`, { context: this.#context, ...params });
  }

  /** @param {string} url */
  goto = (url) => this.#do('navigate', { url, wait: 'complete' });
  reload = () => this.#do('reload', { wait: 'complete' });
  /** @param {number} delta */
  go = (delta) => this.#do('traverseHistory', { delta });
  /** As people close a tab: the page gets `beforeunload`. */
  close = () => this.#do('close', { promptUnload: true });

  /** @param {string} script whose value is JSON */
  async run(script) {
    const { result, exceptionDetails } = await this.#call('script.evaluate', {
      target: { context: this.#context },
      expression: script,
      awaitPromise: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.text);
    return result.value;
  }

  /** @param {boolean} off */
  offline = (off) =>
    this.#call('emulation.setNetworkConditions', {
      networkConditions: off ? { type: 'offline' } : null,
      contexts: [this.#context],
    });
}
