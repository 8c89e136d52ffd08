import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';
import webpack from 'webpack';
import { startGateway } from './lib/gateway.js';
import { VERSION, project } from './lib/release.js';

// The browser client's package, as the tools of others use it.

/** A page: it plays a little, is disconnected in between, and says what it saw. */
const PAGE = `
import { CloseCode, ReseatSocket } from 'reseat';
const socket = new ReseatSocket(globalThis.GAME);
const seen = [];
socket.addEventListener('resume', () => socket.send('once more'));
socket.onmessage = ({ data }) => {
  seen.push(data);
  if (seen.length === 1) socket.send('hello');
  else if (seen.length === 2) globalThis.disconnect();
  else socket.close(4000);
};
socket.onclose = ({ code }) => globalThis.done({ seen, code, superseded: CloseCode.SUPERSEDED });
`;
const SEEN = { seen: ['welcome to /match/7', 'hello', 'once more'], code: 4000, superseded: 4409 };

/** What a script of Node's is run after, so that a page's script runs. */
const BROWSER = `
globalThis.self = globalThis;
globalThis.WebSocket = require(${JSON.stringify(createRequire(import.meta.url).resolve('ws'))});
globalThis.GAME = process.env.GAME;
globalThis.disconnect = () => process.send('disconnect');
globalThis.done = (result) => process.send(result, () => process.disconnect());
`;

/** Runs a page's script against the gateway. @returns {Promise<any>} what it saw */
async function play(t, dir, script, preload = []) {
  const gateway = await startGateway(t);
  const args = ['--no-warnings', '--require', './browser.cjs', ...preload, script];
  const child = spawn(process.execPath, args, { cwd: dir, stdio: ['ignore', 'inherit', 'inherit', 'ipc'], env: { ...process.env, GAME: `ws://${gateway.host}/match/7`, SITE: `http://${gateway.host}` } });
  t.after(() => child.kill('SIGKILL'));
  let result;
  child.on('message', (message) => {
    if (message === 'disconnect') gateway.disconnectAll();
    else result = message;
  });
  const [status] = await once(child, 'exit');
  assert.equal(status, 0);
  return result;
}

/** Bundles of a project, by name of the tool; each writes dist/ and says which file is the entry. */
const BUNDLERS = {
  vite: async (dir, entry) => {
    await build({ root: dir, configFile: false, logLevel: 'warn', build: { rollupOptions: { input: join(dir, entry), output: { entryFileNames: 'main.mjs' } } } });
    return 'dist/main.mjs';
  },
  webpack: async (dir, entry) => {
    const compiler = webpack({ mode: 'production', target: 'web', context: dir, entry: `./${entry}`, output: { path: join(dir, 'dist'), filename: 'main.cjs', publicPath: '/' } });
    const stats = await new Promise((resolve, reject) => compiler.run((error, stats) => (error ? reject(error) : resolve(stats))));
    assert.ok(!stats.hasErrors() && !stats.hasWarnings(), stats.toString('errors-warnings'));
    return 'dist/main.cjs';
  },
};

for (const [name, bundle] of Object.entries(BUNDLERS)) {
  test(`bundled by ${name}, a page plays and resumes`, { timeout: 120_000 }, async (t) => {
    const dir = project(t, { 'page.js': PAGE, 'browser.cjs': BROWSER });
    const entry = await bundle(dir, 'page.js');
    assert.deepEqual(await play(t, dir, entry), SEEN);
  });

  test(`bundled by ${name}, what a page does not use is left out`, { timeout: 120_000 }, async (t) => {
    const code = `import { CloseCode, ReseatSocket } from 'reseat';\nimport 'reseat';\nglobalThis.code = CloseCode.SUPERSEDED;\n`;
    const dir = project(t, { 'page.js': code });
    await bundle(dir, 'page.js');
    const bundled = readdirSync(join(dir, 'dist'), { recursive: true, withFileTypes: true })
      .filter((file) => file.isFile()).map(({ parentPath, path, name }) => readFileSync(join(parentPath ?? path, name), 'utf8')).join('');
    assert.match(bundled, /4409/);
    assert.ok(bundled.length < 2500, `${bundled.length} bytes: is the package without side effects?`);
  });
}

