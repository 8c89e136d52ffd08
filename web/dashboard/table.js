// @ts-check
// The table of sessions. Only the rows that are seen, and a few beyond, are in
// the page.
import { brief, count, many, rtt, span } from './format.js';
import { html } from './html.js';
import { Buffered, Grace, Signs, State } from './marks.js';
import { opener } from './opener.js';
import { usePhone } from './phone.js';
import { drawn, reach, scrollTo, step } from './rows.js';
import { useEffect, useLayoutEffect, useRef, useState } from './vendor/hooks.js';

/** Heights of a row in px, as in table.css: a line, or on a phone three. */
const ROW = 40;
const TALL_ROW = 76;

/** @typedef {import('./model.js').Model} Model */
/** @typedef {import('./api.js').Session} Session */

/**
 * The columns, each with its class in table.css, and the API's name of the order in
 * which its values rise, if there is one, and of the one that is asked for first.
 */
const COLUMNS = [
  { name: 'Session', part: 'id' },
  { name: 'Player', part: 'player', rising: 'player', first: 'player' },
  { name: 'Group', part: 'group', rising: 'group', first: 'group' },
  { name: 'State', part: 'in' },
  { name: 'Grace left', part: 'grace', rising: 'grace', first: 'grace' },
  { name: 'Buffer', part: 'buffer', rising: 'buffer', first: '-buffer' },
  { name: 'Round trip', part: 'rtt', rising: 'rtt', first: '-rtt' },
  { name: 'Address', part: 'peer' },
  { name: 'Age', part: 'age', rising: '-since', first: '-since' },
];

const STATES = [
  ['', 'All current'],
  ['attached', 'Attached'],
  ['detached', 'Detached'],
  ['connecting', 'Connecting'],
  ['ended', 'Recently ended'],
];

/** @param {{model: Model}} props */
export function Sessions({ model }) {
  const matching = model.overview?.matching ?? 0;
  return html`
    <section class="panel sessions" aria-labelledby="sessions-title">
      <header>
        <h2 id="sessions-title">Sessions</h2>
        <span class="hint" role=${searched(model) ? 'status' : undefined} data-testid="matching"
          >${found(model, matching)}</span
        >
        <${Tools} model=${model} />
      </header>
      <${Grid} model=${model} matching=${Math.min(matching, reach(model.overview))} />
    </section>
  `;
}

/** Whether something is looked for. What is found is read aloud; that players come and go is not. @param {Model} model */
function searched({ view: { text, state } }) {
  return text !== '' || state !== '';
}

/** @param {Model} model @param {number} matching */
function found(model, matching) {
  if (!model.overview) return '';
  const most = reach(model.overview);
  const beyond = matching > most ? `, the first ${count(most)} can be scrolled to` : '';
  return `${count(matching)}${searched(model) ? ' found' : ''}${beyond}`;
}

/** @param {{model: Model}} props */
function Tools({ model }) {
  const { text, state, sort } = model.view;
  return html`
    <div class="tools" role="search">
      <label class="grow">
        <span class="hidden">Find player, group, address, path, route or id</span>
        <input
          type="search"
          value=${text}
          maxlength="100"
          placeholder="Player, group, address, path or id"
          spellcheck="false"
          autocomplete="off"
          data-testid="search"
          onInput=${(/** @type {any} */ event) => model.look({ text: event.target.value.trim() })}
        />
      </label>
      <label>
        <span class="hidden">State</span>
        <select
          value=${state}
          data-testid="state"
          onChange=${(/** @type {any} */ event) => model.look({ state: event.target.value })}
        >
          ${STATES.map(([value, name]) => html`<option value=${value}>${name}</option>`)}
        </select>
      </label>
      <label class="order">
        <span class="hidden">Order</span>
        <select value=${sort} onChange=${(/** @type {any} */ event) => model.look({ sort: event.target.value })}>
          ${orders().map(([value, name]) => html`<option value=${value}>${name}</option>`)}
        </select>
      </label>
    </div>
  `;
}

/** The sort orders, for views that do not show every column head. */
function orders() {
  return [
    ['since', 'Oldest first'],
    ['-since', 'Newest first'],
    ['player', 'By player'],
    ['group', 'By group'],
    ['grace', 'Least grace left'],
    ['-buffer', 'Fullest buffer'],
    ['-rtt', 'Slowest'],
  ];
}

/** @param {{model: Model, matching: number}} props */
function Grid({ model, matching }) {
  const body = useRef(/** @type {HTMLElement | null} */ (null));
  const row = usePhone() ? TALL_ROW : ROW;
  const [view, setView] = useState({ top: 0, height: 600 });
  const [active, setActive] = useState(-1);
  const span = drawn({ ...view, row, total: matching });
  useSize(body, setView);
  useEffect(() => model.scroll(span), [span.first, span.end, matching]);
  useLayoutEffect(() => {
    setActive(-1);
    if (body.current) body.current.scrollTop = 0;
  }, [model.view]);

  const go = (/** @type {number} */ at) => {
    setActive(at);
    if (body.current) body.current.scrollTop = scrollTo(at, { ...view, row });
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.target !== event.currentTarget || event.altKey || event.ctrlKey || event.metaKey) return;
    const session = event.key === 'Enter' && model.row(active);
    const to = step(event.key, active, { page: Math.floor(view.height / row), total: matching });
    if (session) location.hash = `#/session/${session.id}`;
    if (to >= 0) go(to);
    if (session || to >= 0) event.preventDefault();
  };

  return html`
    <div
      class="grid"
      role="grid"
      aria-labelledby="sessions-title"
      aria-rowcount=${matching + 1}
      aria-colcount=${COLUMNS.length}
      aria-activedescendant=${active >= span.first && active < span.end ? `row-${active}` : undefined}
      tabindex="0"
      data-testid="grid"
      onKeyDown=${onKeyDown}
    >
      <${Head} model=${model} />
      <div
        class="body"
        role="rowgroup"
        ref=${body}
        onScroll=${(/** @type {any} */ event) => setView(seen(event.currentTarget))}
        data-testid="rows"
      >
        <div role="presentation" class="all" style=${{ height: `${matching * row}px` }}>
          ${places(span).map((at) => html`<${Row} key=${at} at=${at} top=${at * row} session=${model.row(at)} active=${at === active} now=${model.now} />`)}
        </div>
        ${matching === 0 && model.overview && html`<${Nothing} model=${model} />`}
      </div>
    </div>
  `;
}

