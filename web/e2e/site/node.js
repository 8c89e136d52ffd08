// What the tests of the client use of Node, for a page: node:test, node:assert/strict, some of node:fs, Buffer.
// The page maps the names of these modules to this one.

/** @type {{name: string, run: (t: object) => unknown, after: (() => unknown)[]}[]} */
const tests = [];
/** @type {(() => unknown)[]} */
let hooks = [];
let prefix = '';

/** @param {string} name @param {(t: object) => unknown} run */
export const test = (name, run) => tests.push({ name: prefix + name, run, after: hooks });

/** @param {string} name @param {() => void} body */
export function describe(name, body) {
  const before = [prefix, hooks];
  prefix = `${name}: `;
  body();
  [prefix, hooks] = before;
}

/** @param {() => unknown} run */
export const afterEach = (run) => (hooks = [...hooks, run]);

/** Runs all tests, in order. @returns {Promise<{name: string, error?: string}[]>} each, with what it threw */
export async function runAll() {
  const results = [];
  for (const { name, run, after } of tests) {
    const ends = [...after];
    const result = { name };
    try {
      await run({ after: (/** @type {() => unknown} */ end) => ends.unshift(end), diagnostic: () => {} });
    } catch (error) {
      Object.assign(result, { error: `${error}\n${error?.stack ?? ''}` });
    }
    for (const end of ends) await end();
    results.push(result);
  }
  return results;
}

// ---- node:assert/strict

const show = (/** @type {unknown} */ value) => {
  try {
    return typeof value === 'string' ? value : (JSON.stringify(value) ?? String(value));
  } catch {
    return String(value);
  }
};

/** @param {unknown} so @param {unknown} message @param {string} [claim] */
function want(so, message, claim = '') {
  if (so) return;
  throw message instanceof Error ? message : new Error(`${message ?? ''} ${claim}`);
}

const parts = (/** @type {any} */ value) => {
  if (value instanceof Date || value instanceof RegExp) return [String(value)];
  if (value instanceof Error) return [value.name, value.message];
  if (value instanceof ArrayBuffer) return [...new Uint8Array(value)];
  if (value instanceof Map || value instanceof Set) return [...value];
  return null;
};

/** @param {any} a @param {any} b @returns {boolean} */
function same(a, b) {
  if (Object.is(a, b)) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || !a || !b) return false;
  if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  const [of, to] = [parts(a), parts(b)];
  if (of && to && !same(of, to)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]));
}

/** @param {any} error @param {any} expected */
function fits(error, expected) {
  if (expected === undefined) return true;
  if (expected instanceof RegExp) return expected.test(String(error));
  if (typeof expected === 'function')
    return expected.prototype && (expected === Error || expected.prototype instanceof Error)
      ? error instanceof expected
      : expected(error) === true;
  return Object.keys(expected).every((key) => same(error[key], expected[key]));
}

/** @type {any} */
const assert = (/** @type {unknown} */ value, /** @type {any} */ message) =>
  want(value, message, `falsy: ${show(value)}`);
export default Object.assign(assert, {
  ok: assert,
  fail: (message) => want(false, message, 'failed'),
  equal: (a, b, message) => want(Object.is(a, b), message, `${show(a)} is not ${show(b)}`),
  notEqual: (a, b, message) => want(!Object.is(a, b), message, `is ${show(b)}`),
  deepEqual: (a, b, message) => want(same(a, b), message, `\n${show(a)}\nis not\n${show(b)}`),
  match: (text, pattern, message) => want(pattern.test(text), message, `${text} does not match ${pattern}`),
  doesNotMatch: (text, pattern, message) => want(!pattern.test(text), message, `${text} matches ${pattern}`),
  throws(run, expected, message) {
    try {
      run();
    } catch (error) {
      return want(fits(error, expected), message, `threw ${error}`);
    }
    return want(false, message, 'threw nothing');
  },
  async rejects(run, expected, message) {
    const none = {};
    const error = await Promise.resolve(typeof run === 'function' ? run() : run).then(
      () => none,
      (error) => error,
    );
    want(error !== none && fits(error, typeof expected === 'string' ? undefined : expected), message ?? expected);
  },
});

// ---- node:fs, over HTTP

/** @param {URL} url */
export function readFileSync(url) {
  const request = new XMLHttpRequest();
  request.open('GET', url, false);
  request.send();
  want(request.status === 200, `${url}: ${request.status}`);
  return request.responseText;
}

/** The server lists a directory as JSON. @param {URL} url @returns {string[]} */
export const readdirSync = (url) => JSON.parse(readFileSync(url));

// ---- Buffer

globalThis.Buffer ??= /** @type {any} */ (
  class Buffer extends Uint8Array {
    static from(/** @type {any} */ data, /** @type {any} */ encoding) {
      if (encoding === 'hex')
        return super.from(data.match(/../g) ?? [], (/** @type {string} */ two) => parseInt(two, 16));
      if (typeof data === 'string') return new this(new TextEncoder().encode(data));
      return new this(data);
    }

    static alloc = (/** @type {number} */ length) => new this(length);

    static concat(/** @type {Uint8Array[]} */ list) {
      const all = new this(list.reduce((sum, { length }) => sum + length, 0));
      let at = 0;
      for (const one of list) {
        all.set(one, at);
        at += one.length;
      }
      return all;
    }

    static byteLength = (/** @type {string} */ text) => new TextEncoder().encode(text).length;

    toString(encoding = 'utf8') {
      if (encoding === 'hex') return [...this].map((byte) => byte.toString(16).padStart(2, '0')).join('');
      if (encoding === 'latin1') return String.fromCharCode(...this);
      return new TextDecoder().decode(this);
    }
  }
);