const IMPORT = "import { CloseCode, ReseatSocket } from 'reseat';";
const REQUIRE = `
const { CloseCode, ReseatSocket } = require('reseat');
import('reseat').then((imported) => {
  if (ReseatSocket !== imported.default) throw new Error('two copies');
  if (require('reseat/package.json').version !== '${VERSION.slice(1)}') throw new Error('another version');
});`;

for (const [name, file, code, preload] of [
  ['imported by Node as an ES module', 'page.mjs', IMPORT],
  ['required by CommonJS, which gets the module that others import', 'page.cjs', REQUIRE],
  ['imported by URL from a running gateway', 'page.mjs', 'const { CloseCode, ReseatSocket } = await import(`${process.env.SITE}/reseat.js`);', ['--import', new URL('lib/http.js', import.meta.url).href]],
]) {
  test(`${name}, it plays and resumes`, { timeout: 120_000 }, async (t) => {
    const dir = project(t, { [file]: PAGE.replace(IMPORT, () => code), 'browser.cjs': BROWSER }, file === 'page.cjs' ? 'commonjs' : 'module');
    assert.deepEqual(await play(t, dir, file, preload), SEEN);
  });
}

test('what the package does not export is not reached', (t) => {
  const dir = project(t, { 'main.mjs': "await import('reseat/client/session.js');" });
  const { status, stderr } = spawnSync(process.execPath, ['main.mjs'], { cwd: dir, encoding: 'utf8' });
  assert.notEqual(status, 0);
  assert.match(stderr, /ERR_PACKAGE_PATH_NOT_EXPORTED/);
});

/** What users write, and what must be an error. */
const USAGE = `
import Default, { CloseCode, install, ReseatSocket, type ReseatOptions } from 'reseat';
import { useReseat } from 'reseat/react';
import { useReseat as useReseatInVue } from 'reseat/vue';
import { ref } from 'vue';

const options: ReseatOptions = { fallback: false };
const socket: WebSocket = new ReseatSocket('wss://game.test/match/7', ['chat.v2'], options);
const code: 4409 = CloseCode.SUPERSEDED;
export const same: typeof ReseatSocket = Default;
export const undo: () => void = install();
socket.addEventListener('close', (event) => event.code === code);

const { socket: mine, status } = useReseat('ws://x/', { protocols: ['chat.v2'], onMessage: ({ data }) => data, token: 'a.b.c' });
mine?.send(status === 'detached' ? 'later' : 'now');
// @ts-expect-error there is no such status
export const never = status === 'lost';
useReseat(null);

const { socket: theirs, status: state } = useReseatInVue(ref('ws://x/'), { onMessage: ({ data }) => data });
theirs.value?.send(state.value);
useReseatInVue(() => undefined);
// @ts-expect-error it is read only
state.value = 'open';
`;

const TSC = fileURLToPath(new URL('node_modules/typescript/bin/tsc', import.meta.url));
for (const [moduleResolution, module] of [['node16', 'node16'], ['nodenext', 'nodenext'], ['bundler', 'esnext']]) {
  test(`TypeScript finds its types, moduleResolution ${moduleResolution}`, { timeout: 120_000 }, (t) => {
    const dir = project(t, { 'main.ts': USAGE });
    const args = ['--strict', '--noEmit', '--target', 'es2022', '--lib', 'es2022,dom,dom.iterable', '--module', module, '--moduleResolution', moduleResolution, 'main.ts'];
    const { status, stdout } = spawnSync(process.execPath, [TSC, ...args], { cwd: dir, encoding: 'utf8' });
    assert.deepEqual([stdout, status], ['', 0]);
  });
}
