// @ts-check
// Refused handshakes and resumes, each with the flag that would change it.
import { clock, count } from './format.js';
import { html } from './html.js';

/**
 * A refusal as the API shows it.
 * @typedef {{time: string, status: number, code: number | null, why: string, path: string, peer: string, hint: string}} Refused
 */

/** @param {{refusals: Refused[], total: number}} props */
export function RefusedPanel({ refusals, total }) {
  return html`
    <section class="panel refused" id="refused" aria-labelledby="refused-title">
      <header>
        <h2 id="refused-title">Refused</h2>
        <span class="hint" data-testid="refused-total">${summary(refusals.length, total)}</span>
      </header>
      <div class="log" role="log" aria-live="off" aria-labelledby="refused-title" tabindex="0" data-testid="refused">
        <ol>
          ${refusals.map((refusal) => html`<${Line} ...${refusal} />`)}
        </ol>
        ${total === 0 && html`<p class="empty">No client was refused.</p>`}
      </div>
    </section>
  `;
}

/** @param {number} shown @param {number} total */
export function summary(shown, total) {
  if (total === 0) return 'handshakes and resumes';
  return total > shown ? `the newest ${count(shown)} of ${count(total)}` : count(total);
}

/** A hint as its flag, empty where there is none, and what to do. @param {string} hint */
export function parts(hint) {
  const [, flag, words] = /^(--[a-z-]+): (.*)$/s.exec(hint) ?? ['', '', hint];
  return { flag, words: words.replace(/^no setting: /, '') };
}

/** Text with its flags as code: they are not broken at their hyphens. @param {string} text */
function withFlags(text) {
  return text.split(/(--[a-z-]+)/).map((part, i) => (i % 2 ? html`<code>${part}</code>` : part));
}

/** @param {Refused} refusal */
function Line({ time, status, code, why, path, peer, hint }) {
  const { flag, words } = parts(hint);
  return html`
    <li data-kind="bad">
      <time datetime=${time}>${clock(time)}</time>
      <span class="mark" aria-hidden="true">✕</span>
      <span>
        <b>${code ?? status}</b> <bdi>${why}</bdi>${' '}
        <span class="why"><bdi>${path}</bdi> from <bdi>${peer}</bdi></span>
        <span class="advice">${flag && html`<code>${flag}</code> `}${withFlags(words)}</span>
      </span>
    </li>
  `;
}
