// Builds a release twice, in different places, before the tests look at it: out/first of
// this work tree, out/second of a copy of its files elsewhere, with another umask and time
// zone. Installs the browser client's package too. RELEASE_PLATFORMS are those of .ci/release; by default this machine's own.

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { COMMIT, DIRS, EPOCH, INSTALLED, PLATFORMS, ROOT, VERSION, released, run } from './release.js';

rmSync(dirname(DIRS.first), { recursive: true, force: true });
const env = { ...process.env, COMMIT, SOURCE_DATE_EPOCH: EPOCH, PLATFORMS };
run(join(ROOT, '.ci/release'), [VERSION, DIRS.first], { env });

const copy = mkdtempSync(join(tmpdir(), 'reseat-release-'));
try {
  const files = run('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: ROOT, encoding: 'utf8' });
  for (const file of files.split('\0').filter(Boolean)) cpSync(join(ROOT, file), join(copy, file), { verbatimSymlinks: true });
  const script = 'umask 077 && exec .ci/release "$0" "$1"';
  execFileSync('bash', ['-c', script, VERSION, DIRS.second], { cwd: copy, env: { ...env, TZ: 'Asia/Kathmandu', LC_ALL: 'C.UTF-8' }, stdio: 'inherit' });
} finally {
  rmSync(copy, { recursive: true });
}

mkdirSync(INSTALLED);
writeFileSync(join(INSTALLED, 'package.json'), JSON.stringify({ name: 'somebodys', version: '1.0.0', private: true }));
run('npm', ['install', '--silent', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', released('.tgz')], { cwd: INSTALLED });
