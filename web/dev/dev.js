// @ts-check
// The entry of /reseat.dev.js, a classic script that a gateway with --dev puts before its others: it
// must run before the page, or the client, takes the WebSocket of the browser.
import { Links, tap } from './links.js';
import { ReseatDev, isWithout } from './panel.js';

const KEY = Symbol.for('reseat.dev');
const scope = /** @type {any} */ (globalThis);

/** In a frame the panel appears with the first socket, elsewhere at once: that of a page without a socket makes way. */
function start() {
  const links = new Links();
  // A module has no element: its page is taken for one of the gateway's.
  const { host } = new URL(/** @type {any} */ (document.currentScript)?.src || location.href);
  tap(scope, links, host, isWithout());
  scope[KEY] = links;
  const show = () => {
    ReseatDev.links = links;
    if (!customElements.get('reseat-dev')) customElements.define('reseat-dev', ReseatDev); // upgrades one of the page
    const own = document.querySelector('reseat-dev');
    const panel = /** @type {ReseatDev} */ (own ?? document.createElement('reseat-dev'));
    // For scripts and end-to-end tests. Members may be added, not changed.
    scope.reseatDev = Object.freeze({
      /** Begins a fault, with the members of the control API. @param {import('./panel.js').Fault} fault */
      cut: (fault) => panel.cut(fault),
      end: () => panel.cut(null),
      report: () => panel.freshReport(),
    });
    if (!own) document.documentElement.append(panel); // frameworks replace what is in the body
    try {
      if (window !== window.top) /** @type {any} */ (window.top)[KEY].framed = true;
    } catch {
      // of another origin, or without a panel
    }
  };
  const when = () => {
    if (window === window.top || links.all.length > 0) show();
    else links.addEventListener('change', show, { once: true });
  };
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', when, { once: true });
  else when();
}

if (scope.document && scope.WebSocket && !scope[KEY]) start();
