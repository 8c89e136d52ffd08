// Types of the browser client. Written by hand for TypeScript 5.4 and newer; the tests compare
// them with the source.

/** A drop-in replacement for `WebSocket` whose session survives its connections. */
export class ReseatSocket extends EventTarget {
  /** `readyState` before the first hello of the gateway. */
  static readonly CONNECTING: 0;
  /** `readyState` of a session, detached or not. */
  static readonly OPEN: 1;
  /** `readyState` after `close()`. */
  static readonly CLOSING: 2;
  /** `readyState` once the session has ended, or could not begin. */
  static readonly CLOSED: 3;
  /** `readyState` before the first hello of the gateway. */
  readonly CONNECTING: 0;
  /** `readyState` of a session, detached or not. */
  readonly OPEN: 1;
  /** `readyState` after `close()`. */
  readonly CLOSING: 2;
  /** `readyState` once the session has ended, or could not begin. */
  readonly CLOSED: 3;

  /**
   * Begins a session, or resumes one (`options.token`, `options.storage`).
   *
   * @param url absolute or relative; `http:` and `https:` stand for `ws:` and `wss:`; or a function
   *   that returns it, which is called at each attempt to connect
   * @param protocols the application's subprotocols, or a function that returns them, likewise
   * @throws SyntaxError (a DOMException) where the URL, a subprotocol or the token is invalid
   * @throws TypeError where there is no WebSocket to use, or an option is invalid
   */
  constructor(url: URLSource, protocols?: ProtocolsSource, options?: ReseatOptions);

  /** The absolute URL; where a function names it, the newest one, `''` before the first. */
  readonly url: string;
  /** `CONNECTING` until the first hello of the gateway, then `OPEN`, detached or not. */
  readonly readyState: 0 | 1 | 2 | 3;
  /** Bytes given to `send()` that no connection was given yet, and those of this turn. */
  readonly bufferedAmount: number;
  /** The subprotocol that the game server chose; `''` for none. */
  readonly protocol: string;
  /** `''` towards a gateway: extensions belong to a connection, not to a session. */
  readonly extensions: string;
  /** The session's id; null before the first hello, and where there is no gateway. */
  readonly session: string | null;
  /** Whether the session has no connection at the moment, or one that is suspected of being dead. */
  readonly detached: boolean;
  /** Whether the session was begun by this page before it was reloaded (`options.storage`). */
  readonly resumed: boolean;
  /** What binary messages are delivered as: `'blob'` by default. */
  binaryType: BinaryType;

  /** Called with each `open` event. */
  onopen: ((this: any, event: Event) => any) | null;
  /** Called with each `message` event. */
  onmessage: ((this: any, event: MessageEvent) => any) | null;
  /** Called with each `error` event. */
  onerror: ((this: any, event: Event) => any) | null;
  /** Called with each `close` event. */
  onclose: ((this: any, event: CloseEvent) => any) | null;

  /**
   * Sends a message: exactly once and in order, over however many connections. While
   * detached it waits.
   *
   * @throws InvalidStateError (a DOMException) while `readyState` is `CONNECTING`
   */
  send(data: string | ArrayBufferLike | Blob | ArrayBufferView): void;

  /**
   * Ends the session, after everything that was sent before. While detached it is carried
   * through by a resume.
   *
   * @param code 1000 or 3000 to 4999; without one the game server gets a Close without a code
   * @param reason at most 123 bytes of UTF-8
   * @throws InvalidAccessError (a DOMException) for any other code
   * @throws SyntaxError (a DOMException) for a longer reason
   */
  close(code?: number, reason?: string): void;

  /** As `EventTarget` has it, with the events of `ReseatSocketEventMap`. */
  addEventListener<K extends keyof ReseatSocketEventMap>(
    type: K,
    listener: (this: any, event: ReseatSocketEventMap[K]) => any,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;

  /** As `EventTarget` has it, with the events of `ReseatSocketEventMap`. */
  removeEventListener<K extends keyof ReseatSocketEventMap>(
    type: K,
    listener: (this: any, event: ReseatSocketEventMap[K]) => any,
    options?: boolean | EventListenerOptions,
  ): void;
  removeEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | EventListenerOptions,
  ): void;
}

