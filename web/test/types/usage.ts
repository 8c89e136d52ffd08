// Compiled by types.test.js against reseat.d.ts: what users write must type-check, and
// what is marked as an error must be one.

import Default, {
  CloseCode,
  install,
  reseat,
  ReseatSocket,
  type CloseDetail,
  type InstallOptions,
  type ReseatOptions,
} from '../../reseat.js';

// It goes wherever a WebSocket goes.
const socket: WebSocket = new ReseatSocket('wss://game.test/match/7', ['chat.v2']);
const Constructor: typeof ReseatSocket = Default;
const NativeLike = ReseatSocket satisfies typeof WebSocket;
const satisfying = new NativeLike('ws://x/') satisfies WebSocket;
const chosen = { storage: sessionStorage, keepalive: 'engine.io' } satisfies ReseatOptions & InstallOptions;
const library = (WebSocketLike: new (url: string | URL, protocols?: string | string[]) => WebSocket) =>
  new WebSocketLike('ws://x/');
library(ReseatSocket);

const options: ReseatOptions = {
  fallback: false,
  refusals: false,
  storage: sessionStorage,
  token: 'a.b.c',
  WebSocket: globalThis.WebSocket,
};
const heartbeats: ReseatOptions['keepalive'][] = [
  'engine.io',
  'y-websocket',
  { receive: '2', answer: '3', every: 1 },
  { receive: new Uint8Array([1]), every: 1 },
  { receive: new ArrayBuffer(1), every: 1 },
];
const mine = new Constructor(new URL('ws://x/'), new Set(['a', 'b']), options);
const state: 0 | 1 | 2 | 3 = ReseatSocket.OPEN;
const open: 1 = mine.OPEN;
const numbers: number[] = [mine.readyState, mine.bufferedAmount, state, open];
const strings: string[] = [`${heartbeats.length}`, mine.url, mine.protocol, mine.extensions, ...numbers.map(String)];
const session: string | null = mine.session;
const detached: boolean = mine.detached;

mine.send('text');
mine.send(new ArrayBuffer(1));
mine.send(new Uint8Array(1));
mine.send(new DataView(new ArrayBuffer(1)));
mine.send(new Blob([]));
mine.binaryType = 'arraybuffer';
mine.close();
mine.close(4001, 'left');

mine.onopen = () => {};
mine.onmessage = (event) => event.data;
mine.onclose = ({ code, reason, wasClean }) => [code.toFixed(), reason.trim(), wasClean === true];
mine.onerror = null;
mine.addEventListener('message', (event) => event.origin, { once: true });
mine.addEventListener('detach', ({ attempt, since, detail }) => attempt + since + detail.attempt);
mine.addEventListener('resume', ({ replay, lost, ms, detail }) => replay + lost + ms + detail.ms);
mine.addEventListener('replayed', (event) => event.type);
mine.addEventListener('upstream', ({ state }) => state === 'lost');
mine.addEventListener('skip', ({ skipped, detail }) => skipped === detail.skipped);
mine.addEventListener('anything', { handleEvent: () => {} });
mine.removeEventListener('close', () => {});

const refused: 4403 = CloseCode.REFUSED;
mine.addEventListener(
  'close',
  ({ code, detail }) => code === CloseCode.DRAINING && detail.retry && detail.retry_after_ms,
);
reseat.addEventListener('resume', ({ socket, ms, detail }) => `${socket.url}: ${ms + detail.replay} ${socket.resumed}`);
reseat.addEventListener('close', ({ socket, code, detail }) => [socket.readyState, code, detail.status]);
const why = ({ status, code, reason, retry }: CloseDetail) => `${status ?? code === refused}: ${reason} ${retry}`;

const installed: InstallOptions = { match: /\/match\//, hideOffline: true, banner: { detached: 'weg', resumed: '' } };
install({
  banner: true,
  onDetach: (socket, { attempt }) => socket.detached && attempt,
  onClose: (_, detail) => why(detail),
});
const uninstall: () => void = install({ ...installed, fallback: true });
install({ match: (url) => url.startsWith('wss:') });
install();
uninstall();

class Game extends ReseatSocket {
  constructor() {
    super('/match/7');
  }
}
const game: ReseatSocket = new Game();

// @ts-expect-error read-only
mine.session = 'x';
// @ts-expect-error read-only
mine.detached = true;
// @ts-expect-error read-only
mine.readyState = 1;
// @ts-expect-error no such type
mine.binaryType = 'nodebuffer';
// @ts-expect-error a number is no message
mine.send(5);
// @ts-expect-error a message is missing
mine.send();
// @ts-expect-error a URL is missing
new ReseatSocket();
// @ts-expect-error not a list of strings
new ReseatSocket('ws://x/', [5]);
// @ts-expect-error no such option
install({ matches: /x/ });
// @ts-expect-error no such option
({ matches: /x/ }) satisfies InstallOptions;

export { chosen, detached, game, satisfying, session, socket, strings };
