/**
 * Puts ReseatSocket in the place of `globalThis.WebSocket`, for the URLs that `match`
 * accepts. What is `instanceof WebSocket` stays so, and a ReseatSocket is too. A second
 * call changes nothing.
 *
 * @param {InstallOptions & ReseatOptions} [options]
 * @returns {() => void} puts everything back
 */
export function install({ match, hideOffline, ...options }?: InstallOptions & ReseatOptions): () => void;
/**
 * @typedef {object} ReseatSocketEventMap
 * @property {Event} open
 * @property {MessageEvent} message
 * @property {Event} error
 * @property {CloseEvent} close
 * @property {CustomEvent<DetachDetail> & DetachDetail} detach the connection is lost, or an attempt has failed: attempt number `attempt` comes next
 * @property {CustomEvent<ResumeDetail> & ResumeDetail} resume a new connection has taken over; `replay` messages come again
 * @property {Event} replayed those messages have come
 */
/** @typedef {{ value: any, listener: (event: Event) => void }} Handler */
/**
 * A WebSocket whose session survives its connections. Members, constants, errors and
 * events are those of `WebSocket`; `session`, `detached` and the events `detach`, `resume`
 * and `replayed` are added. Towards a server without Reseat it is an ordinary WebSocket.
 */
export class ReseatSocket extends EventTarget {
    /** @returns {0} */
    static get CONNECTING(): 0;
    /** @returns {1} */
    static get OPEN(): 1;
    /** @returns {2} */
    static get CLOSING(): 2;
    /** @returns {3} */
    static get CLOSED(): 3;
    /** @param {[url: string | URL, protocols?: string | Iterable<string>, options?: ReseatOptions]} given */
    constructor(url: string | URL, protocols?: string | Iterable<string> | undefined, options?: ReseatOptions | undefined);
    /** @returns {0} */
    get CONNECTING(): 0;
    /** @returns {1} */
    get OPEN(): 1;
    /** @returns {2} */
    get CLOSING(): 2;
    /** @returns {3} */
    get CLOSED(): 3;
    /** The absolute URL. */
    get url(): string;
    /** CONNECTING until the first hello, then OPEN, detached or not. @returns {number} */
    get readyState(): number;
    /** Bytes given to send() that no connection was given yet. @returns {number} */
    get bufferedAmount(): number;
    /** The subprotocol that the game server chose. @returns {string} */
    get protocol(): string;
    /** @returns {string} */
    get extensions(): string;
    /** The session's id; null before the first hello, and where there is no Reseat. @returns {string | null} */
    get session(): string | null;
    /** Whether the session is without a connection at the moment. @returns {boolean} */
    get detached(): boolean;
    set binaryType(type: BinaryType);
    /** @returns {BinaryType} */
    get binaryType(): BinaryType;
    set onopen(handler: ((this: any, event: Event) => any) | null);
    /** @returns {((this: any, event: Event) => any) | null} */
    get onopen(): ((this: any, event: Event) => any) | null;
    set onmessage(handler: ((this: any, event: MessageEvent) => any) | null);
    /** @returns {((this: any, event: MessageEvent) => any) | null} */
    get onmessage(): ((this: any, event: MessageEvent) => any) | null;
    set onerror(handler: ((this: any, event: Event) => any) | null);
    /** @returns {((this: any, event: Event) => any) | null} */
    get onerror(): ((this: any, event: Event) => any) | null;
    set onclose(handler: ((this: any, event: CloseEvent) => any) | null);
    /** @returns {((this: any, event: CloseEvent) => any) | null} */
    get onclose(): ((this: any, event: CloseEvent) => any) | null;
    /**
     * Sends a message, exactly once over all connections. While detached it waits.
     * @param {[data: string | ArrayBufferLike | Blob | ArrayBufferView]} given
     * @returns {void}
     */
    send(data: string | ArrayBufferLike | ArrayBufferView<ArrayBufferLike> | Blob): void;
    /**
     * Ends the session, after all that was sent before. While detached it is carried through.
     * @param {number} [code] 1000 or 3000 to 4999
     * @param {string} [reason] at most 123 bytes
     * @returns {void}
     */
    close(code?: number, reason?: string): void;
    /**
     * @template {keyof ReseatSocketEventMap} K
     * @overload
     * @param {K} type
     * @param {(this: any, event: ReseatSocketEventMap[K]) => any} listener
     * @param {boolean | AddEventListenerOptions} [options]
     * @returns {void}
     */
    addEventListener<K extends keyof ReseatSocketEventMap>(type: K, listener: (this: any, event: ReseatSocketEventMap[K]) => any, options?: boolean | AddEventListenerOptions | undefined): void;
    /**
     * @overload
     * @param {string} type
     * @param {EventListenerOrEventListenerObject | null} listener
     * @param {boolean | AddEventListenerOptions} [options]
     * @returns {void}
     */
    addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | AddEventListenerOptions | undefined): void;
    /**
     * @template {keyof ReseatSocketEventMap} K
     * @overload
     * @param {K} type
     * @param {(this: any, event: ReseatSocketEventMap[K]) => any} listener
     * @param {boolean | EventListenerOptions} [options]
     * @returns {void}
     */
    removeEventListener<K extends keyof ReseatSocketEventMap>(type: K, listener: (this: any, event: ReseatSocketEventMap[K]) => any, options?: boolean | EventListenerOptions | undefined): void;
    /**
     * @overload
     * @param {string} type
     * @param {EventListenerOrEventListenerObject | null} listener
     * @param {boolean | EventListenerOptions} [options]
     * @returns {void}
     */
    removeEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | EventListenerOptions | undefined): void;
    #private;
}
export default ReseatSocket;
export type ReseatOptions = {
    /**
     * the transport's constructor; by default `globalThis.WebSocket` as it was at import
     */
    WebSocket?: any;
    /**
     * false: never open a connection without the offer of `reseat.v1`
     */
    fallback?: boolean | undefined;
    /**
     * a heartbeat of the game server's own that stands in for it while detached
     */
    keepalive?: Keepalive | "engine.io" | "y-websocket" | undefined;
    /**
     * of a session that was made ahead (`POST /sessions`): the first connection resumes it
     */
    token?: string | undefined;
    /**
     * the surroundings, for tests
     */
    runtime?: Partial<ReseatRuntime> | undefined;
};
/**
 * A heartbeat of the game server's own, for a client library that takes its connection for
 * dead without it. While detached, and after a sleep, the library is given one every so
 * often, and its answer goes nowhere: the gateway answers the server's (`--keepalive-reply`).
 */
