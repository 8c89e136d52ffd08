// @ts-check
// The table of routes.
import { count, short } from './format.js';
import { html } from './html.js';

/**
 * @typedef {object} RouteFigures
 * @property {string} pattern
 * @property {string} upstream
 * @property {{connecting: number, attached: number, detached: number}} sessions
 * @property {number} created
 * @property {number} detached how often a client was lost
 * @property {number} resumed
 * @property {number} refused
 * @property {number} ended
 * @property {string} keepalive the flag for what clients send at a steady pace; empty for nothing
 * @property {string} newest_hint the flag for messages that look like states; empty for none
 */

/** @type {[string, (route: RouteFigures) => string][]} */
const COLUMNS = [
  ['Attached', ({ sessions }) => count(sessions.attached)],
  ['Detached', ({ sessions }) => count(sessions.detached)],
  ['Created', ({ created }) => whole(created)],
  ['Disconnects', ({ detached }) => whole(detached)],
  ['Resumed', ({ resumed }) => whole(resumed)],
  ['Refused', ({ refused }) => whole(refused)],
  ['Ended', ({ ended }) => whole(ended)],
];

/** @param {number} n */
function whole(n) {
  return n < 100_000 ? count(n) : short(n);
}

/** @param {{routes: RouteFigures[]}} props */
export function RoutesPanel({ routes }) {
  return html`
    <section class="panel routes" aria-labelledby="routes-title">
      <header>
        <h2 id="routes-title">Routes</h2>
        <span class="hint">since the process started; Attached and Detached are of now</span>
      </header>
      <div class="scroll" role="group" aria-labelledby="routes-title" tabindex="0" data-testid="routes">
        <table>
          <thead>
            <tr>
              <th scope="col">Route</th>
              ${COLUMNS.map(([name]) => html`<th scope="col">${name}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${routes.map((route) => html`<${Row} key=${route.pattern} route=${route} />`)}
          </tbody>
        </table>
      </div>
    </section>
  `;
}

/** @param {{route: RouteFigures}} props */
function Row({ route }) {
  return html`<tr>
    <th scope="row">
      <bdi>${route.pattern}</bdi><span class="more">${route.upstream}</span>
      ${
        route.keepalive &&
        html`<span class="more"
          >clients send, steadily: <code><bdi>${route.keepalive}</bdi></code></span
        >`
      }
      ${
        route.newest_hint &&
        html`<span class="more"
          >clients get what looks like states: <code><bdi>${route.newest_hint}</bdi></code></span
        >`
      }
    </th>
    ${COLUMNS.map(([, read]) => html`<td>${read(route)}</td>`)}
  </tr>`;
}
