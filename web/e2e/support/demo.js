import assert from 'node:assert/strict';
import { until } from './until.js';

/** @typedef {import('playwright-core').Page} Page */

/** The demo's page, with what a browser had to complain about. */
export class DemoPage {
  page;
  /** Errors and warnings of the console, uncaught errors and violations of the CSP. @type {string[]} */
  complaints = [];
  /** Addresses asked for that are not the gateway's. @type {string[]} */
  strangers = [];

  /** @param {Page} page @param {string} host of the gateway */
  constructor(page, host) {
    this.page = page;
    /** @param {string} url */
    const check = (url) => {
      const { protocol, host: asked } = new URL(url);
      if (protocol !== 'data:' && asked !== host) this.strangers.push(url);
    };
    page.on('request', (request) => check(request.url()));
    page.on('websocket', (socket) => check(socket.url()));
    page.on('pageerror', (error) => this.complaints.push(error.message));
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) this.complaints.push(message.text());
    });
  }

  /**
   * Opens the demo and waits until both sides play.
   * @param {Page} page
   * @param {string} host
   */
  static async open(page, host) {
    const demo = new DemoPage(page, host);
    await page.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) =>
        console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`),
      );
    });
    await page.goto(`http://${host}/`);
    await demo.until('both sides play', ({ proof, plain }) => proof.phase === 'playing' && plain.phase === 'playing');
    return demo;
  }

  /** What both sides have counted. @returns {Promise<{proof: any, plain: any}>} */
  report() {
    return this.page.evaluate('({ proof: demo.proof(), plain: demo.plain() })');
  }

  /**
   * Waits until the report is so, and returns it.
   * @param {string} claim
   * @param {(report: {proof: any, plain: any}) => unknown} so
   * @param {number} [ms]
   */
  async until(claim, so, ms) {
    let report = { proof: null, plain: null };
    await until(claim, async () => so((report = await this.report())), { ms, also: () => report });
    return report;
  }

  /** @param {string} id */
  part(id) {
    return this.page.getByTestId(id);
  }

  /** Waits until a part of the page reads so. @param {string} id @param {RegExp} text */
  async says(id, text) {
    let read = '';
    await until(`${id} reads ${text}`, async () => text.test((read = (await this.part(id).textContent()) ?? '')), {
      also: () => read,
    });
  }

  /** Lets the autopilot play until both sides have scored. @param {number} points */
  async score(points) {
    return this.until(
      `${points} points on both sides`,
      ({ proof, plain }) => Math.min(proof.score, plain.score) >= points,
    );
  }

  /** Nobody else was asked, and the browser had nothing to complain of, but for what is expected. @param {RegExp} [expected] */
  clean(expected = /^$/) {
    assert.deepEqual(this.strangers, [], 'nobody else is asked');
    assert.deepEqual(
      this.complaints.filter((text) => !expected.test(text)),
      [],
      'the browser complains of nothing',
    );
  }

  /** Ends the autopilot, as a person does. */
  async stand() {
    await this.part('autopilot').uncheck();
  }
}

/**
 * The same session in the same seat, with no message missed, doubled or out of order.
 * @param {any} before @param {any} after
 */
export function wantKept(before, after) {
  assert.deepEqual([after.session, after.seat], [before.session, before.seat], 'session and seat');
  assert.ok(after.score >= before.score, `${after.score} points, before ${before.score}`);
  assert.deepEqual([after.missed, after.twice, after.outOfOrder], [0, 0, 0], 'messages');
  assert.deepEqual([after.up.missed, after.up.twice, after.up.outOfOrder], [0, 0, 0], 'inputs');
  assert.deepEqual([after.lost, after.seatsLost, after.pointsLost], [0, 0, 0], 'nothing lost');
  assert.ok(after.received > before.received && after.up.received > before.up.received, 'the game went on');
}
