import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** Processes that were started here and have not ended. @type {Set<import('node:child_process').ChildProcess>} */
const running = new Set();

function endAll() {
  for (const child of running) child.kill('SIGKILL');
}

process.on('exit', endAll);
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) process.on(signal, () => process.exit(1));

/**
 * Starts a process that ends with this one at the latest.
 * @param {string} file
 * @param {string[]} args
 * @param {NodeJS.ProcessEnv} env
 * @param {string} [cwd]
 */
export function start(file, args, env, cwd) {
  const child = spawn(file, args, { env, cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  child.stdout.resume(); // unless somebody reads it
  running.add(child);
  const gone = new Promise((done) => {
    child.once('error', (error) => done(error.message));
    child.once('exit', (code, signal) => done(signal ?? code));
  }).finally(() => running.delete(child));
  return { child, gone };
}

/**
 * What such a process says first that matches the pattern. Rejects if it ends before.
 * @param {ReturnType<typeof start>} process
 * @param {RegExp} pattern
 * @param {import('node:stream').Readable} [stream]
 * @returns {Promise<string>}
 */
export function said({ child, gone }, pattern, stream = child.stderr) {
  const found = new Promise((done) =>
    createInterface({ input: stream }).on('line', (line) => {
      const [, text] = pattern.exec(line) ?? [];
      if (text) done(text);
    }),
  );
  return Promise.race([found, gone.then((how) => Promise.reject(new Error(`${child.spawnfile} ended with ${how}`)))]);
}
