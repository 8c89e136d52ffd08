// Reads golden transcripts; their grammar stands in testdata/transcripts/README.md.

/** Splits a file into steps: { line, kind, ... }. @param {string} text */
export function parse(text) {
  const steps = [];
  text.split('\n').forEach((line, i) => {
    if (line.trim() === '' || line.startsWith('#')) return;
    for (const part of line.trim().split(/ {2,}(?=[CGUA](?:#\d+)?[<>] |--- |\+\+\+ |@ )/)) {
      steps.push({ line: i + 1, text: part, ...step(part, i + 1) });
    }
  });
  return steps;
}

function step(text, line) {
  const found = /^([CGUA])(?:#(\d+))?([<>]) (.*)$/.exec(text);
  if (found) {
    const [, actor, on, direction, rest] = found;
    if (direction === '<' && !'UA'.includes(actor)) throw new Error(`line ${line}: ${actor} receives nothing`);
    return { kind: actor + direction, on: on ? Number(on) : undefined, ...body(rest, line) };
  }
  const other = /^(@|---|\+\+\+) (.*)$/.exec(text);
  if (!other) throw new Error(`line ${line}: no step: ${text}`);
  return { kind: other[1], value: other[2] };
}

function body(text, line) {
  if (text.startsWith('"')) return { what: 'data', data: JSON.parse(text) };
  if (text.startsWith('x"'))
    return { what: 'data', data: new Uint8Array(Buffer.from(JSON.parse(text.slice(1)), 'hex')).buffer };
  if (text.startsWith('^')) {
    const [, verb, argument] = /^\^([a-z]+)(?: (.*))?$/.exec(text) ?? [];
    if (!verb) throw new Error(`line ${line}: no control message: ${text}`);
    return { what: 'control', verb, argument: argument?.startsWith('{') ? JSON.parse(argument) : argument };
  }
  const [word, ...rest] = text.split(' ');
  if (word === 'GET') return { what: 'GET', path: rest[0], offer: rest.slice(1).join(' ').split(', ') };
  if (word === 'Close' || word === 'close') {
    const reason = rest.slice(1).join(' ');
    return {
      what: 'close',
      code: Number(rest[0]),
      reason: reason && reason.startsWith('"') ? JSON.parse(reason) : undefined,
      members: text.includes('{') ? JSON.parse(text.slice(text.indexOf('{'))) : undefined,
    };
  }
  return { what: 'event', event: word, members: rest.length > 0 ? JSON.parse(rest.join(' ')) : {} };
}

/** "29s" in milliseconds. @param {string} text */
export function milliseconds(text) {
  const [, count, unit] = /^(\d+)(ms|s|m)$/.exec(text) ?? [];
  if (!unit) throw new Error(`no time span: ${text}`);
  return Number(count) * { ms: 1, s: 1_000, m: 60_000 }[unit];
}
