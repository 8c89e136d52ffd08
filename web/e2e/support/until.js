import { setTimeout as pause } from 'node:timers/promises';

/** How often a condition is looked at, in ms. */
const LOOK_MS = 20;

/**
 * Waits until `look` returns something true, and returns that.
 * @template T
 * @param {string} claim what is waited for
 * @param {() => T | Promise<T>} look
 * @param {{ms?: number, also?: () => unknown}} [options] how long, and what else the error shows
 */
export async function until(claim, look, { ms = 60_000, also } = {}) {
  const end = performance.now() + ms;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (performance.now() > end) {
      const more = also ? `: ${JSON.stringify(await also())}` : '';
      throw new Error(`not within ${ms} ms: ${claim}${more}`);
    }
    await pause(LOOK_MS);
  }
}
