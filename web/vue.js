import { computed, shallowRef, toValue, watchEffect } from 'vue';
import { NOTHING, watch } from './client/watch.js';

/** A socket for as long as the component, or another effect scope, lives; see vue.d.ts. */
export function useReseat(url, options = {}) {
  const watched = shallowRef(NOTHING);
  watchEffect((onCleanup) => {
    watched.value = NOTHING;
    const href = toValue(url);
    if (href)
      onCleanup(
        watch(
          href,
          () => options,
          (now) => (watched.value = now),
        ),
      );
  });
  return { socket: computed(() => watched.value.socket), status: computed(() => watched.value.status) };
}
