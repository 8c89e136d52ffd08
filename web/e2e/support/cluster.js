import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { DemoPage } from './demo.js';
import { start } from './processes.js';

/** What `make cluster` runs. */
const BIN = fileURLToPath(new URL('../../../bin/', import.meta.url));
const BINARY = process.env.RESEAT_BIN ?? `${BIN}reseat`;

/** The ports of a cluster, counted from its first. */
const PORTS = [0, 1, 2, 100, 101, 102, 200, 201, 202, 300];

/** @typedef {{name: string, url: string, host: string, pid: number}} Node */

/**
 * A cluster of three nodes with one game, as `make cluster` starts it, until the test ends.
 * @param {{after: (run: () => Promise<void>) => void}} t
 */
async function startCluster(t) {
  const first = await freePorts();
  const { child, gone } = start(
    `${BIN}cluster`,
    ['-bin', BINARY, '-nats', `${BIN}nats-server`, '-port', String(first)],
    process.env,
  );
  t.after(async () => {
    child.kill('SIGTERM');
    await gone;
  });
  /** @type {Node[]} */
  const nodes = [];
  let errors = '';
  child.stderr.on('data', (text) => (errors += text));
  const ready = new Promise((done) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      const [, name, url, pid] = /^ +(n\d) +(http:\S+) +kill -9 (\d+)/.exec(line) ?? [];
      if (name) nodes.push({ name, url, host: new URL(url).host, pid: Number(pid) });
      if (line.startsWith('Ctrl-C')) done(undefined);
    });
  });
  await Promise.race([ready, gone.then((how) => Promise.reject(new Error(`no cluster: ${how}: ${errors}`)))]);
  const admin = `http://127.0.0.1:${first + 100}/api/v1`;
  return {
    nodes,
    /** What the control API of the first node says. @param {string} path */
    api: async (path) => (await fetch(admin + path)).json(),
    /** @param {string} name */
    kill: (name) => process.kill(nodes.find((node) => node.name === name)?.pid ?? 0, 'SIGKILL'),
  };
}

/**
 * The demo's page at the first node of a cluster of the test's own.
 * @param {import('node:test').TestContext} t
 * @param {ReturnType<typeof import('./browser.js').suiteBrowser>} browser
 * @param {import('playwright-core').BrowserContextOptions} [look]
 */
export async function openCluster(t, browser, look = { viewport: { width: 1280, height: 900 } }) {
  const cluster = await startCluster(/** @type {any} */ (t));
  const page = await browser.page(/** @type {any} */ (t), look);
  const demo = await DemoPage.open(page, cluster.nodes[0].host);
  await demo.says('reseat-where', /^Seat and connection are at n1\.$/);
  return { cluster, demo, page, list: page.getByTestId('nodes').getByRole('button') };
}

async function freePorts() {
  for (let tries = 0; tries < 1000; tries++) {
    const first = 20_000 + Math.floor(Math.random() * 10_000); // the system gives connections higher ones
    const free = await Promise.all(PORTS.map((port) => isFree(first + port)));
    if (free.every(Boolean)) return first;
  }
  throw new Error('all ports are in use');
}

/** @param {number} port @returns {Promise<boolean>} */
function isFree(port) {
  return new Promise((done) => {
    const server = createServer();
    server.once('error', () => done(false));
    server.listen(port, '127.0.0.1', () => server.close(() => done(true)));
  });
}
