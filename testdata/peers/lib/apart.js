// A process of its own for what needs one: a page stands in the globals of its process.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const SELF = fileURLToPath(import.meta.url);

/**
 * Runs an exported function of a module in a new process, which the end of `t` ends. As its first
 * argument the function gets a `t` with `after`, as a test does; the others are what JSON can hold.
 * Rejects with what it throws.
 */
export function apart(t, module, name, ...args) {
  const child = spawn(process.execPath, [SELF, module.href, name, JSON.stringify(args)], { stdio: ['ignore', 'ignore', 'pipe'] });
  t.after(() => child.kill());
  let said = '';
  child.stderr.on('data', (data) => (said += data));
  return new Promise((done, fail) => {
    child.once('error', fail);
    child.once('close', (code) => (code === 0 ? done(undefined) : fail(new Error(said))));
  });
}

async function run(module, name, args) {
  const after = [];
  try {
    await (await import(module))[name]({ after: (last) => after.push(last) }, ...args);
  } finally {
    for (const last of after) await last();
  }
}

if (process.argv[1] === SELF) {
  const [module, name, args] = process.argv.slice(2);
  process.once('SIGTERM', () => process.exit(1)); // which ends the gateway, too
  await run(module, name, JSON.parse(args));
  process.exit(); // whatever timers a library has left
}
