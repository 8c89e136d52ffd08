// The libraries in vendor/ are those of the npm packages that the lockfile names.
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { made } from './vendor.mjs';

const here = (/** @type {string} */ path) => readFile(new URL(path, import.meta.url), 'utf8');

test('vendor/ holds what the packages hold, and nothing else', async () => {
  const files = await made();
  assert.deepEqual((await readdir(new URL('vendor/', import.meta.url))).sort(), Object.keys(files).sort());
  for (const [name, text] of Object.entries(files))
    assert.ok((await here(`vendor/${name}`)) === text, `${name} is another: npm ci && node dashboard/vendor.mjs`);
});

test('the packages are those of the lockfile', async () => {
  const { packages } = JSON.parse(await here('../package-lock.json'));
  for (const name of ['preact', 'htm', 'uplot']) {
    const { version, license } = JSON.parse(await here(`../node_modules/${name}/package.json`));
    const locked = packages[`node_modules/${name}`];
    assert.deepEqual([version, license], [locked.version, locked.license], name);
    assert.match(locked.integrity, /^sha512-/);
    assert.ok((await here('vendor/LICENSES.txt')).includes(`${name} ${version}`));
  }
});

test('no module of the page imports what is not beside it', async () => {
  const names = (await readdir(new URL('.', import.meta.url))).filter((name) => name.endsWith('.js'));
  const vendored = (await readdir(new URL('vendor/', import.meta.url)))
    .filter((name) => name.endsWith('.js'))
    .map((name) => `vendor/${name}`);
  for (const name of [...names, ...vendored]) {
    for (const [, from] of (await here(name)).matchAll(/^import\b[^'"]*['"]([^'"]+)['"]/gm))
      assert.match(from, /^\.\/[\w/]+\.js$/, name);
  }
});
