// Types that the modules share. The public ones are those of reseat.d.ts.

/** @typedef {import('../reseat.js').ReseatOptions} ReseatOptions */
/** @typedef {import('../reseat.js').InstallOptions} InstallOptions */
/** @typedef {import('../reseat.js').ReseatRuntime} ReseatRuntime */
/** @typedef {import('../reseat.js').CloseDetail} CloseDetail */
/** @typedef {import('../reseat.js').UseReseatOptions} UseReseatOptions */
/** @typedef {import('../reseat.js').ReseatStatus} ReseatStatus */
/** @typedef {{ receive: string | ArrayBuffer, answer?: string, every: number }} Keepalive */
/** @typedef {string | ArrayBuffer | Blob} Incoming */

/**
 * How a session ends, as the application is told.
 * @typedef {CloseDetail & { error: boolean }} Ending
 */

/**
 * What `end` or `close` says (protocol section 5).
 * @typedef {{ code: number, reason: string, retry: boolean, after: number, status: number, final: boolean }} Verdict
 */

/**
 * What the application gave to close().
 * @typedef {{ code: number, reason: string }} Farewell
 */

/**
 * What a session is to do; never changes.
 * @typedef {object} Plan
 * @property {string} url
 * @property {string[]} protocols the application's own
 * @property {string} token '' for none
 * @property {boolean} fallback
 * @property {boolean} refusals
 * @property {boolean} plain no offer at all
 * @property {Keepalive | null} keepalive
 * @property {import('./records.js').Records | null} records
 * @property {any} Transport
 * @property {ReseatRuntime} runtime
 */

/**
 * What a session tells its socket.
 * @typedef {object} Host
 * @property {() => void} opened
 * @property {(data: any) => void} message
 * @property {(ending: Ending) => void} closed
 * @property {(type: string, detail: object) => void} notice
 */

export {};
