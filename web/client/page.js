// The banner of install(), and its warnings on the console. Few pages need either, so this
// module is loaded on demand. It imports nothing, since that would load a second copy.

/** Applied by CSSOM, which no Content-Security-Policy forbids. Pages restyle it by custom properties. */
const STYLE = {
  position: 'fixed',
  inset: 'var(--reseat-banner-inset, auto auto 1em 50%)',
  transform: 'var(--reseat-banner-transform, translateX(-50%))',
  margin: '0',
  border: '0',
  padding: 'var(--reseat-banner-padding, .5em 1em)',
  font: 'var(--reseat-banner-font, 1rem/1.4 system-ui, sans-serif)',
  color: 'var(--reseat-banner-color, #fff)',
  background: 'var(--reseat-banner-background, #222)',
  borderRadius: 'var(--reseat-banner-radius, .4em)',
  pointerEvents: 'none',
  zIndex: '2147483647',
};

/**
 * Shows a small notice while any socket is detached.
 * @param {any} document
 * @param {EventTarget} reseat
 * @param {true | { detached?: string, resumed?: string }} texts
 * @param {AbortSignal} signal removes it for good
 */
function showBanner(document, reseat, texts, signal) {
  const { detached = 'Connection lost. Reconnecting\u2026', resumed = 'Reconnected.' } = Object(texts);
  const detachedSockets = new Set();
  const notice = document.createElement('reseat-banner');
  notice.setAttribute('role', 'status'); // announced politely, without moving the focus
  notice.setAttribute('popover', 'manual'); // above dialogs and fullscreen elements
  Object.assign(notice.style, STYLE);
  /** @type {any} */
  let next;
  /** @param {string} text */
  const say = (text) => {
    clearTimeout(next);
    if (text && !notice.isConnected) (document.body ?? document.documentElement).append(notice);
    notice.hidden = !text;
    if (notice.isConnected) notice.togglePopover?.(text !== '');
    // A live region must be there before its text changes.
    next = setTimeout(() => (notice.textContent = text));
  };
  /** @param {any} event */
  const heard = ({ type, socket }) => {
    const before = detachedSockets.size > 0;
    if (type === 'detach') detachedSockets.add(socket);
    else detachedSockets.delete(socket);
    const now = detachedSockets.size > 0;
    if (now === before) return;
    say(now ? detached : type === 'resume' ? resumed : '');
    if (!now) setTimeout(() => detachedSockets.size > 0 || say(''), 2_000);
  };
  for (const type of ['detach', 'resume', 'close']) reseat.addEventListener(type, heard, { signal });
  signal.addEventListener('abort', () => {
    clearTimeout(next);
    notice.remove();
  });
}

/** Scripts of the page may have run before install(). */
const WARNING_OF_SCRIPTS =
  'reseat: install() runs after scripts of this page, which may have kept the native WebSocket. ' +
  'If the game is one of them, put <script src="/reseat.install.js"></script> above it instead.';

/** Libraries for Node have a WebSocket of their own. */
const WARNING_OF_NODE =
  "reseat: install() replaces globalThis.WebSocket. Libraries for Node that import 'ws' do not use it: " +
  'give them ReseatSocket, if they take a WebSocket class.';

/**
 * @param {any} document undefined where there is no page
 * @param {EventTarget} reseat
 * @param {boolean | { detached?: string, resumed?: string } | undefined} banner
 * @param {AbortSignal} signal removes the banner
 * @param {unknown} warn whether to warn
 */
export function notify(document, reseat, banner, signal, warn) {
  if (warn) console.warn(document ? WARNING_OF_SCRIPTS : WARNING_OF_NODE);
  if (document && banner && !signal.aborted) showBanner(document, reseat, banner, signal);
}
