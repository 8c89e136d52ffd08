// Makes Node import modules from http: URLs, as Deno and pages do.

import { register } from 'node:module';

const hooks = `
export async function resolve(specifier, context, next) {
  const base = context.parentURL?.startsWith('http:') ? context.parentURL : undefined;
  if (base || specifier.startsWith('http:')) return { url: new URL(specifier, base).href, shortCircuit: true };
  return next(specifier, context);
}
export async function load(url, context, next) {
  if (!url.startsWith('http:')) return next(url, context);
  const answer = await fetch(url);
  if (!answer.ok || !/^text\\/javascript\\b/.test(answer.headers.get('content-type'))) throw new Error(url + ': ' + answer.status);
  return { format: 'module', shortCircuit: true, source: await answer.text() };
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
