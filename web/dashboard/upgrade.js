// @ts-check
// The last upgrade of the gateway to a new process.
import { count, many, rtt, span } from './format.js';
import { html } from './html.js';

/**
 * An upgrade as the API shows it.
 * @typedef {object} Upgraded
 * @property {'none' | 'running' | 'ok' | 'refused' | 'aborted'} state
 * @property {string} from
 * @property {string} to empty while it is not known
 * @property {{moved: number, pumped: number, kept: number}} sessions
 * @property {number} freeze_ms
 * @property {string} error
 */

/** One line, or nothing where there was no upgrade. @param {{upgrade: Upgraded | undefined}} props */
export function Upgrade({ upgrade }) {
  const said = upgrade && line(upgrade);
  if (!said) return null;
  const { level, text, error } = said;
  return html`<p class="upgrade ${level}" role="status" data-testid="upgrade">
    ${text}${error && html`: <bdi>${error}</bdi>`}${level === 'bad' && html`. This process continues with all sessions.`}
  </p>`;
}

/** What is said of an upgrade, null where there was none. @param {Upgraded} upgrade */
export function line({ state, from, to, sessions, freeze_ms, error }) {
  const where = to && ` to ${to}`;
  switch (state) {
    case 'running':
      return { level: 'warn', text: `Upgrading${where}, sessions continue`, error: '' };
    case 'ok':
      return { level: 'good', text: `Upgraded from ${from}${where}: ${moved(sessions, freeze_ms)}`, error: '' };
    case 'refused':
    case 'aborted':
      return { level: 'bad', text: `Upgrade${where} ${state}`, error };
    default:
      return null;
  }
}

/** @param {Upgraded['sessions']} sessions @param {number} ms */
function moved({ moved, pumped, kept }, ms) {
  return [
    `${many(moved + pumped, 'session')} handed over in ${ms < 1000 ? rtt(ms) : span(ms)}`,
    pumped > 0 && `${count(pumped)} of them by way of the older process`,
    kept > 0 && `${count(kept)} followed later`,
  ]
    .filter(Boolean)
    .join(', ');
}
