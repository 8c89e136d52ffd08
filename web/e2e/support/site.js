import { readFile } from 'node:fs/promises';
import { serve } from './serve.js';

const FILES = new URL('../site/', import.meta.url);

/**
 * Serves the pages of the tests from an origin of their own, for as long as `t`
 * lasts. They import Reseat's client from the gateway.
 * @param {{after: (run: () => void) => void}} t
 */
export async function startSite(t) {
  return serve(t, async (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://site');
    const csp = searchParams.get('csp');
    if (csp) response.setHeader('Content-Security-Policy', csp);
    if (pathname === '/') return answer(response, 'text/html; charset=utf-8', page(searchParams.get('gateway') ?? ''));
    if (pathname === '/ordinary') return answer(response, 'text/html; charset=utf-8', ORDINARY);
    const name = /^\/([a-z]+\.js)$/.exec(pathname)?.[1];
    const content = name && (await readFile(new URL(name, FILES)).catch(() => null));
    if (content) return answer(response, 'text/javascript; charset=utf-8', content);
    response.writeHead(404).end();
  });
}

/** @param {import('node:http').ServerResponse} response @param {string} type @param {string | Buffer} content */
function answer(response, type, content) {
  response.writeHead(200, { 'Content-Type': type }).end(content);
}

/** A page that has nothing of Reseat's. */
const ORDINARY = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>A page that knows nothing of Reseat</title>
<link rel="icon" href="data:,">
<script type="module">
import { Visitor } from '/ordinary.js';
Object.assign(window, { Visitor, ready: true });
</script>
`;

/** @param {string} gateway host and port */
function page(gateway) {
  const host = /^[\w.:]*$/.exec(gateway)?.[0] ?? '';
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>A page of another origin</title>
<link rel="icon" href="data:,">
<script>
const pageErrors = [];
addEventListener('error', ({ message }) => pageErrors.push(message));
addEventListener('unhandledrejection', ({ reason }) => pageErrors.push(String(reason)));
</script>
<script type="module">
import { ReseatSocket, install } from 'http://${host}/reseat.js';
import { Player } from '/player.js';
Object.assign(window, { ReseatSocket, install, Player, ready: true });
</script>
`;
}
