import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Spec, Validation } from '@cyclonedx/cyclonedx-library';
import { COMMIT, PLATFORMS, ROOT, VERSION, released, run, unpacked } from './lib/release.js';

const text = readFileSync(released('.cdx.json'), 'utf8');
const bom = JSON.parse(text);
const sha256 = (file) => createHash('sha256').update(readFileSync(file)).digest('hex');

/** The components of a scope as `purl-type/name version`. */
const listed = (scope, type) => bom.components.filter((c) => c.scope === scope && c.purl?.startsWith(`pkg:${type}/`)).map(({ name, version }) => `${name} ${version}`);

test('the SBOM is valid CycloneDX 1.6, which names version and commit', async () => {
  const validator = new Validation.JsonStrictValidator(Spec.Version.v1dot6);
  assert.equal(await validator.validate(text), null);
  assert.notEqual(await validator.validate(text.replace('"bomFormat"', '"bomform"')), null, 'an invalid one is refused');
  const { name, version, properties } = bom.metadata.component;
  assert.deepEqual({ name, version, properties }, { name: 'reseat', version: VERSION, properties: [{ name: 'reseat:commit', value: COMMIT }] });
});

test('the SBOM has every module of the build list, and says which are in the binaries', (t) => {
  const all = run('go', ['list', '-m', '-f', '{{if not .Main}}{{.Path}} {{.Version}}{{end}}', 'all'], { cwd: ROOT, encoding: 'utf8' }).trim().split('\n').filter(Boolean);
  const go = (text) => [...text.matchAll(/^\tdep\t(\S+)\t(\S+)/gm)].map(([, path, version]) => `${path} ${version}`);
  const inside = go(run('go', ['version', '-m', join(unpacked(t), 'reseat')], { encoding: 'utf8' }));
  const goversion = run('go', ['env', 'GOVERSION'], { cwd: ROOT, encoding: 'utf8' }).trim().slice(2);
  const required = listed('required', 'golang');
  if (PLATFORMS.split(' ').length === 1) assert.deepEqual(required.toSorted(), [...inside, `std ${goversion}`].sort());
  assert.ok(inside.every((module) => required.includes(module)));
  assert.deepEqual([...required, ...listed('excluded', 'golang')].filter((m) => !m.startsWith('std ')).sort(), all.sort());
  const refs = bom.components.filter(({ scope }) => scope === 'required').map((c) => c['bom-ref']);
  assert.deepEqual(bom.dependencies, [{ ref: 'reseat', dependsOn: refs }]);
});

test('the SBOM has the scripts that the binaries embed, with their hashes', () => {
  const client = bom.components.find((c) => c['bom-ref'] === 'browser-client');
  assert.equal(client.version, VERSION.slice(1));
  const hashes = Object.fromEntries(client.components.map(({ name, hashes: [{ alg, content }] }) => [name, `${alg} ${content}`]));
  const names = ['reseat.dev.js', 'reseat.install.js', 'reseat.js', 'reseat.page.js'];
  assert.deepEqual(hashes, Object.fromEntries(names.map((name) => [name, `SHA-256 ${sha256(join(ROOT, 'web/dist', name))}`])));
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'web/package-lock.json'), 'utf8'));
  const vendored = ['preact', 'htm', 'uplot'].map((name) => `${name} ${packages[`node_modules/${name}`].version}`);
  assert.deepEqual(listed('required', 'npm'), vendored);
});

test('the SBOM has the hash of the binary that was released', (t) => {
  const hashes = bom.metadata.component.components.map(({ hashes: [{ content }] }) => content);
  assert.equal(hashes.length, PLATFORMS.split(' ').length);
  assert.ok(hashes.includes(sha256(join(unpacked(t), 'reseat'))));
});
