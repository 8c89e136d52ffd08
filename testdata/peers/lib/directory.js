// A directory for a program of a page's reader.

import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const MODULES = fileURLToPath(new URL('../node_modules', import.meta.url));

/**
 * Makes a directory with the libraries that are installed here. It goes with the test.
 * @param {{ after: (last: () => any) => void }} t
 */
export function directory(t) {
  const dir = mkdtempSync(join(tmpdir(), 'reseat-peers-'));
  symlinkSync(MODULES, join(dir, 'node_modules'));
  t.after(() => rmSync(dir, { recursive: true }));
  return dir;
}
