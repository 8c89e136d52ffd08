// @ts-check
// The report of a run: what was cut, what the player felt, what the game server saw, and which
// settings that asks for. Pure, but for the clock of a run.

/** @typedef {import('./links.js').Link} Link */

/**
 * @typedef {object} SocketReport
 * @property {string} url without a query
 * @property {boolean} reseat
 * @property {number} messages_in
 * @property {number} messages_out
 * @property {number} missed
 * @property {number} duplicated
 * @property {number} replayed
 * @property {number} skipped replaced by newer states
 * @property {number} sessions_lost
 * @property {string} ended how the session ended; '' if it did not
 * @property {number[]} outages_ms as the player felt them
 * @property {number} noticed_ms the longest time until one was noticed
 * @property {number} round_trip_ms the longest
 * @property {number} game_server_outages how often the gateway lost the game server
 * @property {{messages: number, bytes: number}} buffered the most that the gateway kept, as far as it was seen
 * @property {Record<string, any>} settings of its session
 * @property {number[]} seconds messages of each second; -1: none, since the connection was gone
 * @property {{line: string, why: string}[]} advice
 */

/** @typedef {{at_s: number, name: string, fault: object}} Cut */
/** @typedef {{reseat: boolean, began: string, lasted_s: number, cuts: Cut[], sockets: SocketReport[]}} Run */
/** @typedef {{made: string, page: string, runs: Run[]}} Report */

const MOST_SECONDS = 900;

/**
 * What a Link is in a report.
 * @param {Link} link @param {number[]} seconds @param {DOMStringMap} [script] the attributes of the page's own script
 * @returns {SocketReport}
 */
export function socketReport(link, seconds, script = {}) {
  const g = link.gateway ?? {};
  const report = {
    url: link.url.origin + link.url.pathname,
    reseat: link.session !== '',
    messages_in: link.delivered,
    messages_out: link.sends,
    missed: link.missed,
    duplicated: link.duplicated,
    replayed: link.replayed,
    skipped: link.skipped,
    sessions_lost: link.sessionsLost,
    ended: link.ended && !link.ended.left ? link.ended.how : link.missing ? 'the page opened no other connection' : '',
    outages_ms: link.outages.map(Math.round),
    noticed_ms: Math.round(link.noticed),
    round_trip_ms: Math.round(link.slowest),
    game_server_outages: link.upstreamLost,
    buffered: { messages: Math.max(link.most.messages, link.longestReplay), bytes: link.most.bytes },
    settings: {
      grace: g.grace,
      heartbeat: g.heartbeat,
      'answer-timeout': g.answer_timeout,
      overflow: g.overflow,
      'buffer-messages': g.buffer_max_messages,
      'buffer-bytes': g.buffer_max_bytes,
    },
    seconds: seconds.slice(-MOST_SECONDS),
    advice: /** @type {{line: string, why: string}[]} */ ([]),
  };
  report.advice = advice(report, link, script);
  return report;
}

/** Durations as the gateway writes them, in ms. @param {string} [text] */
export function parseDuration(text = '') {
  const units = /** @type {Record<string, number>} */ ({ h: 3600_000, m: 60_000, s: 1000, ms: 1 });
  return [...text.matchAll(/([\d.]+)(h|ms|m|s)/g)].reduce((sum, [, n, unit]) => sum + Number(n) * units[unit], 0);
}

/** The next larger of 1, 2, 5, 10, 20, 50 and so on. @param {number} n */
function round(n) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(1, n)));
  return ([1, 2, 5, 10].find((step) => step * ten >= n) ?? 10) * ten;
}

/** A flag of the gateway, quoted for a shell, as a line of the config file. @param {string} flag */
function configLine(flag) {
  const [, name, value] = /^--([\w-]+) '(.*)'$/s.exec(flag) ?? [];
  return name ? `${name} = [${JSON.stringify(value.replaceAll("'\\''", "'"))}]` : flag;
}

