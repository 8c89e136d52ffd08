import { useEffect, useRef, useState } from 'react';
import { NOTHING, watch } from './client/watch.js';

/** A socket for as long as the component is mounted; see react.d.ts. */
export function useReseat(url, options = {}) {
  const [watched, setWatched] = useState(NOTHING);
  const latest = useRef(options);
  const href = url ? String(url) : '';
  useEffect(() => void (latest.current = options)); // after each render, so that rendering stays pure
  useEffect(() => {
    if (href) return watch(href, () => latest.current, setWatched);
    setWatched(NOTHING);
  }, [href]);
  return watched;
}
