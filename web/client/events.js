// The events of sockets, and one target for those of all sockets.

/** @type {typeof CloseEvent} */
const CloseEventHere =
  globalThis.CloseEvent ??
  /** @type {any} */ (
    class CloseEvent extends Event {
      /**
       * @param {string} type
       * @param {CloseEventInit} init
       */
      constructor(type, init) {
        super(type);
        Object.assign(this, init);
      }
    }
  );

/**
 * An event that WebSocket does not have: its members are both on the event and in `detail`.
 * @param {string} type
 * @param {object} detail
 */
export const ownEvent = (type, detail) => Object.assign(new Event(type), { ...detail, detail });

/**
 * A CloseEvent with `detail`.
 * @param {import('./types.js').CloseDetail} detail
 */
export const closeEvent = (detail) => Object.assign(new CloseEventHere('close', detail), { detail });

/** Fires the events of all sockets, for pages that cannot reach a library's sockets. */
export const reseat = new EventTarget();

/**
 * @param {any} socket
 * @param {{ type: string, detail: object }} event
 */
export const announce = (socket, { type, detail }) => reseat.dispatchEvent(ownEvent(type, { ...detail, socket }));
