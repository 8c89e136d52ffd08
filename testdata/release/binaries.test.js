import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { COMMIT, DIRS, PLATFORMS, ROOT, VERSION, released, run, unpacked } from './lib/release.js';

test('the release has these files, and checksums of all of them', () => {
  const platforms = PLATFORMS.split(' ').map((p) => p.split('/'));
  const want = [
    'SHA256SUMS',
    `reseat-${VERSION.slice(1)}.tgz`,
    `reseat_${VERSION}.cdx.json`,
    ...platforms.map(([os, arch]) => `reseat_${VERSION}_${os}_${arch}.${os === 'windows' ? 'zip' : 'tar.gz'}`),
    ...platforms.filter(([os]) => os === 'linux').map(([, arch]) => `reseat_0.1.0~rc.1-1_${arch}.deb`),
  ];
  const files = readdirSync(DIRS.first).sort();
  assert.deepEqual(files, want.sort());
  run('sha256sum', ['--check', '--strict', '--quiet', 'SHA256SUMS'], { cwd: DIRS.first });
  const summed = readFileSync(join(DIRS.first, 'SHA256SUMS'), 'utf8').trim().split('\n').map((line) => line.split('  ')[1]);
  assert.deepEqual(summed.sort(), files.filter((name) => name !== 'SHA256SUMS'));
});

test('built again elsewhere, every file has the same bytes', () => {
  assert.deepEqual(readdirSync(DIRS.second), readdirSync(DIRS.first));
  for (const name of readdirSync(DIRS.first)) {
    assert.ok(readFileSync(join(DIRS.first, name)).equals(readFileSync(join(DIRS.second, name))), name);
  }
});

test('an archive has the binary and the licences, with modes that suit everybody', (t) => {
  const dir = unpacked(t);
  assert.deepEqual(
    Object.fromEntries(readdirSync(dir).sort().map((name) => [name, (statSync(join(dir, name)).mode & 0o7777).toString(8)])),
    { LICENSE: '644', 'README.md': '644', 'THIRD-PARTY-LICENCES': '644', reseat: '755' },
  );
  const licences = readFileSync(join(dir, 'THIRD-PARTY-LICENCES'), 'utf8');
  const modules = [...run('go', ['version', '-m', join(dir, 'reseat')], { encoding: 'utf8' }).matchAll(/^\tdep\t(\S+)\t(\S+)/gm)];
  assert.ok(modules.length > 10, `${modules.length} modules`);
  for (const [, path, version] of modules) assert.ok(licences.includes(`\n${path} ${version}\n`), path);
  for (const name of ['The Go standard library', 'preact 1', 'uplot 1', 'htm 3']) assert.ok(licences.includes(`\n${name}`), name);
});

/** The types of an ELF file's program headers. @param {Buffer} elf of 64 bits, little-endian */
function segments(elf) {
  assert.equal(elf.subarray(0, 6).toString('latin1'), '\x7fELF\x02\x01');
  const [start, size, count] = [Number(elf.readBigUInt64LE(32)), elf.readUInt16LE(54), elf.readUInt16LE(56)];
  return Array.from({ length: count }, (_, i) => elf.readUInt32LE(start + i * size));
}

const PT_LOAD = 1;
const PT_DYNAMIC = 2;
const PT_INTERP = 3;

test('the binary for Linux is static: no loader, no libraries', (t) => {
  const types = segments(readFileSync(join(unpacked(t), 'reseat')));
  assert.ok(types.includes(PT_LOAD));
  assert.ok(!types.includes(PT_INTERP) && !types.includes(PT_DYNAMIC), `program headers ${types}`);
  assert.ok(segments(readFileSync(process.execPath)).includes(PT_INTERP), 'a dynamic program is recognised');
});

test('the binary says its version, its commit, and the Go that built it', (t) => {
  const binary = join(unpacked(t), 'reseat');
  const go = run('go', ['env', 'GOVERSION'], { encoding: 'utf8', cwd: ROOT }).trim();
  const [, os, arch] = /_(\w+)_(\w+)\.tar\.gz$/.exec(released('.tar.gz'));
  assert.equal(run(binary, ['version'], { encoding: 'utf8' }), `reseat ${VERSION} (commit ${COMMIT}) ${go} ${os}/${arch}\n`);
});

test('a version that is none, and a directory with files in it, are refused', () => {
  const refusal = (...args) => {
    try {
      run(join(ROOT, '.ci/release'), args, { env: { ...process.env, COMMIT, SOURCE_DATE_EPOCH: '1' }, stdio: 'pipe' });
    } catch ({ status, stderr }) {
      return `${status} ${stderr}`;
    }
    return 'none';
  };
  for (const version of ['', '1.2.3', 'v1.2', 'v1.2.3; true']) assert.match(refusal(version), /^2 usage: /);
  assert.match(refusal(VERSION, DIRS.first), /^2 release: .* is not empty/);
});
