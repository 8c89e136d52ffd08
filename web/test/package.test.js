import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

// What is published.

const read = (name) => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8');
const manifest = JSON.parse(read('package.json'));

test('the package holds the modules, their types, README and licence, and nothing else', () => {
  const cwd = fileURLToPath(new URL('..', import.meta.url));
  const sources = readdirSync(new URL('../client/', import.meta.url))
    .filter((name) => name !== 'script.js')
    .map((name) => `client/${name}`);
  const [{ files }] = JSON.parse(
    execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts', '--offline'], {
      cwd,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }),
  );
  assert.deepEqual(
    files.map(({ path }) => path).sort(),
    [
      ...sources,
      ...['LICENSE', 'README.md', 'package.json'],
      ...['reseat', 'react', 'vue'].flatMap((name) => [`${name}.d.ts`, `${name}.js`]),
    ].sort(),
  );
});

test('it depends on nothing, and what the tests need is pinned', () => {
  assert.equal(manifest.dependencies, undefined);
  for (const [name, version] of Object.entries(manifest.devDependencies))
    assert.match(version, /^(npm:[\w-]+@)?\d+\.\d+\.\d+$/, name);
  for (const script of ['preinstall', 'install', 'postinstall', 'prepare'])
    assert.equal(manifest.scripts[script], undefined);
});

test('the lock file names no registry', () => {
  const lock = read('package-lock.json');
  assert.doesNotMatch(lock, /"resolved"/);
  for (const [name, { integrity }] of Object.entries(JSON.parse(lock).packages)) if (name) assert.ok(integrity, name);
});

/** The modules that each module imports. */
const imports = Object.fromEntries(
  readdirSync(new URL('../client/', import.meta.url)).map((name) => [
    name,
    [...read(`client/${name}`).matchAll(/^(?:import|export) [^;]*from '\.\/(.+)';$/gm)].map(([, other]) => other),
  ]),
);

test('the modules import nothing but each other, in one direction', () => {
  for (const name of Object.keys(imports)) {
    const elsewhere = [...read(`client/${name}`).matchAll(/^(?:import|export) [^;]*from '(?!\.\/)(.+)';$/gm)].map(
      ([, other]) => other,
    );
    assert.deepEqual(elsewhere, [], name);
  }
  const settled = new Set();
  const visit = (name, path) => {
    assert.ok(!path.includes(name), `a circle: ${[...path, name].join(' -> ')}`);
    if (settled.has(name)) return;
    assert.ok(imports[name], name);
    for (const other of imports[name]) visit(other, [...path, name]);
    settled.add(name);
  };
  for (const name of Object.keys(imports)) visit(name, []);
  assert.ok(imports['socket.js'].includes('session.js'));
});

/** A project of somebody's that has installed the packed package. */
function project(t) {
  const dir = mkdtempSync(join(tmpdir(), 'reseat-package-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const npm = (cwd, ...args) =>
    execFileSync('npm', [...args, '--silent', '--ignore-scripts', '--offline', '--no-audit', '--no-fund'], {
      cwd,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  const tarball = npm(fileURLToPath(new URL('..', import.meta.url)), 'pack', '--pack-destination', dir).trim();
  writeFileSync(
    join(dir, 'package.json'),
    JSON.stringify({ name: 'somebodys', version: '1.0.0', private: true, type: 'module' }),
  );
  npm(dir, 'install', join(dir, tarball));
  return dir;
}

test('what the README shows compiles against the installed types, however modules are resolved', (t) => {
  const dir = project(t);
  const [, code] = /^```js\n(import \{ ReseatSocket \} from 'reseat'[^]*?)^```$/m.exec(read('README.md'));
  const main = join(dir, 'main.ts');
  const declared =
    'declare function draw(data: unknown): void; declare function showBanner(text: string): void; declare function hideBanner(): void;\n';
  writeFileSync(
    main,
    `${declared}${code}\nsocket.addEventListener('resume', ({ replay, lost, ms }) => draw(replay + lost + ms));\n`,
  );
  for (const [moduleResolution, module] of [
    ['nodenext', 'nodenext'],
    ['bundler', 'esnext'],
  ]) {
    const tsc = fileURLToPath(new URL('../node_modules/typescript/bin/tsc', import.meta.url));
    const args = [
      '--strict',
      '--noEmit',
      '--target',
      'es2022',
      '--module',
      module,
      '--moduleResolution',
      moduleResolution,
      '--lib',
      'es2022,dom,dom.iterable',
      main,
    ];
    const { stdout, status } = spawnSync(process.execPath, [tsc, ...args], { cwd: dir, encoding: 'utf8' });
    assert.deepEqual([stdout, status], ['', 0]);
  }
});