/** The script's element with attributes, and what it keeps from happening. @type {Record<string, [string, string]>} */
const SCRIPTS = {
  'engine.io': [
    'data-hide-offline data-keepalive="engine.io"',
    'as the first script of the page: the client of Socket.IO disconnects when no ping comes, or when the browser says that it is offline',
  ],
  colyseus: [
    'data-hide-offline',
    'as the first script of the page: since 0.17 the client of Colyseus disconnects when the browser says that it is offline; the gateway answers the pings of its server',
  ],
};

/** @param {URL} url @param {import('./wire.js').Wire} wire */
const inPage = (url, wire) => SCRIPTS[wire.protocolOf(url).split(' ')[0]] ?? ['', ''];

/** @param {URL} url @param {import('./wire.js').Wire} wire */
const tag = (url, wire) => `<script src="/reseat.install.js" ${inPage(url, wire)[0]}`.trimEnd() + '></script>';

/** What is known of libraries: the line that the gateway needs, and why. @type {Record<string, [string, string, string]>} */
const LIBRARIES = {
  'engine.io': [
    'keepalive-reply',
    'keepalive-reply = ["engine.io"]',
    'the server of Socket.IO closes a connection that leaves its pings unanswered',
  ],
  'engine.io 3': [
    'keepalive-send',
    'keepalive-send = ["5s:2"]',
    'the server of Socket.IO 2 closes a connection whose client sends no pings',
  ],
  'signalr json': [
    'keepalive-send',
    'keepalive-send = ["10s:{\\"type\\":6}\\u001e"]',
    'SignalR closes a connection whose client is silent for 30 s (ClientTimeoutInterval); raise serverTimeout in the page, too',
  ],
  'signalr messagepack': [
    'keepalive-send',
    'keepalive-send = ["10s/binary:029106"]',
    'SignalR closes a connection whose client is silent for 30 s (ClientTimeoutInterval); raise serverTimeout in the page, too',
  ],
};

/**
 * Settings that what was seen asks for, each as a line of the config file, and those that would have
 * lost the seat.
 * @param {SocketReport} report
 * @param {Pick<Link, 'url' | 'wire'> & {gateway: any, ended?: Link['ended']}} link
 * @param {DOMStringMap} [script]
 * @returns {{line: string, why: string}[]}
 */
export function advice(report, { url, wire, gateway, ended }, script = {}) {
  const { reseat, outages_ms, buffered, missed, sessions_lost, settings } = report;
  /** @type {{line: string, why: string}[]} */
  const found = [];
  const longest = Math.max(0, ...outages_ms);
  const say = (/** @type {string} */ line, /** @type {string} */ why) => found.push({ line, why });
  if (!reseat) {
    if (sessions_lost > 0)
      say(tag(url, wire), `without it ${count(sessions_lost, 'session')} ended with the connection`);
    return found;
  }
  const grace = parseDuration(settings.grace);
  if (longest > 0) {
    const need = `${Math.ceil(longest / 1000)} s`;
    if (longest > grace / 2)
      say(`grace = "${round((2 * longest) / 1000)}s"`, `the longest outage took ${need} of ${settings.grace}`);
    else say('', `a grace period of less than ${need} would have lost the seat (grace = "${settings.grace}")`);
  }
  for (const [name, most, limit] of /** @type {[string, number, number][]} */ ([
    ['buffer-messages', buffered.messages, settings['buffer-messages']],
    ['buffer-bytes', buffered.bytes, settings['buffer-bytes']],
  ])) {
    if (!most || !limit) continue;
    const of = name === 'buffer-bytes' ? 'byte' : 'message';
    if (most > limit / 2) say(`${name} = ${round(4 * most)}`, `${count(most, of)} were kept, of ${limit}`);
    else say('', `a buffer of less than ${count(most, of)} would have overflowed (${name} = ${limit})`);
  }
  if (missed > 0)
    say('overflow = "pause"', `${count(missed, 'message')} were missed (overflow = "${settings.overflow}")`);
  if (gateway?.newest_hint)
    say(
      configLine(gateway.newest_hint),
      'most of what waited for the player looks like states: only if the newest of each counts, it alone need be sent',
    );
  if (gateway?.cluster && gateway.durable === 'no')
    say('durable = "on"', 'the death of the node that has the session would have lost the seat');
  if (ended?.outage) givenUp(say, wire, settings);
  liveness(report, say);
  heartbeat(say, wire, wire.protocolOf(url), gateway);
  const [attributes, keeps] = inPage(url, wire);
  if (keeps && (script.hideOffline === undefined || (attributes.includes('keepalive') && !script.keepalive)))
    say(tag(url, wire), keeps);
  return found;
}

