// @ts-check
// Makes vendor/ from the npm packages that the lockfile names:
//   npm ci && node dashboard/vendor.mjs
// The pages are served without a build, so each file is a module as it came, but
// for a line that says what it is, and for imports, which must be paths.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

const MODULES = new URL('../node_modules/', import.meta.url);
const VENDOR = new URL('vendor/', import.meta.url);

/** What is taken of which package. */
const FILES = {
  'preact.js': ['preact', 'dist/preact.mjs'],
  'hooks.js': ['preact', 'hooks/dist/hooks.mjs'],
  'htm.js': ['htm', 'dist/htm.mjs'],
  'uplot.js': ['uplot', 'dist/uPlot.esm.js'],
  'uplot.css': ['uplot', 'dist/uPlot.min.css'],
};

/** @param {string} path @returns {Promise<string>} */
const read = (path) => readFile(new URL(path, MODULES), 'utf8');

/** @param {string} name */
async function packageOf(name) {
  const { version, license } = JSON.parse(await read(`${name}/package.json`));
  return { version, license, text: await read(`${name}/LICENSE`) };
}

/** The files of vendor/ as they have to be, by name. @returns {Promise<Record<string, string>>} */
export async function made() {
  /** @type {Record<string, string>} */
  const files = {};
  const texts = new Map();
  for (const [file, [name, path]] of Object.entries(FILES)) {
    const { version, license, text } = await packageOf(name);
    files[file] =
      `/* ${name} ${version} ${path}, ${license}: LICENSES.txt */\n${asPath(await read(`${name}/${path}`))}`;
    texts.set(name, `${name} ${version}\n\n${text.trim()}\n`);
  }
  files['LICENSES.txt'] = [...texts.values()].join(`\n${'-'.repeat(72)}\n\n`);
  return files;
}

/** @param {string} source */
function asPath(source) {
  return source.replaceAll('from"preact"', 'from"./preact.js"').replace(/\n?\/[/*]# sourceMappingURL=.*\n?$/, '\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await mkdir(VENDOR, { recursive: true });
  for (const [file, text] of Object.entries(await made())) await writeFile(new URL(file, VENDOR), text);
}
