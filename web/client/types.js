// Types that the modules share. The public ones are those of reseat.d.ts.

/** @typedef {import('../reseat.js').ReseatOptions} ReseatOptions */
/** @typedef {import('../reseat.js').InstallOptions} InstallOptions */
/** @typedef {import('../reseat.js').ReseatRuntime} ReseatRuntime */
/** @typedef {import('../reseat.js').CloseDetail} CloseDetail */
/** @typedef {import('../reseat.js').UseReseatOptions} UseReseatOptions */
/** @typedef {import('../reseat.js').ReseatStatus} ReseatStatus */
/** @typedef {{ receive: string | ArrayBuffer, answer?: string, every: number }} Keepalive */
/** @typedef {string | ArrayBuffer | Blob} Message */

/**
 * The argument of `end` and `close` (protocol section 5).
 * @typedef {{ code: number, reason: string, retry: boolean, retry_after_ms: number, status: number, _final?: boolean }} Verdict
 */

/**
 * The arguments of the application's close().
 * @typedef {{ code: number, reason: string }} CloseRequest
 */

/**
 * The options of a session, checked.
 * @typedef {object} Plan
 * @property {() => import('./address.js').Address | Promise<import('./address.js').Address>} _address called at each attempt
 * @property {boolean} _bare whether it makes no offer
 * @property {number} _giveUpAfter milliseconds without an answer
 * @property {string} _token '' for none
 * @property {boolean} _fallback
 * @property {boolean} _refusals
 * @property {Keepalive | null} _keepalive
 * @property {any} _store where records are kept, or null
 * @property {boolean} _ticketed whether the URL may differ at each attempt
 * @property {any} _Transport
 * @property {ReseatRuntime} _runtime
 */

/**
 * The socket, as a session or a plain connection calls it.
 * @typedef {object} Host
 * @property {() => void} _opened
 * @property {(data: any, origin?: string) => void} _message
 * @property {(detail: CloseDetail, error?: boolean) => void} _closed with an error event before it, by default where it was not clean
 * @property {(type: string, detail?: object) => void} _notice
 * @property {(url: string) => void} _connects to this URL
 * @property {(transport: any) => void} _plain an open WebSocket replaces the session
 * @property {() => void} _anew a new session replaces it
 */

export {};
