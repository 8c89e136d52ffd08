// The states of a WebSocket (WebSockets Standard, section 3).

export const CONNECTING = 0;
export const OPEN = 1;
export const CLOSING = 2;
export const CLOSED = 3;
