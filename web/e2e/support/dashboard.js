import assert from 'node:assert/strict';
import { violations } from './looks.js';
import { until } from './until.js';

/** @typedef {import('playwright-core').Page} Page */

/** The dashboard, with what a browser had to complain about. */
export class Dashboard {
  page;
  /** Errors and warnings of the console, uncaught errors and violations of the CSP. @type {string[]} */
  complaints = [];
  /** Addresses asked for that are not the admin address's. @type {string[]} */
  strangers = [];
  /** Paths asked for, with their queries. @type {string[]} */
  asked = [];

  /** @param {Page} page @param {string} admin */
  constructor(page, admin) {
    this.page = page;
    page.on('request', (request) => {
      const { protocol, host, pathname, search } = new URL(request.url());
      if (protocol !== 'data:' && host !== admin) this.strangers.push(request.url());
      this.asked.push(pathname + search);
    });
    page.on('pageerror', (error) => this.complaints.push(error.message));
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) this.complaints.push(message.text());
    });
  }

  /** @param {Page} page @param {string} admin host and port @param {string} [hash] */
  static async open(page, admin, hash = '') {
    const dashboard = new Dashboard(page, admin);
    await page.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) =>
        console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`),
      );
    });
    await page.goto(`http://${admin}/${hash}`);
    return dashboard;
  }

  /** @param {string} id */
  part(id) {
    return this.page.getByTestId(id);
  }

  /** The rows that are in the page and have a session. */
  rows() {
    return this.page.locator('.row:not(.waiting)');
  }

  /** Waits until a part of the page reads so. @param {string} id @param {RegExp} text */
  async says(id, text) {
    let read = '';
    await until(
      `${id} reads ${text}`,
      async () =>
        text.test(
          (read =
            (await this.part(id)
              .textContent({ timeout: 1000 })
              .catch(() => '')) ?? ''),
        ),
      { also: () => read },
    );
  }

  /** Fails for what axe finds wrong: roles, names, contrast, focus. @param {string} when */
  async accessible(when) {
    const found = await violations(this.page);
    assert.deepEqual(found, [], when);
  }

  /** What reaches beyond the window's right edge makes the page scroll sideways. */
  async fits() {
    const { wide, seen } = await this.page.evaluate(() => ({
      wide: document.documentElement.scrollWidth,
      seen: innerWidth,
    }));
    assert.ok(wide <= seen, `the page is ${wide} wide in a window of ${seen}`);
  }

  /** Nobody else was asked, and the browser had nothing to complain of. */
  clean() {
    assert.deepEqual(this.strangers, [], 'nobody else is asked');
    assert.deepEqual(this.complaints, [], 'the browser complains of nothing');
  }
}

/** As many sessions as one likes, as the API would show them. @param {number} total */
export function crowd(total) {
  const began = Date.now() - 3_600_000;
  return Array.from({ length: total }, (_, i) => {
    const away = i % 7 === 0;
    const iso = (/** @type {number} */ ms) => new Date(ms).toISOString();
    return {
      id: (0x100000000 + i * 2654435761).toString(16).slice(-8).padEnd(32, 'a'),
      state: away ? 'detached' : 'attached',
      player: `player-${i}`,
      group: `match-${i % 500}`,
      peer: `198.51.100.${i % 250}`,
      route: '/match/*',
      path: `/match/${i % 500}`,
      client: 'resumable',
      resumable: true,
      started: true,
      since: iso(began + i * 300),
      grace: '30s',
      overflow: 'pause',
      detached_since: away ? iso(Date.now() - 9000) : null,
      expires: away ? iso(Date.now() + 1000 * (8 + (i % 29))) : null,
      ended_since: null,
      rtt_ms: away ? null : 12 + (i % 90),
      silent_ms: away ? 9000 : i % 500,
      received: i,
      written: i,
      sent: 3 * i,
      acked: 3 * i,
      buffer_messages: away ? 7 * (i % 500) : 0,
      buffer_bytes: away ? 2000 * (i % 500) : 0,
      buffer_max_messages: 4096,
      buffer_max_bytes: 1 << 20,
      durable: 'no',
      epoch: 0,
      moved: '',
    };
  });
}

const ROUTES = ['/match/*', '/chess/*', '/*'].map((pattern, i) => ({
  pattern,
  upstream: `ws://10.0.0.${i + 2}:9000`,
  sessions: { connecting: 0, attached: 8571 >> (2 * i), detached: 1429 >> (2 * i) },
  created: 12_034 >> i,
  detached: 250_000 >> i,
  resumed: 248_000 >> i,
  refused: 17 * i,
  ended: 1200 >> i,
}));

/** Refusals of several kinds, as the API would show them. @param {number} total */
export function refusalsOf(total) {
  const kinds = [
    [
      403,
      null,
      'origin: https://play.example',
      "--origin: add the page's origin; if a proxy changes Host, it must send X-Forwarded-Host, and needs --trusted-proxy",
    ],
    [101, 4404, 'no_session: grace_over', '--grace: the client was away for longer'],
    [
      502,
      4502,
      'upstream: 10.0.0.2:9000: connect: connection refused',
      '--upstream: the game server cannot be reached; reseat check says why',
    ],
    [401, null, 'unauthorized: expired', 'no setting: the page needs a newer login'],
    [404, null, 'no_route', '--route: no pattern matches this path'],
  ];
  return Array.from({ length: total }, (_, i) => {
    const [status, code, why, hint] = kinds[i % kinds.length];
    const path = i % 7 === 3 ? `/lobby/${'very-long-'.repeat(19)}` : `/match/${i}`;
    return {
      time: new Date(Date.now() - i * 7000).toISOString(),
      status,
      code,
      why,
      path,
      peer: `198.51.100.${i}`,
      hint,
    };
  });
}

