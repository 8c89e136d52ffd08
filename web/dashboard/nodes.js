// @ts-check
// The nodes of a cluster.
import { ago, count, many, rtt, span } from './format.js';
import { html } from './html.js';

/**
 * A node as the API shows it.
 * @typedef {object} Node
 * @property {string} name
 * @property {string} id
 * @property {'up' | 'draining' | 'silent' | 'gone'} state
 * @property {string} version
 * @property {string} address
 * @property {number} sessions
 * @property {number} heartbeat_age_ms 0 for the one that answers
 * @property {number} forwards_in
 * @property {number} forwards_out
 */

/** The mark of each state differs in shape, not in colour alone. */
const MARKS = { up: '●', draining: '◐', silent: '○', gone: '■' };
const LEVELS = { up: 'good', draining: 'warn', silent: 'bad', gone: 'bad' };

/**
 * The connection to NATS of the node that answers.
 * @typedef {object} Engine
 * @property {boolean} up
 * @property {number} servers
 * @property {number} replicas
 * @property {number} rtt_ms
 * @property {string} since when `up` changed last
 */

/**
 * Empty for a single node, unless it has lost NATS or has exposed sessions.
 * @param {{nodes: Node[] | undefined, missing: string[] | undefined, engine: Engine | undefined, exposed: number}} props
 */
export function Nodes({ nodes = [], missing = [], engine, exposed }) {
  if (nodes.length < 2 && engine?.up !== false && exposed === 0) return null;
  return html`
    <section class="nodes" aria-label="Nodes" data-testid="nodes">
      <ul>
        ${nodes.map((node, i) => html`<${Item} key=${node.id} node=${node} own=${i === 0} missing=${i > 0 && missing.includes(node.name)} />`)}
        ${engine && html`<${Light} engine=${engine} />`} ${exposed > 0 && html`<${Exposed} n=${exposed} />`}
      </ul>
    </section>
  `;
}

/** @param {{node: Node, own: boolean, missing: boolean}} props */
function Item({ node, own, missing }) {
  const level = missing ? 'bad' : LEVELS[node.state];
  return html`<li data-level=${level} title=${`id ${node.id}, at ${node.address}`}>
    <span class="mark" aria-hidden="true">${MARKS[node.state]}</span>
    <b><bdi>${node.name}</bdi></b
    >${' '} <span class="state">${missing ? `${node.state}, does not answer` : node.state}</span>${' '}
    <span class="faint">${facts(node, own)}</span>
  </li>`;
}

/** NATS. @param {{engine: Engine}} props */
function Light({ engine }) {
  return html`<li data-level=${engine.up ? 'good' : 'bad'} title="As the node that answers sees it">
    <span class="mark" aria-hidden="true">${engine.up ? MARKS.up : MARKS.silent}</span>
    <b>NATS</b>${' '} <span class="state">${engine.up ? 'up' : 'lost'}</span>${' '}
    <span class="faint">${engineFacts(engine, Date.now())}</span>
  </li>`;
}

/** Durable sessions that are not covered. @param {{n: number}} props */
function Exposed({ n }) {
  return html`<li
    data-level="bad"
    data-testid="exposed"
    title="NATS does not have what another node needs to go on with them"
  >
    <span class="mark" aria-hidden="true">△</span>
    <b>${many(n, 'durable session')}</b>${' '} <span class="state">exposed</span>${' '}
    <span class="faint">lost if ${n === 1 ? 'its node is' : 'their nodes are'}</span>
  </li>`;
}

/** What is said of NATS. @param {Engine} engine @param {number} now */
export function engineFacts({ up, servers, replicas, rtt_ms, since }, now) {
  const lasts = span(Math.max(now - Date.parse(since), 0));
  if (!up) return `for ${lasts}: players notice nothing, new nodes are not seen`;
  return `${many(servers, 'server')}, ${many(replicas, 'replica')}, ${rtt(rtt_ms)}, for ${lasts}`;
}

/** What is said of a node. @param {Node} node @param {boolean} own whether it is the one that answers */
export function facts({ version, sessions, forwards_in, forwards_out, heartbeat_age_ms }, own) {
  return [
    version,
    many(sessions, 'session'),
    `forwards ${count(forwards_in)} in, ${count(forwards_out)} out`,
    own ? 'this one' : `heard ${ago(heartbeat_age_ms)}`,
  ].join(', ');
}
