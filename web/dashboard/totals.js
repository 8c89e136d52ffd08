// @ts-check
// The numbers at the top of the page.
import { bytes, count, rtt, short, span } from './format.js';
import { html } from './html.js';
import { Meter, percent } from './marks.js';
import { rate } from './series.js';

/** @typedef {import('./series.js').Totals} Totals */

/** @param {{overview: any, samples: Totals[]}} props */
export function Tiles({ overview, samples }) {
  const { totals } = overview;
  const { attached, detached, connecting } = totals.sessions;
  const most = overview.max_sessions;
  return html`
    <section class="tiles" aria-label="Totals">
      <${Tile}
        name="Attached"
        value=${count(attached)}
        more=${most ? `of ${count(most)} at most` : connecting ? `${count(connecting)} connecting` : 'connected now'}
      />
      <${Tile} name="Detached" value=${count(detached)} more="sessions kept" />
      <${Tile} name="Resumed" value=${whole(totals.resumed)} more=${refusals(totals)} />
      <${Tile}
        name="Messages"
        value=${perSecond(samples, totals)}
        more=${`${short(totals.to_client)} down, ${short(totals.to_upstream)} up`}
      />
      <${Tile}
        name="Replay memory"
        value=${bytes(totals.buffer_bytes)}
        more=${html`<${Memory} held=${totals.buffer_bytes} most=${overview.buffer_max_bytes} />`}
      />
      <${Tile} name="Event loops" value=${totals.loops ? count(totals.loops) : 'none'} more=${busy(samples, totals)} />
      <${Tile}
        name="Round trip"
        value=${rtt(totals.rtt_median_ms)}
        more=${totals.rtt_p95_ms ? `95 % within ${rtt(totals.rtt_p95_ms)}` : 'none measured yet'}
      />
      <${Tile} name="Ended" value=${whole(totals.ended)} more=${commonest(overview.ended_by)} />
      <${Tile}
        name="Up for"
        value=${span(Date.parse(overview.time) - Date.parse(overview.since))}
        more=${missing(totals)}
      />
    </section>
  `;
}

/** Messages that clients have not got. @param {import('./series.js').Totals} totals */
function missing({ dropped, skipped }) {
  const texts = [dropped && `${count(dropped)} dropped`, skipped && `${count(skipped)} skipped`].filter(Boolean);
  return texts.length ? `messages: ${texts.join(', ')}` : 'no message dropped';
}

/** @param {{name: string, value: string, more: any}} props */
function Tile({ name, value, more }) {
  return html`<div class="tile">
    <h2>${name}</h2>
    <p class="big">${value}</p>
    <p class="more">${more}</p>
  </div>`;
}

/** @param {{held: number, most: number}} props */
function Memory({ held, most }) {
  const part = most > 0 ? Math.min(1, held / most) : 0;
  const level = part >= 0.9 ? 'bad' : part >= 0.5 ? 'warn' : 'good';
  return html`<${Meter} part=${part} level=${level} text=${`${percent(part)} of ${bytes(most)}`} />`;
}

/** @param {number} n */
function whole(n) {
  return n < 1_000_000 ? count(n) : short(n);
}

/** @param {Totals} totals */
function refusals({ refused }) {
  return refused ? `${count(refused)} refused` : 'none refused';
}

/** Messages both ways per second, since the last sample but one. @param {Totals[]} samples @param {Totals} now */
function perSecond(samples, now) {
  const before = samples.findLast(({ time }) => Date.parse(now.time) - Date.parse(time) > 3000);
  const n = rate(before, now, ({ to_client, to_upstream }) => to_client + to_upstream);
  return n === null ? '–' : `${short(n)}/s`;
}

/** How busy the event loops are together, in cores. @param {Totals[]} samples @param {Totals} now */
function busy(samples, now) {
  const before = samples.findLast(({ time }) => Date.parse(now.time) - Date.parse(time) > 3000);
  const ms = rate(before, now, ({ loop_busy_ms }) => loop_busy_ms);
  return ms === null || !now.loops ? '–' : `${(ms / 1000).toFixed(2)} cores busy`;
}

/** The reasons that most sessions ended for. @param {Record<string, number>} by */
export function commonest(by) {
  const list = Object.entries(by)
    .filter(([, n]) => n > 0)
    .sort(([, a], [, b]) => b - a);
  return (
    list
      .slice(0, 2)
      .map(([reason, n]) => `${short(n)} ${reason.replaceAll('_', ' ')}`)
      .join(', ') || 'none yet'
  );
}
