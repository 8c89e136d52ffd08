// @ts-check
// The state of a drain, and the buttons that begin and cancel it.
import { Ask } from './dialog.js';
import { many, period, span } from './format.js';
import { html } from './html.js';
import { useState } from './vendor/hooks.js';

/** @typedef {import('./model.js').Model} Model */

/** @param {{model: Model}} props */
export function Drain({ model }) {
  const [asked, setAsked] = useState(/** @type {'' | 'begin' | 'cancel'} */ (''));
  const { draining, drain_until } = model.overview;
  const close = (/** @type {boolean} */ done) => {
    setAsked('');
    if (done) model.refresh();
  };
  return html`
    ${draining && html`<span class="sign warn" data-testid="draining"><span role="status">draining: no new sessions</span>${left(model, drain_until)}</span>`}
    ${model.mayWrite && html`<button type="button" class="small" onClick=${() => setAsked(draining ? 'cancel' : 'begin')} data-testid="drain">${draining ? 'Cancel drain…' : 'Drain…'}</button>`}
    ${asked && html`<${asked === 'cancel' ? Cancel : Begin} model=${model} close=${close} />`}
  `;
}

/** What is left of a drain; it runs on, and is not to be read aloud. @param {Model} model @param {string | null} until */
function left(model, until) {
  if (!until) return '';
  const n = living(model.overview.totals.sessions);
  return `, the ${many(n, 'session')} left ${n === 1 ? 'closes' : 'close'} in ${span(Math.max(0, Date.parse(until) - model.now))}`;
}

/** @typedef {{connecting: number, attached: number, detached: number}} Counts */

/** @param {Counts} counts */
function living({ connecting, attached, detached }) {
  return connecting + attached + detached;
}

/** @param {{model: Model, close: (done: boolean) => void}} props */
function Begin({ model, close }) {
  const { totals, drain_time } = model.overview;
  return html`
    <${Ask} title="Drain this gateway?" does="Drain" danger act=${() => model.api.drain()} close=${close}>
      <p>
        New sessions get 503 from now on, and <code>/readyz</code> fails, so that a load balancer sends new players
        elsewhere. Clients can still resume.
      </p>
      <p>
        After ${period(drain_time)} (<code>--drain</code>) whatever is left of
        the${' '}${many(living(totals.sessions), 'session')} ends with 4503. The process keeps running. Until then you
        can cancel the drain; afterwards you can still have new sessions accepted again.
      </p>
    <//>
  `;
}

/** @param {{model: Model, close: (done: boolean) => void}} props */
function Cancel({ model, close }) {
  return html`
    <${Ask}
      title="Cancel the drain?"
      does="Cancel drain"
      keep="Keep draining"
      act=${() => model.api.cancelDrain()}
      close=${close}
    >
      <p>New sessions are accepted again, and no session is ended any more.</p>
    <//>
  `;
}