/** @param {{model: Model}} props */
function Nothing({ model }) {
  return html`<div role="row" class="empty">
    <span role="gridcell" aria-colspan=${COLUMNS.length}
      >${searched(model) ? 'No matching sessions.' : none(model)}</span
    >
  </div>`;
}

/** What to say where there is no session. @param {Model} model */
function none(model) {
  const { refusals, totals } = model.overview ?? { refusals: 0, totals: { created: 0, ended: 0 } };
  if (totals.ended > 0)
    return html`No sessions now. ${many(totals.ended, 'session')} ended since the process started.${' '}
      <button type="button" class="small" onClick=${() => model.look({ state: 'ended' })}>Show recent ones</button>`;
  if (totals.created > 0 || refusals === 0) return 'No sessions yet. They appear here as clients connect.';
  return html`No sessions yet, but ${count(refusals)} refused: <a href="#refused">see why</a>.`;
}

/** @param {import('./rows.js').Span} span */
function places({ first, end }) {
  return Array.from({ length: end - first }, (_, i) => first + i);
}

/** @param {HTMLElement} body */
function seen({ scrollTop, clientHeight }) {
  return { top: scrollTop, height: clientHeight };
}

/** @param {{current: HTMLElement | null}} body @param {(view: {top: number, height: number}) => void} set */
function useSize(body, set) {
  useLayoutEffect(() => {
    const element = body.current;
    if (!element) return;
    const observer = new ResizeObserver(() => set(seen(element)));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
}

/** @param {{model: Model}} props */
function Head({ model }) {
  return html`
    <div role="rowgroup" class="head">
      <div role="row" aria-rowindex="1">
        ${COLUMNS.map((column) => html`<${HeadCell} ...${column} model=${model} />`)}
      </div>
    </div>
  `;
}

/** The order the other way round. @param {string} order */
function turned(order) {
  return order.startsWith('-') ? order.slice(1) : `-${order}`;
}

/** @param {{name: string, part: string, rising?: string, first?: string, model: Model}} props */
function HeadCell({ name, part, rising, first, model }) {
  if (!rising || !first) return html`<span role="columnheader" class=${part}>${name}</span>`;
  const now = model.view.sort;
  const direction = now === rising ? 'ascending' : now === turned(rising) ? 'descending' : 'none';
  const click = () => model.look({ sort: direction === 'none' ? first : turned(now) });
  return html`
    <span role="columnheader" class=${part} aria-sort=${direction}>
      <button type="button" onClick=${click}>
        ${name}<span class="way" aria-hidden="true">${{ ascending: '▲', descending: '▼', none: '' }[direction]}</span>
      </button>
    </span>
  `;
}

/** @param {{at: number, top: number, session: Session | undefined, active: boolean, now: number}} props */
function Row({ at, top, session, active, now }) {
  const place = { id: `row-${at}`, 'aria-rowindex': at + 2, style: { transform: `translateY(${top}px)` } };
  if (!session)
    return html`<div role="row" class="row waiting" ...${place}>
      <span role="gridcell" aria-colspan=${COLUMNS.length}>…</span>
    </div>`;
  return html`
    <div
      role="row"
      class="row"
      ...${place}
      data-state=${session.state}
      data-active=${active}
      aria-selected=${active}
      onClick=${opener(session.id)}
    >
      <span role="gridcell" class="id"
        ><a href=${`#/session/${session.id}`} tabindex="-1" title=${session.path}>${brief(session.id)}</a></span
      >
      <span role="gridcell" class="player" title=${session.player}
        >${session.player || html`<span class="faint">no player</span>`}</span
      >
      <span role="gridcell" class="group" title=${session.group}
        >${session.group || html`<span class="faint">–</span>`}</span
      >
      <span role="gridcell" class="in"><${State} state=${session.state} /><${Signs} session=${session} /></span>
      <span role="gridcell" class="grace"
        >${session.state === 'ended' ? html`<span class="why" title=${session.reason}>${(session.reason ?? '').replaceAll('_', ' ')}</span>` : html`<${Grace} session=${session} now=${now} />`}</span
      >
      <span role="gridcell" class="buffer"><${Buffered} session=${session} /></span>
      <span role="gridcell" class="rtt">${rtt(session.rtt_ms)}</span>
      <span
        role="gridcell"
        class="peer"
        title=${session.node ? `${session.peer} at node ${session.node}` : session.peer}
        >${session.peer || html`<span class="faint">–</span>`}${session.node && html`<span class="faint"> · ${session.node}</span>`}</span
      >
      <span role="gridcell" class="age"
        >${span((session.ended_since ? Date.parse(session.ended_since) : now) - Date.parse(session.since))}</span
      >
    </div>
  `;
}
