import type { ComputedRef, MaybeRefOrGetter } from 'vue';
import type { ReseatSocket, ReseatStatus, UseReseatOptions } from './reseat.js';

/**
 * A `ReseatSocket` for as long as the component, or another effect scope, lives; it is
 * closed when that ends, or `url` changes.
 *
 * @param url none yet: null, undefined or `''`
 */
export function useReseat(
  url: MaybeRefOrGetter<string | URL | null | undefined>,
  options?: UseReseatOptions,
): { readonly socket: ComputedRef<ReseatSocket | null>; readonly status: ComputedRef<ReseatStatus> };
