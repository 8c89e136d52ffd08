import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

// reseat.js is checked as TypeScript, and reseat.d.ts is what TypeScript makes of it.

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const settings = (name) => {
  const { config } = ts.readConfigFile(path(name), ts.sys.readFile);
  return ts.parseJsonConfigFileContent(config, ts.sys, path('types/')).options;
};
const complaints = (program) => ts.getPreEmitDiagnostics(program).map((d) => `${d.file?.fileName}:${d.start}: ${ts.flattenDiagnosticMessageText(d.messageText, '\n')}`);

test('reseat.js has no type errors, and reseat.d.ts is fresh (npm run types makes it)', () => {
  const program = ts.createProgram([path('../reseat.js')], { ...settings('types/check.json'), noEmit: false, declaration: true, emitDeclarationOnly: true });
  assert.deepEqual(complaints(program), []);
  const made = {};
  program.emit(undefined, (name, text) => (made[name.replace(/.*\//, '')] = text));
  assert.deepEqual(Object.keys(made), ['reseat.d.ts']);
  assert.equal(readFileSync(path('../reseat.d.ts'), 'utf8'), made['reseat.d.ts']);
});

test('what users write compiles against reseat.d.ts', () => {
  const { allowJs, checkJs, ...strict } = settings('types/check.json');
  const program = ts.createProgram([path('types/usage.ts')], { ...strict, skipLibCheck: false, types: [] });
  assert.deepEqual(complaints(program), []);
});
