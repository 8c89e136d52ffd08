// The recipes page, as a program: what it shows is what the tests run.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const PAGE = new URL('../../../docs/recipes.md', import.meta.url);

/** A section of the page, with the code that it shows. */
export class Recipe {
  #fences;

  constructor(title, text) {
    this.title = title;
    this.text = text;
    this.#fences = [...text.matchAll(/^```(\w+) ?(\S*)\n([^]*?)^```$/gm)].map(([, language, name, code]) => ({ language, name, code }));
  }

  /** The only code block in a language, or of that name. */
  code(label) {
    const found = this.#fences.filter(({ language, name }) => (name || language) === label);
    assert.equal(found.length, 1, `"${this.title}" shows ${found.length} code blocks ${label}, want 1`);
    return found[0].code;
  }

  /** Runs a code block that stands amid a program of its reader's, which has `scope`. Returns what the block declares with `const`. */
  run(label, scope) {
    const code = this.code(label);
    return new Function(...Object.keys(scope), `${code}\nreturn { ${declared(code)} };`)(...Object.values(scope));
  }

  /**
   * The arguments of the command that starts the gateway, the last one shown, for a game server
   * at addr. The commands before it are run in cwd.
   */
  flags(addr, cwd) {
    const commands = this.code('sh').trim().split('\n');
    const [program, ...flags] = commands.pop().split(' ');
    assert.equal(program, 'reseat');
    for (const command of commands) execFileSync('sh', ['-c', command], { cwd });
    return flags.map((flag) => flag.replace(/localhost:(?!5173)\d+/, addr)); // 5173 is the page's
  }
}

/** The names that code declares with `const`, outside of functions. */
export const declared = (code) => [...code.matchAll(/^ {0,2}const (\w+) =/gm)].map(([, name]) => name);

export function replaced(text, addresses) {
  return Object.entries(addresses).reduce((so, [from, to]) => so.replaceAll(from, to), text);
}

/** The section with that heading, up to the next one. */
export function recipe(title) {
  const sections = readFileSync(PAGE, 'utf8').split(/^###? /m).slice(1);
  const found = sections.find((section) => section.startsWith(`${title}\n`));
  assert.ok(found, `docs/recipes.md has no section "${title}"`);
  return new Recipe(title, found);
}