export default ReseatSocket;

/**
 * Replaces `globalThis.WebSocket` by `ReseatSocket`, for the URLs that `match` accepts. A
 * second call changes nothing. Warns on the console where it comes too late for scripts that
 * ran before it, and in Node, where libraries import `ws` instead.
 *
 * @returns restores the native WebSocket
 * @throws TypeError where there is no WebSocket to replace, or an option is invalid
 */
export function install(options?: InstallOptions & ReseatOptions): () => void;

/**
 * Fires `detach`, `resume`, `replayed`, `skip`, `upstream` and `close` of every `ReseatSocket`, for pages whose
 * sockets are hidden in a library. Each event has the members of the socket's own, and `socket`.
 */
export const reseat: ReseatTarget;

/** The codes of `close` events that the gateway itself sends (protocol section 6). */
export const CloseCode: {
  /** Broken framing. */
  readonly PROTOCOL_ERROR: 1002;
  /** A control message that is not UTF-8. */
  readonly INVALID_UTF8: 1007;
  /** A message is larger than the gateway's `--max-message`. */
  readonly MESSAGE_TOO_BIG: 1009;
  /** A fault in the gateway. */
  readonly INTERNAL_ERROR: 1011;
  /** Client and gateway do not understand each other. */
  readonly PROTOCOL_VIOLATION: 4400;
  /** The resume token is forged, expired, superseded or another player's. */
  readonly BAD_TOKEN: 4401;
  /** Login, duplicate player, unknown path, or the game server's own refusal: see `reason` and `detail.status`. */
  readonly REFUSED: 4403;
  /** The session is gone: its grace period is over. */
  readonly NO_SESSION: 4404;
  /** The replay buffer overflowed. */
  readonly WINDOW_EXCEEDED: 4408;
  /** Another connection resumed this session, or the player logged in elsewhere. */
  readonly SUPERSEDED: 4409;
  /** An operator, the game server or a timeout ended the session: see `reason`. */
  readonly ENDED: 4410;
  /** A rate limit, or too many sessions from this address. */
  readonly TOO_FAST: 4429;
  /** The game server cannot be reached, or its connection broke. */
  readonly UPSTREAM_LOST: 4502;
  /** The gateway is full, or shutting down. */
  readonly DRAINING: 4503;
  /** The node that has the session cannot be reached. */
  readonly NODE_UNREACHABLE: 4504;
};

/** A URL, or a function that names it anew at each attempt: one with a ticket, for example. */
export type URLSource = string | URL | (() => string | URL | Promise<string | URL>);

/** Subprotocols, or a function that names them anew at each attempt. */
export type ProtocolsSource =
  string | Iterable<string> | (() => string | Iterable<string> | Promise<string | Iterable<string>>);

/** Options of `ReseatSocket`; unknown members are ignored, since libraries pass their own. */
export type ReseatOptions = {
  /** The transport's constructor; by default `globalThis.WebSocket` as it was at import. */
  WebSocket?: any;
  /** false: never open a connection without the offer of `reseat.v1`. */
  fallback?: boolean;
  /** false: a refused first handshake is `error` and `close` 1006, as with `WebSocket`. */
  refusals?: boolean;
  /** A heartbeat of the game server's own that the client supplies while detached. */
  keepalive?: 'engine.io' | 'y-websocket' | Keepalive;
  /**
   * Called at each attempt to connect with the URL and the subprotocols that were asked for.
   * Returns the URL to use instead, or both. An attempt fails where it throws.
   */
  address?: (url: string, protocols: string[]) => AddressGiven | undefined | Promise<AddressGiven | undefined>;
  /**
   * Milliseconds after which an outage in which no gateway answers ends the session; 600,000 by
   * default, and never less than the gateway says that it keeps the session.
   */
  giveUpAfter?: number;
  /** The token of a pre-created session (`POST /sessions`): the first connection resumes it. */
  token?: string;
  /**
   * Where the session is kept while the page reloads: `sessionStorage`, or another store of
   * this tab alone. `localStorage` is a TypeError, since tabs share it.
   */
  storage?: Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;
  /** The environment, for tests. */
  runtime?: Partial<ReseatRuntime>;
};