export type Keepalive = {
    /**
     * the message that the library waits for
     */
    receive: string | BufferSource;
    /**
     * the text message that it answers, if it does
     */
    answer?: string | undefined;
    /**
     * milliseconds
     */
    every: number;
};
export type ReseatRuntime = {
    setTimeout: (run: () => void, ms: number) => any;
    clearTimeout: (timer: any) => void;
    /**
     * milliseconds of a clock that is never set
     */
    now: () => number;
    /**
     * milliseconds of a clock that runs on while the machine sleeps
     */
    wall: () => number;
    /**
     * in [0, 1)
     */
    random: () => number;
    /**
     * where online, pageshow and pagehide are heard
     */
    window: any;
    /**
     * where visibilitychange, freeze and resume are heard
     */
    document: any;
    /**
     * whose `onLine` is asked
     */
    navigator: any;
    /**
     * what a relative URL is relative to
     */
    base: string | undefined;
    /**
     * the URL of this module
     */
    module: string;
    /**
     * origins that have sent a hello
     */
    gateways: Set<string>;
    /**
     * hears every change of state
     */
    trace: (state: string, why: string) => void;
};
export type InstallOptions = {
    /**
     * the absolute ws: or wss: URLs to stand in for; all by default
     */
    match?: RegExp | ((url: string) => boolean) | undefined;
    /**
     * keep the window's `offline` event from listeners that are added later
     */
    hideOffline?: boolean | undefined;
};
/**
 * `since`: the last sign of life, in milliseconds since 1970
 */
export type DetachDetail = {
    attempt: number;
    since: number;
};
/**
 * `ms` since the last sign of life
 */
export type ResumeDetail = {
    replay: number;
    lost: number;
    ms: number;
};
export type Incoming = string | ArrayBuffer | Blob;
export type Ending = {
    code: number;
    reason: string;
    wasClean: boolean;
    error: boolean;
};
export type Verdict = {
    code: number;
    reason: string;
    retry: boolean;
    after: number;
};
export type Farewell = {
    code: number;
    reason: string;
    bare: boolean;
};
/**
 * what a session is to do; never changes
 */
export type Plan = {
    url: string;
    /**
     * the application's own
     */
    protocols: string[];
    /**
     * '' for none
     */
    token: string;
    fallback: boolean;
    /**
     * no offer at all
     */
    plain: boolean;
    keepalive: Keepalive | null;
    Transport: any;
    runtime: ReseatRuntime;
};
/**
 * what a session tells its socket
 */
export type Host = {
    opened: () => void;
    message: (data: any) => void;
    closed: (ending: Ending) => void;
    notice: (type: string, detail: object) => void;
};
export type ReseatSocketEventMap = {
    open: Event;
    message: MessageEvent;
    error: Event;
    close: CloseEvent;
    /**
     * the connection is lost, or an attempt has failed: attempt number `attempt` comes next
     */
    detach: CustomEvent<DetachDetail> & DetachDetail;
    /**
     * a new connection has taken over; `replay` messages come again
     */
    resume: CustomEvent<ResumeDetail> & ResumeDetail;
    /**
     * those messages have come
     */
    replayed: Event;
};
export type Handler = {
    value: any;
    listener: (event: Event) => void;
};
