// @ts-check
// Markup without a build step: htm templates create Preact elements.
import htm from './vendor/htm.js';
import { h } from './vendor/preact.js';

export const html = htm.bind(h);
