import { describe, test } from 'node:test';
import { apart } from './lib/apart.js';
import { LIBRARIES, SIDES } from './lib/silence.js';

// Each recipe as it stands, with silences of 20 seconds in real time: all of them at once, each
// in a process of its own.

const SILENCE = new URL('lib/silence.js', import.meta.url);

describe('20 seconds of silence go unnoticed', { concurrency: true }, () => {
  for (const [library, { moments }] of Object.entries(LIBRARIES)) {
    for (const moment of Object.keys(moments)) {
      for (const side of Object.keys(SIDES)) {
        test(`${library}: ${moment}: nothing from ${side} arrives`, { timeout: 420_000 }, (t) => apart(t, SILENCE, 'outlast', library, moment, side));
      }
    }
  }
});
