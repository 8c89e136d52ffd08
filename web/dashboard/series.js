// @ts-check
// Turns the gateway's counts into the data of the charts.

/**
 * Counts at one moment, as the API has them.
 * @typedef {object} Totals
 * @property {string} time
 * @property {{connecting: number, attached: number, detached: number}} sessions
 * @property {{covered: number, exposed: number}} durable
 * @property {number} created
 * @property {number} detached
 * @property {number} resumed
 * @property {number} refused
 * @property {number} ended
 * @property {number} to_upstream
 * @property {number} to_client
 * @property {number} to_upstream_bytes
 * @property {number} to_client_bytes
 * @property {number} replayed
 * @property {number} dropped
 * @property {number} skipped
 * @property {number} buffer_bytes
 * @property {number} loops in use
 * @property {number} loop_busy_ms of all of them
 * @property {number} rtt_median_ms
 * @property {number} rtt_p95_ms
 */

/** A quarter of an hour at one sample in five seconds. */
const MOST = 180;
/** Two counts closer than this give no rate, in ms. */
const LEAST_MS = 1500;

/**
 * Appends samples.
 * @param {Totals[]} old
 * @param {Totals[]} fresh
 */
export function join(old, fresh) {
  const last = old.at(-1)?.time ?? '';
  return [...old, ...fresh.filter(({ time }) => time > last)].slice(-MOST);
}

/**
 * The times of all samples in seconds, and a list for each value. The value of a counter is its rate
 * per second, null if there is none yet.
 * @param {Totals[]} samples
 * @param {((totals: Totals) => number)[]} gauges
 * @param {((totals: Totals) => number)[]} counters
 * @returns {(number | null)[][]}
 */
export function columns(samples, gauges, counters) {
  const times = samples.map(({ time }) => Date.parse(time) / 1000);
  const rated = counters.map((read) => samples.map((now, i) => rate(samples[i - 1], now, read)));
  return [times, ...gauges.map((read) => samples.map(read)), ...rated];
}

/**
 * The rate of a counter per second. A counter that falls was reset.
 * @param {Totals | undefined} before
 * @param {Totals} now
 * @param {(totals: Totals) => number} read
 */
export function rate(before, now, read) {
  if (!before) return null;
  const ms = Date.parse(now.time) - Date.parse(before.time);
  const gain = read(now) - read(before);
  return ms < LEAST_MS || gain < 0 ? null : (gain * 1000) / ms;
}
