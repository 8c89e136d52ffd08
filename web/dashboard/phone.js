// @ts-check
import { useEffect, useState } from './vendor/hooks.js';

/** Whether the window is as narrow as a phone, as in the style sheets. */
export function usePhone() {
  const [query] = useState(() => matchMedia('(max-width: 720px)'));
  const [narrow, set] = useState(query.matches);
  useEffect(() => {
    const change = () => set(query.matches);
    query.addEventListener('change', change);
    return () => query.removeEventListener('change', change);
  }, []);
  return narrow;
}
