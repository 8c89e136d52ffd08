import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

// What is published.

const read = (name) => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8');
const manifest = JSON.parse(read('package.json'));

test('the package holds the module, its types, README and licence, and nothing else', () => {
  const cwd = fileURLToPath(new URL('..', import.meta.url));
  const [{ files }] = JSON.parse(execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts', '--offline'], { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }));
  assert.deepEqual(files.map(({ path }) => path).sort(), ['LICENSE', 'README.md', 'package.json', 'reseat.d.ts', 'reseat.js']);
});

test('it depends on nothing, and what the tests need is pinned', () => {
  assert.equal(manifest.dependencies, undefined);
  for (const [name, version] of Object.entries(manifest.devDependencies)) assert.match(version, /^\d+\.\d+\.\d+$/, name);
  for (const script of ['preinstall', 'install', 'postinstall', 'prepare']) assert.equal(manifest.scripts[script], undefined);
});

test('the lock file names no registry', () => {
  const lock = read('package-lock.json');
  assert.doesNotMatch(lock, /"resolved"|https?:/);
  for (const [name, { integrity }] of Object.entries(JSON.parse(lock).packages)) if (name) assert.ok(integrity, name);
});

test('the module is one file: it imports nothing', () => {
  assert.doesNotMatch(read('reseat.js'), /^\s*import\b|\bimport\(|\bfrom '/m);
});