/** What `ReseatOptions.address` returns. */
export type AddressGiven = string | URL | { url?: string | URL; protocols?: string | Iterable<string> };

/**
 * A heartbeat of the game server's own, for a client library that takes its connection for
 * dead without it. While detached, and after a sleep, the library is given one every so
 * often, and its answer is dropped: the gateway answers the server's (`--keepalive-reply`).
 */
export type Keepalive = {
  /** The message that the library waits for. */
  receive: string | BufferSource;
  /** The text message that it answers, if it does. */
  answer?: string;
  /** Milliseconds between two of them. */
  every: number;
};

/** What `install` takes besides the options of `ReseatSocket`. */
export type InstallOptions = {
  /** The absolute `ws:` or `wss:` URLs to replace `WebSocket` for; all by default. */
  match?: RegExp | ((url: string) => boolean);
  /** Hide the window's `offline` event from listeners that are added later. */
  hideOffline?: boolean;
  /** A small notice in the page while any socket is detached; or its texts. */
  banner?: boolean | BannerTexts;
  /** Called where a socket's connection is lost, or an attempt to resume has failed. */
  onDetach?: (socket: ReseatSocket, detail: DetachDetail) => void;
  /** Called where a socket has a connection again. */
  onResume?: (socket: ReseatSocket, detail: ResumeDetail) => void;
  /** Called where all messages that were sent meanwhile have been delivered. */
  onReplayed?: (socket: ReseatSocket, detail: {}) => void;
  /** Called where newer messages have replaced others. */
  onSkip?: (socket: ReseatSocket, detail: SkipDetail) => void;
  /** Called where the game server is lost and being dialled again, and where it is back. */
  onUpstream?: (socket: ReseatSocket, detail: UpstreamDetail) => void;
  /** Called where a socket is closed, refusals included. */
  onClose?: (socket: ReseatSocket, detail: CloseDetail) => void;
};

/** Options of `useReseat` (`reseat/react`, `reseat/vue`): those of `ReseatSocket`, and two more. */
export type UseReseatOptions = ReseatOptions & {
  /** The application's subprotocols. */
  protocols?: string | Iterable<string>;
  /** Called with each message of the game server's. */
  onMessage?: (event: MessageEvent) => void;
};

/** `connecting` until the session has begun, and where there is no URL yet; `detached` while it has no connection. */
export type ReseatStatus = 'connecting' | 'open' | 'detached' | 'closing' | 'closed';

/** The texts of the banner. */
export type BannerTexts = {
  /** While a socket is detached. */
  detached?: string;
  /** For 2 seconds after the last one is back; `''` for none. */
  resumed?: string;
};

/** What `detach` says. */
export type DetachDetail = {
  /** The number of the attempt that comes next, from 1. */
  attempt: number;
  /** When the gateway was last heard, in milliseconds since 1970. */
  since: number;
};

/** What `resume` says. */
export type ResumeDetail = {
  /** How many messages come again. */
  replay: number;
  /** How many messages the gateway dropped, under `--overflow drop-oldest`. */
  lost: number;
  /** How many messages newer ones have replaced (`--newest`); `skip` says where. */
  skipped: number;
  /** Milliseconds since the gateway was last heard. */
  ms: number;
  /** How another node took a durable session over: `handoff` or `failover`. */
  moved?: string;
  /** Whether the page was reloaded meanwhile (`options.storage`): the game's state must be asked for anew. */
  reloaded?: boolean;
};

/** What `skip` says. */
export type SkipDetail = {
  /** How many messages would have come here, had newer ones not replaced them (`--newest`). */
  skipped: number;
};

