// @ts-check
// Numbers, durations and times as the page writes them.

const WHOLE = new Intl.NumberFormat('en');
const SHORT = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 });
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** 12,345 @param {number} n */
export function count(n) {
  return WHOLE.format(n);
}

/** 12.3K, for where there is little room. @param {number} n */
export function short(n) {
  return n < 10_000 ? WHOLE.format(Math.round(n * 10) / 10) : SHORT.format(n);
}

/** @param {number} n @param {string} what in the singular */
export function many(n, what) {
  return `${count(n)} ${what}${n === 1 ? '' : 's'}`;
}

/** 1.5 KiB @param {number} n */
export function bytes(n) {
  let unit = 0;
  while (n >= 1024 && unit < UNITS.length - 1) {
    n /= 1024;
    unit++;
  }
  return `${n >= 100 || unit === 0 ? Math.round(n) : Number(n.toPrecision(3))} ${UNITS[unit]}`;
}

/** How long, in at most two units: 340 ms, 4.2 s, 3 m 20 s, 2 h 5 m. @param {number} ms */
export function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return two(Math.floor(s / 60), 'm', s % 60, 's');
  const m = Math.round(s / 60);
  if (m < 1440) return two(Math.floor(m / 60), 'h', m % 60, 'm');
  const h = Math.round(m / 60);
  return two(Math.floor(h / 24), 'd', h % 24, 'h');
}

/** @param {number} a @param {string} big @param {number} b @param {string} small */
function two(a, big, b, small) {
  return b ? `${a} ${big} ${b} ${small}` : `${a} ${big}`;
}

const PARTS = /** @type {Record<string, number>} */ ({
  h: 3_600_000,
  m: 60_000,
  s: 1000,
  ms: 1,
  µs: 1e-3,
  us: 1e-3,
  ns: 1e-6,
});

/** The milliseconds of a duration as flags take it, "1m30s"; NaN where it is none. @param {string} text */
export function duration(text) {
  if (text === '0') return 0;
  if (!/^(\d+(\.\d+)?(h|ms|m|s|µs|us|ns))+$/.test(text)) return NaN;
  let ms = 0;
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d+)?)(h|ms|m|s|µs|us|ns)/g))
    ms += Number(number) * PARTS[unit];
  return ms;
}

/** A grace period as the page writes times; as it stands where it is no duration. @param {string} text as flags take it */
export function period(text) {
  const ms = duration(text);
  if (Number.isNaN(ms)) return text;
  return ms === 0 ? 'none' : span(ms);
}

/** A time that has just passed, to a tenth of a second as long as it is short. @param {number} ms */
export function ago(ms) {
  return `${ms < 9950 ? `${(Math.max(0, ms) / 1000).toFixed(1)} s` : span(ms)} ago`;
}

/** A round trip. @param {number | null} ms null and 0: not measured */
export function rtt(ms) {
  if (!ms) return '–';
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`;
}

/** The time of day. @param {string | number | Date} when */
export function clock(when) {
  return new Date(when).toLocaleTimeString('en-GB');
}

/** The length of a session's id in a cluster, which begins with the node's. */
const IN_CLUSTER = 40;

/** The part of a session's id that identifies it. @param {string} id */
export function brief(id) {
  const from = id.length === IN_CLUSTER ? 8 : 0;
  return id.length > 12 ? `${id.slice(from, from + 8)}…` : id;
}
