/** The codes of `close` events that the gateway itself sends (protocol section 6). */
export const CloseCode = Object.freeze({
  PROTOCOL_ERROR: 1002,
  INVALID_UTF8: 1007,
  MESSAGE_TOO_BIG: 1009,
  INTERNAL_ERROR: 1011,
  PROTOCOL_VIOLATION: 4400,
  BAD_TOKEN: 4401,
  REFUSED: 4403,
  NO_SESSION: 4404,
  WINDOW_EXCEEDED: 4408,
  SUPERSEDED: 4409,
  ENDED: 4410,
  TOO_FAST: 4429,
  UPSTREAM_LOST: 4502,
  DRAINING: 4503,
  NODE_UNREACHABLE: 4504,
});
