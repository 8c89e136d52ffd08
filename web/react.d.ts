import type { ReseatSocket, ReseatStatus, UseReseatOptions } from './reseat.js';

/**
 * A `ReseatSocket` for as long as the component is mounted; it is closed when that ends, or
 * `url` changes. Renders again after each change of `status`.
 *
 * @param url none yet: null, undefined or `''`
 */
export function useReseat(
  url: string | URL | null | undefined,
  options?: UseReseatOptions,
): { readonly socket: ReseatSocket | null; readonly status: ReseatStatus };
