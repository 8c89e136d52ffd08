// @ts-check
// The dashboard, and its view for each address.
import { Api } from './api.js';
import { Charts } from './charts.js';
import { Drain } from './drain.js';
import { Feed, FeedPanel, useChanges } from './feed.js';
import { brief, span } from './format.js';
import { html } from './html.js';
import { Login } from './login.js';
import { Model } from './model.js';
import { Nodes } from './nodes.js';
import { RefusedPanel } from './refused.js';
import { RoutesPanel } from './routes.js';
import { SessionPage } from './session.js';
import { Sessions } from './table.js';
import { Tiles } from './totals.js';
import { Upgrade } from './upgrade.js';
import { useEffect, useReducer, useState } from './vendor/hooks.js';
import { render } from './vendor/preact.js';

/** How often the page is redrawn for the time alone, in ms. */
const TICK_MS = 500;
/** An answer older than this is marked as old, in ms. */
const OLD_MS = 6000;

const api = new Api();
const model = new Model(api);
const feed = new Feed(api);

function App() {
  useChanges(model);
  useTick();
  const id = useSession();
  const { overview, samples } = model;
  const host = overview?.host ?? '';
  useEffect(
    () =>
      void (document.title = [id ? `session ${brief(id)}` : 'sessions', host, 'Reseat'].filter(Boolean).join(' · ')),
    [id, host],
  );
  if (model.locked) return html`<${Top} /><${Login} model=${model} />`;
  return html`
    <${Top} />
    <main>
      ${!overview && html`<p class="waiting">${model.failure ? `${refusal(model.failure)} Retrying.` : 'Loading…'}</p>`}
      ${overview && html`<${Upgrade} upgrade=${overview.upgrade} />`}
      ${overview && html`<${Nodes} nodes=${overview.nodes} missing=${overview.nodes_missing} engine=${overview.engine} exposed=${overview.totals.durable.exposed} />`}
      ${overview && id && html`<${SessionPage} model=${model} id=${id} key=${id} />`}
      ${overview && !id && html`<${Tiles} overview=${overview} samples=${samples} /><${Charts} samples=${samples} totals=${overview.totals} /><${Sessions} model=${model} />`}
      ${overview && html`<${Live} />`}
      ${overview && !id && html`<div class="below"><${RefusedPanel} refusals=${model.refusals} total=${overview.refusals} /><${RoutesPanel} routes=${overview.routes} /></div>`}
    </main>
  `;
}

/** The feed runs while there is something to show. */
function Live() {
  useEffect(() => {
    feed.start();
    return () => feed.stop();
  }, []);
  return html`<${FeedPanel} feed=${feed} />`;
}

function Top() {
  const { overview } = model;
  return html`
    <header class="top">
      <h1>
        <svg viewBox="0 0 32 32" width="28" height="28" aria-hidden="true">
          <rect width="32" height="32" rx="8" />
          <path d="M11 7v11h10v7M11 18v7" />
        </svg>
        <a href="#/">Reseat</a>
      </h1>
      ${overview && html`<${Which} overview=${overview} />`}
      <p class="signs">
        ${overview && html`<${Drain} model=${model} />`}
        ${overview && !model.mayWrite && html`<span class="sign" data-testid="read-only">read-only</span>`}
        <${Freshness} />
        ${api.hasToken && !model.locked && html`<button type="button" class="small" onClick=${() => model.lock()}>Forget token</button>`}
      </p>
    </header>
  `;
}

/** Which gateway this is, among several. @param {{overview: any}} props */
function Which({ overview: { host, version, listen, id } }) {
  return html`<p class="which" data-testid="which">
    <bdi>${host}</bdi>${' '}
    <span class="faint">${version}, clients at <bdi>${listen}</bdi>, id <code title=${id}>${brief(id)}</code></span>
  </p>`;
}

/** Why there is nothing to show. @param {import('./api.js').Refusal} failure */
function refusal({ status, message }) {
  return status ? `The gateway refused: ${message}.` : 'The gateway is unreachable.';
}

/** Shows how old the data is. */
function Freshness() {
  if (!model.overview)
    return (
      model.failure &&
      !model.locked &&
      html`<span class="sign bad" role="status">${model.failure.status ? 'refused' : 'no answer'}</span>`
    );
  const age = performance.now() - model.answered; // it changes all the time, and must not be read aloud
  if (model.frozen && age <= OLD_MS) return html`<span class="sign warn" role="status">upgrading</span>`;
  if (model.failure || age > OLD_MS)
    return html`<span class="sign bad"><span role="status">not up to date</span>: last answer ${span(age)} ago</span>`;
  return html`<span class="sign good">live</span>`;
}

/** The session of the address, or empty. */
function useSession() {
  const read = () => decoded(/^#\/session\/([^/]+)$/.exec(location.hash)?.[1] ?? '');
  const [id, set] = useState(read);
  useEffect(() => {
    const change = () => set(read());
    addEventListener('hashchange', change);
    return () => removeEventListener('hashchange', change);
  }, []);
  return id;
}

/** Text out of an address; as it stands where it is no good. @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function useTick() {
  const [, tick] = useReducer((/** @type {number} */ n) => n + 1, 0);
  useEffect(() => {
    const timer = setInterval(tick, TICK_MS);
    return () => clearInterval(timer);
  }, []);
}

render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById('app')));
model.start();
