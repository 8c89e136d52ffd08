import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

// The source is checked as TypeScript, and what users write compiles against reseat.d.ts.

const COMPILERS = ['typescript-5.4', 'typescript-5.9', 'typescript'];
const path = (name) => fileURLToPath(new URL(name, import.meta.url));

/** What a compiler says; nothing where all is well. */
const compile = (compiler, ...args) => {
  const { stdout, status } = spawnSync(process.execPath, [path(`../node_modules/${compiler}/bin/tsc`), ...args], {
    encoding: 'utf8',
  });
  return status === 0 ? '' : stdout || `status ${status}`;
};

const version = (compiler) =>
  JSON.parse(readFileSync(path(`../node_modules/${compiler}/package.json`), 'utf8')).version;

test('the source has no type errors, and reseat.d.ts declares what it has', () => {
  assert.equal(compile('typescript', '-p', path('types/check.json')), '');
});

test('what users write compiles under TypeScript 5.4, 5.9 and 7', () => {
  assert.deepEqual(
    COMPILERS.map((name) => version(name).split('.').slice(0, 2).join('.')),
    ['5.4', '5.9', '7.0'],
  );
  for (const compiler of COMPILERS) assert.equal(compile(compiler, '-p', path('types/usage.json')), '', compiler);
});

test('every member of the declarations says what it is', () => {
  for (const name of ['reseat', 'react', 'vue']) {
    const lines = readFileSync(path(`../${name}.d.ts`), 'utf8').split('\n');
    const silent = lines.filter((line, i) => {
      const member =
        /^(export (declare )?(class|function|const|type|interface) \w+|  (static )?(readonly )?\w+[?]?(<.*>)?[(:])/.test(
          line,
        );
      const parameter = /,$/.test(line) || /^ {2,}\);$|^  \): void;$/.test(lines[i - 1]);
      return member && !parameter && !/\*\/$/.test(lines[i - 1]);
    });
    assert.deepEqual(silent, [], name);
  }
});
