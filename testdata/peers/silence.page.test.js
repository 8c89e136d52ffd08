import { describe, test } from 'node:test';
import { apart } from './lib/apart.js';
import { SIDES, SILENCES } from './lib/libraries.js';

// Each recipe as it stands, with silences of 20 seconds in real time: all of them at once, each
// in a process of its own.

const shared = new URL('lib/libraries.js', import.meta.url);

describe('20 seconds of silence go unnoticed', { concurrency: true }, () => {
  for (const { watchdog, moment, name } of SILENCES) {
    for (const side of Object.keys(SIDES)) {
      test(`${name}: nothing from ${side} arrives`, { timeout: 420_000 }, (t) => apart(t, shared, 'outlast', watchdog, moment, side));
    }
  }
});
