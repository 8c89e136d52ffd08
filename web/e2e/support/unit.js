import assert from 'node:assert/strict';
import { readFile, readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { serve } from './serve.js';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** The files of web/test that need Node: servers, processes, the package. */
const NODE_ONLY = ['node.test.js', 'package.test.js', 'types.test.js', 'ws.test.js'];

/** What site/node.js has of Node. */
const SHIMMED = ['node:assert/strict', 'node:fs', 'node:test'];

/** Of the seeds of model.test.js, which take a minute. */
const SEEDS = 40;

/** A page that runs a file of tests. @param {string} file */
const page = (file) => `<!doctype html>
<meta charset="utf-8">
<title>${file}</title>
<link rel="icon" href="data:,">
<script type="importmap">${JSON.stringify({ imports: Object.fromEntries(SHIMMED.map((name) => [name, '/web/e2e/site/node.js'])) })}</script>
<script type="module">
globalThis.SEEDS = ${SEEDS};
const { runAll } = await import('node:test');
await import('/web/test/${file}').then(async () => (globalThis.results = await runAll()), (error) => (globalThis.results = [{ name: 'import', error: String(error) }]));
</script>
`;

/** Serves the repository's web/ and testdata/. @param {{after: (run: () => void) => void}} t */
async function serveRepository(t) {
  const { origin } = await serve(t, async (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://unit');
    const answer = (/** @type {string} */ type, /** @type {any} */ content) =>
      response.writeHead(200, { 'Content-Type': `${type}; charset=utf-8` }).end(content);
    const file = searchParams.get('file');
    if (file) return answer('text/html', page(file));
    try {
      if (!/^\/(web|testdata)\//.test(pathname)) throw new Error('not served');
      if (pathname.endsWith('/')) answer('application/json', JSON.stringify(await readdir(ROOT + pathname)));
      else answer(pathname.endsWith('.js') ? 'text/javascript' : 'text/plain', await readFile(ROOT + pathname));
    } catch {
      response.writeHead(404).end();
    }
  });
  return origin;
}

/**
 * The client's own tests, in a page of the engine.
 * @param {import('./engines.js').Engine} engine
 */
export function unitTests(engine) {
  test("the client's own tests pass", { timeout: 600_000 }, async (t) => {
    const origin = await serveRepository(t);
    const page = await engine.page(t);
    let count = 0;
    for (const file of await browserTests()) {
      await page.goto(`${origin}/?file=${file}`);
      await page.waitForFunction('globalThis.results', 300_000);
      const results = await page.evaluate('results');
      assert.ok(results.length > 0, `${file} has tests`);
      count += results.length;
      await t.test(file, async (t) => {
        for (const { name, error } of results) await t.test(name, () => assert.equal(error, undefined));
      });
    }
    console.log(`${engine.version}: ${count} tests of the client`);
  });
}

/** The files whose imports a page can have. */
async function browserTests() {
  const files = (await readdir(`${ROOT}/web/test`)).filter((name) => name.endsWith('.test.js'));
  const needNode = [];
  for (const file of files) {
    const source = await readFile(`${ROOT}/web/test/${file}`, 'utf8');
    const imports = [...source.matchAll(/^import .* from '([^']+)'/gm)].map(([, name]) => name);
    if (imports.some((name) => !name.startsWith('.') && !SHIMMED.includes(name))) needNode.push(file);
  }
  assert.deepEqual(needNode, NODE_ONLY, 'what does not run in browsers');
  return files.filter((file) => !NODE_ONLY.includes(file));
}
