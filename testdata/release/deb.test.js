import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ARCH, EPOCH, released, run } from './lib/release.js';

// What docs/running.md promises of the Debian package.

const deb = released(`_${ARCH}.deb`);

test('the Debian package has these files, with owners and modes', () => {
  const entries = run('dpkg-deb', ['--contents', deb], { encoding: 'utf8', env: { ...process.env, TZ: 'UTC' } }).trim().split('\n').map((line) => line.split(/\s+/));
  const files = entries.filter(([mode]) => !mode.startsWith('d')).map(([mode, , , , , name]) => `${mode} ${name}`);
  assert.deepEqual(files.sort(), [
    '-rw-r--r-- ./etc/reseat/reseat.toml',
    '-rw-r--r-- ./usr/lib/systemd/system/reseat.service',
    '-rw-r--r-- ./usr/share/doc/reseat/THIRD-PARTY-LICENCES.gz',
    '-rw-r--r-- ./usr/share/doc/reseat/changelog.Debian.gz',
    '-rw-r--r-- ./usr/share/doc/reseat/changelog.gz',
    '-rw-r--r-- ./usr/share/doc/reseat/copyright',
    '-rwxr-xr-x ./usr/bin/reseat',
  ]);
  const when = new Date(EPOCH * 1000).toISOString().slice(0, 16).split('T');
  for (const [mode, owner, , day, time, name] of entries) {
    assert.deepEqual([owner, day, time], ['root/root', ...when], name);
    if (mode.startsWith('d')) assert.equal(mode, 'drwxr-xr-x', name);
  }
});

test('the Debian package says what it is', () => {
  const field = (name) => run('dpkg-deb', ['--field', deb, name], { encoding: 'utf8' }).trim();
  assert.deepEqual(['Package', 'Version', 'Architecture', 'Section', 'Depends'].map(field), ['reseat', '0.1.0~rc.1-1', ARCH, 'net', 'passwd']);
  assert.equal(spawnSync('dpkg', ['--compare-versions', field('Version'), 'lt', '0.1.0-1']).status, 0, 'a prerelease is older than its release');
});

// What lintian reports that is meant to be so: Go programs are static and have no bugs to
// close at Debian; who publishes the package puts in their own address; the service is
// stopped with what systemd has on every system, not Debian's alone.
const MEANT = ['statically-linked-binary', 'initial-upload-closes-no-bugs', 'no-manual-page', 'bogus-mail-host', 'bogus-mail-host-in-debian-changelog', 'maintainer-script-calls-systemctl'];

test('lintian finds nothing else', (t) => {
  const { error, stdout } = spawnSync('lintian', ['--suppress-tags', MEANT.join(), deb], { encoding: 'utf8' });
  if (error) return t.skip('NOT LINTED: there is no lintian here');
  assert.equal(stdout, '');
});

test('installed, upgraded, removed and purged, each leaves what it should', (t) => {
  const script = fileURLToPath(new URL('lib/install-deb', import.meta.url));
  if (process.getuid() !== 0) return t.skip('NOT INSTALLED: that takes root');
  const apart = ['--mount', '--pid', '--fork', '--net'];
  if (spawnSync('unshare', [...apart, 'true']).status !== 0) return t.skip('NOT INSTALLED: namespaces are not allowed here');
  const { status, stdout, stderr } = spawnSync('unshare', [...apart, 'bash', script, deb], { encoding: 'utf8' });
  if (status === 77) return t.skip(`NOT INSTALLED: ${stderr}`);
  assert.equal(status, 0, stdout + stderr);
  assert.match(stdout, /^all is as it should be$/m);
});
