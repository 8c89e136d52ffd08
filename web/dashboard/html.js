// @ts-check
// Markup without a build: htm's templates make Preact's elements.
import htm from './vendor/htm.js';
import { h } from './vendor/preact.js';

export const html = htm.bind(h);