/**
 * The game ended the session for an outage that the gateway would have bridged.
 * @param {(line: string, why: string) => void} say
 * @param {import('./wire.js').Wire} wire @param {Record<string, any>} settings
 */
function givenUp(say, { habit }, settings) {
  const limit = `answer-timeout below its limit (answer-timeout = "${settings['answer-timeout']}")`;
  say(
    habit && `keepalive-send = [${JSON.stringify(`1s:${habit}`)}]`,
    `the game gave the player up. If its server drops players who say nothing for some seconds, ${
      habit ? 'this goes on saying what the page says most' : 'set keepalive-send'
    }; set ${limit}`,
  );
}

/** How soon a dead connection is noticed. @param {SocketReport} report @param {(line: string, why: string) => void} say */
function liveness({ round_trip_ms: trip, noticed_ms: noticed, settings }, say) {
  const answer = parseDuration(settings['answer-timeout']);
  const beat = parseDuration(settings.heartbeat);
  if (trip && answer && 4 * trip > answer)
    say(
      `answer-timeout = "${Math.ceil((5 * trip) / 1000)}s"`,
      `a round trip took ${time(trip)}: one of ${settings['answer-timeout']} would take a connection for lost that lives`,
    );
  const brisk = Math.max(2, Math.ceil((10 * trip) / 1000));
  if (noticed > LATE_MS && beat >= 2000 * brisk)
    say(
      `heartbeat = "${brisk}s"`,
      `an outage was noticed after ${time(noticed)} (heartbeat = "${settings.heartbeat}")`,
    );
}

/** Until an outage is noticed, in ms: more is late. */
const LATE_MS = 8000;

/**
 * What the game server misses while the client is away.
 * @param {(line: string, why: string) => void} say
 * @param {import('./wire.js').Wire} wire @param {string} library @param {any} gateway
 */
function heartbeat(say, wire, library, gateway) {
  const ping = library.startsWith('signalr') ? undefined : wire.ping; // nobody answers its pings
  const set = { 'keepalive-reply': gateway?.keepalive_replies, 'keepalive-send': gateway?.keepalives };
  const [name = 'keepalive-reply', known = '', needs = ''] = LIBRARIES[library] ?? [];
  const line = known || (ping ? `keepalive-reply = [${JSON.stringify(`${ping.receive}=>${ping.answer}`)}]` : '');
  if (ping?.into !== undefined) {
    const when = Number.isNaN(ping.into) ? 'during the outage' : `${Math.round(ping.into / 1000)} s into the outage`;
    if (set['keepalive-reply'])
      say('', `without keepalive-reply, nobody would have answered the ping that your game server sent ${when}`);
    else say(line, `your game server sent a ping of its own ${when}; set --keepalive-reply`);
  } else if (known && !set[/** @type {keyof typeof set} */ (name)]) say(known, needs);
  else if (ping && !set['keepalive-reply'])
    say(
      line,
      `your game server sends ${JSON.stringify(ping.receive)}, which the page answers: only if it closes connections that do not`,
    );
  const own = gateway?.keepalive && configLine(gateway.keepalive);
  if (gateway?.closed_after)
    say(
      own || 'keepalive-send = ["auto"]',
      `the game server closed its connection ${gateway.closed_after} after the client was last heard`,
    );
  else if (own && !known && !ping && !set['keepalive-send'])
    say(own, 'the client sends this at a steady pace: only if the game server closes connections that are silent');
}

/** @param {number} n @param {string} what */
const count = (n, what) => `${n.toLocaleString('en')} ${what}${n === 1 ? '' : 's'}`;

