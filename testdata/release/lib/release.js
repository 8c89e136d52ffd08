// The release that the tests look at.

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { arch } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const OUT = fileURLToPath(new URL('../out/', import.meta.url));

/** A prerelease: its dash is written otherwise in a Debian version. */
export const VERSION = 'v0.1.0-rc.1';
export const ARCH = arch() === 'x64' ? 'amd64' : arch();
export const PLATFORMS = process.env.RELEASE_PLATFORMS ?? `linux/${ARCH}`;
export const DIRS = { first: join(OUT, 'first'), second: join(OUT, 'second') };

/** Runs a program, and says what it wrote. @returns {any} */
export const run = (program, args, options = {}) => execFileSync(program, args, { stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 28, ...options });

const git = (...args) => run('git', args, { cwd: ROOT, encoding: 'utf8' }).trim();
export const COMMIT = git('rev-parse', 'HEAD') + (git('status', '--porcelain') ? '+dirty' : '');
export const EPOCH = git('log', '-1', '--format=%ct');

/** The one file of the release whose name ends so. @param {string} suffix */
export function released(suffix) {
  const found = readdirSync(DIRS.first).filter((name) => name.endsWith(suffix));
  if (found.length !== 1) throw new Error(`${found.length} files *${suffix}`);
  return join(DIRS.first, found[0]);
}

/** A directory that goes with the test. @param {import('node:test').TestContext} t @param {string} name */
export function directory(t, name) {
  mkdirSync(OUT, { recursive: true });
  const dir = mkdtempSync(join(OUT, `${name}-`)); // below this folder's node_modules
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** What is in the archive of this machine's binary, unpacked. @param {import('node:test').TestContext} t */
export function unpacked(t) {
  const dir = directory(t, 'unpacked');
  run('tar', ['-xzf', released(`_linux_${ARCH}.tar.gz`), '-C', dir, '--strip-components=1']);
  return dir;
}

/** Where the browser client's package was installed from its tarball. */
export const INSTALLED = join(OUT, 'installed');

/**
 * A project of somebody's that has the installed package; what else it imports comes from
 * this folder's node_modules.
 *
 * @param {import('node:test').TestContext} t
 * @param {Record<string, string>} files by name
 * @param {'module' | 'commonjs'} type
 */
export function project(t, files, type = 'module') {
  const dir = directory(t, 'project');
  cpSync(INSTALLED, dir, { recursive: true });
  writeFileSync(join(dir, 'package.json'), JSON.stringify({ name: 'somebodys', version: '1.0.0', private: true, type }));
  for (const [name, code] of Object.entries(files)) writeFileSync(join(dir, name), code);
  return dir;
}
