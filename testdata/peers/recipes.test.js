import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

// What the recipes page says besides its code.

const page = readFileSync(new URL('../../docs/recipes.md', import.meta.url), 'utf8');
const { devDependencies } = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8'));

test('the versions on the page are those that the tests use', () => {
  const tried = [...page.matchAll(/`([@\w./-]+)`\s+(\d+\.\d+\.\d+)/g)];
  assert.equal(tried.length, 13);
  for (const [, name, version] of tried) assert.equal(devDependencies[name], version, name);
});

test('each recipe says what was tried', () => {
  const recipes = [...page.matchAll(/^## (.+)\n([^]*?)(?=^## |$(?![^]))/gm)].filter(([, title, text]) => text.includes('```sh') && title !== 'Game engines');
  assert.deepEqual(recipes.map(([, title]) => title), ['A plain ws server', 'Socket.IO', 'Colyseus', 'boardgame.io', 'graphql-ws', 'y-websocket', 'MQTT']);
  for (const [, title, text] of recipes) {
    assert.match(text, /^\nTried with /, title);
  }
});