/** @param {unknown} text */
const escape = (text) => `${text}`.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** @param {number} ms */
const time = (ms) => (ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`);

const BAR = 6;
const HEIGHT = 48;

/** A picture of the messages of each second. @param {number[]} seconds */
function picture(seconds) {
  const most = Math.max(1, ...seconds);
  const bars = seconds.map((got, i) =>
    got < 0
      ? `<rect class="gone" x="${i * BAR}" y="0" width="${BAR}" height="${HEIGHT}"/>`
      : `<rect x="${i * BAR}" y="${HEIGHT - (got / most) * HEIGHT}" width="${BAR - 1}" height="${(got / most) * HEIGHT}"/>`,
  );
  const width = seconds.length * BAR;
  return `<svg role="img" aria-label="Messages of each second" viewBox="0 0 ${width} ${HEIGHT}" width="${width}" height="${HEIGHT}">${bars.join('')}</svg>`;
}

/** @param {SocketReport} socket */
function seen({ game_server_outages: lost, ended }) {
  if (lost) return count(lost, 'lost connection');
  return ended ? 'one connection, until the session was over' : 'nothing: one connection all the time';
}

/** @param {SocketReport} socket */
function socketHTML(socket) {
  const { reseat, outages_ms: outages } = socket;
  const rows = /** @type {[string, string | number][]} */ ([
    ...(reseat
      ? [
          ['Missed', socket.missed],
          ['Duplicated', socket.duplicated],
          ['Replayed', socket.replayed],
          ...(socket.skipped ? [['Skipped, for newer states', socket.skipped]] : []),
          ['The game server saw', seen(socket)],
          ['Kept for the player at most', count(socket.buffered.messages, 'message')],
        ]
      : [['Sessions lost', socket.sessions_lost]]),
    ...(socket.ended ? [['The session is over', socket.ended]] : []),
    ['Messages in, out', `${socket.messages_in.toLocaleString('en')}, ${socket.messages_out.toLocaleString('en')}`],
    ['Outages as the player felt them', outages.length ? outages.map(time).join(', ') : 'none'],
  ]);
  const advices = socket.advice.map(
    ({ line, why }) => `<li>${line ? `<code>${escape(line)}</code> ` : ''}${escape(why)}</li>`,
  );
  return `<h3>${escape(socket.url)}</h3><table>${rows.map(([name, value]) => `<tr><th scope="row">${name}<td>${escape(value)}`).join('')}</table>
<div class="scroll" tabindex="0" role="group" aria-label="Messages over time">${picture(socket.seconds)}</div>${advices.length ? `<h4>Settings</h4><ul>${advices.join('')}</ul>` : ''}`;
}

/** A time as people read it. @param {string} iso as toISOString writes it */
const clock = (iso) => escape(iso.replace(/T(.*)\.\d+Z$/, ' $1 UTC'));

/** @param {Run} run */
function runHTML({ reseat, began, lasted_s: lasted, cuts, sockets }) {
  const list = cuts.map(({ at_s: at, name }) => `<li>after ${at} s: ${escape(name)}</li>`);
  return `<section><h2>${reseat ? 'With Reseat' : 'Without Reseat'}</h2><p>Began ${clock(began)}, lasted ${lasted} s.</p>
${sockets.map(socketHTML).join('')}<h4>Cuts</h4><ol>${list.join('') || '<li>none</li>'}</ol></section>`;
}

const STYLE = `:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}body{max-width:60rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}
section{margin:1.5rem 0;padding:0 1rem 1rem;border:1px solid #8886;border-radius:10px}th{padding-right:1.5rem;text-align:left;font-weight:400;vertical-align:top}
td{font-weight:600}code{padding:.1em .4em;border-radius:4px;background:#8883}svg{fill:#0b8a70}svg .gone{fill:#e0a63a}.scroll{overflow-x:auto;margin:.6rem 0}`;

/** The report as a page of one file, without script. @param {Report} report */
export function html({ made, page, runs }) {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Reseat: ${escape(page)}</title><style>${STYLE}</style></head>
<body><main><h1>What a lost connection did</h1><p>${escape(page)}, ${clock(made)}</p>${runs.map(runHTML).join('')}</main></body></html>
`;
}
