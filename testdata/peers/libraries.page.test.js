import { describe, test } from 'node:test';
import { apart } from './lib/apart.js';
import { LIBRARIES } from './lib/libraries.js';

// Each recipe as it stands, each in a process of its own. Socket.IO's ten cuts have a file of their own.

const rows = [...LIBRARIES.filter((library) => library !== 'Socket.IO').map((library) => [library]), ['ws', { flags: ['--compression', 'on'] }]];
const shared = new URL('lib/libraries.js', import.meta.url);

describe('through the gateway', { concurrency: 2, timeout: 600_000 }, () => {
  for (const [library, options = {}] of rows) {
    test(`${[library, ...(options.flags ?? [])].join(' ')}: ten cuts go unnoticed`, (t) => apart(t, shared, 'beCut', library, options));
  }
  for (const [library, options = {}] of [...LIBRARIES.map((library) => [library]), ['Socket.IO', { transport: 'polling' }]]) {
    test(`${[library, ...Object.values(options)].join(', ')}: a page without Reseat plays as ever`, (t) => apart(t, shared, 'bePlain', library, options));
  }
});