/** What `close` says beyond a `CloseEvent`. */
export type CloseDetail = {
  /** As in the `close` event. */
  code: number;
  /** As in the `close` event. */
  reason: string;
  /** As in the `close` event. */
  wasClean: boolean;
  /** Of a refused first handshake: the HTTP status that a client without `refusals` gets. */
  status?: number;
  /** Of a refused first handshake: whether a new one may succeed, after `retry_after_ms`. */
  retry?: boolean;
  /** Of a refused first handshake: milliseconds. */
  retry_after_ms?: number;
};

/** `upstream`, with `--upstream-lost redial`. */
export type UpstreamDetail = {
  /** `lost`: what is sent waits until the game server is `back`. */
  readonly state: 'lost' | 'back';
};

/** The events of `ReseatSocket`: those of `WebSocket`, and five more. */
export type ReseatSocketEventMap = {
  /** The session has begun. Fires once. */
  open: Event;
  /** A message of the game server's. */
  message: MessageEvent;
  /** The first handshake failed or was refused, or no way back was found; `close` follows. */
  error: Event;
  /** The session is over. */
  close: CloseEvent & { readonly detail: CloseDetail };
  /** The connection is lost, or an attempt to resume has failed. */
  detach: CustomEvent<DetachDetail> & DetachDetail;
  /** There is a connection again. */
  resume: CustomEvent<ResumeDetail> & ResumeDetail;
  /** The messages that `resume` announced have been delivered. */
  replayed: CustomEvent<{}>;
  /** Newer messages have replaced those that would have come here. */
  skip: CustomEvent<SkipDetail> & SkipDetail;
  /** The game server is lost and being dialled again, or is back. */
  upstream: CustomEvent<UpstreamDetail> & UpstreamDetail;
};

/** The events of `reseat`. */
export type ReseatTargetEventMap = {
  /** See `ReseatSocketEventMap`. */
  detach: CustomEvent<DetachDetail> & DetachDetail & { readonly socket: ReseatSocket };
  /** See `ReseatSocketEventMap`. */
  resume: CustomEvent<ResumeDetail> & ResumeDetail & { readonly socket: ReseatSocket };
  /** See `ReseatSocketEventMap`. */
  replayed: CustomEvent<{}> & { readonly socket: ReseatSocket };
  /** See `ReseatSocketEventMap`. */
  skip: CustomEvent<SkipDetail> & SkipDetail & { readonly socket: ReseatSocket };
  /** See `ReseatSocketEventMap`. */
  upstream: CustomEvent<UpstreamDetail> & UpstreamDetail & { readonly socket: ReseatSocket };
  /** See `ReseatSocketEventMap`. */
  close: CustomEvent<CloseDetail> & CloseDetail & { readonly socket: ReseatSocket };
};

/** The type of `reseat`. */
export interface ReseatTarget extends EventTarget {
  /** As `EventTarget` has it, with the events of `ReseatTargetEventMap`. */
  addEventListener<K extends keyof ReseatTargetEventMap>(
    type: K,
    listener: (this: any, event: ReseatTargetEventMap[K]) => any,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;
}

/** The environment of a `ReseatSocket`; only tests replace it. */
export type ReseatRuntime = {
  /** As the platform's. */
  setTimeout: (run: () => void, ms: number) => any;
  /** As the platform's. */
  clearTimeout: (timer: any) => void;
  /** Milliseconds of a clock that is never set. */
  now: () => number;
  /** Milliseconds of a clock that runs on while the machine sleeps. */
  wall: () => number;
  /** In [0, 1). */
  random: () => number;
  /** Fires `online`, `pageshow` and `pagehide`. */
  window: any;
  /** Fires `visibilitychange`, `freeze` and `resume`. */
  document: any;
  /** Has `onLine` and `userAgent`. */
  navigator: any;
  /** As the platform's. */
  fetch: (url: string, init: object) => Promise<{ status: number }>;
  /** What a relative URL is relative to. */
  base: string | undefined;
  /** The URL of this module. */
  module: string;
  /** Origins that have sent a hello. */
  gateways: Set<string>;
  /** Called at every change of state. */
  trace: (state: number) => void;
};
