// The game server of docs/games/counting-node, started as docs/games/README.md has it. It is the same program as the one in
// Go, so it passes the same tests: docs/games/counting-go/main_test.go.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { directory } from './lib/directory.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const json = (file) => JSON.parse(readFileSync(file, 'utf8'));

test('the program for Node passes the tests of the one in Go', { timeout: 600_000 }, async (t) => {
  const page = readFileSync(join(ROOT, 'docs/games/README.md'), 'utf8');
  const [, game, file] = page.match(/^cd (docs\/games\/\S+)\nnpm install\nPORT=\d+ node (\S+)$/m);
  const { dependencies } = json(join(ROOT, game, 'package.json'));
  assert.deepEqual(dependencies, { ws: json(new URL('package.json', import.meta.url)).devDependencies.ws }, 'the library that is installed here');
  const script = join(directory(t), file);
  copyFileSync(join(ROOT, game, file), script);
  const args = ['test', '-count=1', '-skip=CommandOfPage', './docs/games/counting-go'];
  const [error, stdout] = await new Promise((done) => {
    execFile('go', args, { cwd: ROOT, env: { ...process.env, COUNTING_SCRIPT: script } }, (...result) => done(result));
  });
  assert.equal(error, null, `COUNTING_SCRIPT=${script} go ${args.join(' ')}\n${stdout}`);
});