/** What a gateway says that was never upgraded. */
export const NO_UPGRADE = {
  state: 'none',
  from: '',
  to: '',
  sessions: { moved: 0, pumped: 0, kept: 0 },
  freeze_ms: 0,
  error: '',
};

/**
 * Replaces the gateway's overview, with as many sessions.
 * @param {Page} page
 * @param {number} total
 * @param {{ms?: number, refusals?: object[], draining?: boolean, upgrade?: object}} [options] how long an answer takes, who was refused, whether it drains, the last upgrade
 * @returns what was answered, and what can be changed: the start of the process, its last upgrade, whether that has frozen the sessions, what it says of its cluster, its sessions and how many of them are durable
 */
export async function fake(page, total, { ms = 0, refusals = [], draining = false, upgrade = NO_UPGRADE } = {}) {
  const sessions = crowd(total);
  const since = new Date(Date.now() - 7.4e7).toISOString(); // another one would be another process
  const answers = {
    count: 0,
    rows: 0,
    bytes: 0,
    asked: '',
    since,
    upgrade,
    frozen: false,
    cluster: {},
    durable: { covered: 0, exposed: 0 },
    sessions,
  };
  const base = {
    created: total,
    refused: 3,
    ended: 1234,
    replayed: 5,
    dropped: 0,
    to_upstream_bytes: 1,
    to_client_bytes: 1,
    rtt_median_ms: 31,
    rtt_p95_ms: 96,
    buffer_bytes: 245_000_000,
    loops: 2,
    loop_busy_ms: 0,
  };
  const counts = { connecting: 3, attached: Math.round((total * 6) / 7), detached: Math.round(total / 7) };
  const totals = (/** @type {number} */ at, /** @type {number} */ i) => {
    const wave = Math.sin(i / 9) * 0.04;
    return {
      ...base,
      time: new Date(at).toISOString(),
      sessions: {
        ...counts,
        attached: Math.round(counts.attached * (0.96 + wave)),
        detached: Math.round(counts.detached * (1 - 3 * wave)),
      },
      durable: answers.durable,
      created: i * 40,
      detached: i * 90 + 300 * Math.sin(i / 7),
      resumed: Math.round(i * 88 + 300 * Math.sin(i / 7 - 0.4)),
      to_upstream: i * 400_000,
      to_client: i * 1_100_000 + 900_000 * Math.sin(i / 5),
      buffer_bytes: base.buffer_bytes * (1 + 4 * wave),
    };
  };
  const samples = Array.from({ length: 120 }, (_, i) => totals(Date.now() - (120 - i) * 5000, i));
  await page.route('**/api/v1/overview?*', async (route) => {
    const query = new URL(route.request().url()).searchParams;
    answers.asked = query.get('since') ?? '';
    if (answers.frozen) {
      await route.fulfill({ status: 503, json: { title: 'x', status: 503, detail: 'an upgrade is under way' } });
      return;
    }
    const fit = sessions.filter(
      ({ state, player }) =>
        (!query.get('state') || query.get('state') === state) &&
        (!query.get('q') || player.includes(query.get('q') ?? '')),
    );
    const limit = Number(query.get('limit'));
    const offset = Math.min(Number(query.get('offset')), Math.max(0, fit.length - limit));
    const rows = fit.slice(offset, offset + limit);
    const body = JSON.stringify({
      time: new Date().toISOString(),
      since: answers.since,
      upgrade: answers.upgrade,
      id: '5e0b7d0e6d1f4b7f8d6a3a0f6f0b3c21',
      host: 'gw1.play.example',
      version: 'v0.9.0',
      listen: '[::]:8080',
      draining,
      drain_until: draining ? new Date(Date.now() + 252_000).toISOString() : null,
      drain_time: '10s',
      write: true,
      max_sessions: 20_000,
      buffer_max_bytes: 2 ** 30,
      every: '5s',
      totals: totals(Date.now(), 120),
      ended_by: { bye: 800, grace_over: 400, ended: 34 },
      resumes_by: { ok: 10_560, bad_token: 3 },
      refusals: refusals.length,
      routes: ROUTES,
      samples: query.get('since') ? [] : samples,
      matching: fit.length,
      offset,
      sessions: rows,
      ...answers.cluster,
    });
    answers.count++;
    answers.rows = Math.max(answers.rows, rows.length);
    answers.bytes = Math.max(answers.bytes, body.length);
    await new Promise((done) => setTimeout(done, ms));
    await route.fulfill({ contentType: 'application/json', body }).catch(() => {}); // the page may be gone
  });
  await page.route('**/api/v1/refusals', (route) => route.fulfill({ json: { refusals } }));
  return answers;
}
