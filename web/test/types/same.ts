// Compiled by types.test.js: the declarations in reseat.d.ts are those of the source.

import type * as Declared from '../../reseat.js';
import { CloseCode } from '../../client/closecode.js';
import { install } from '../../client/install.js';
import { ReseatSocket } from '../../client/socket.js';

// What the source defines at run time.
type Constants = 'CONNECTING' | 'OPEN' | 'CLOSING' | 'CLOSED';
type Handlers = 'onopen' | 'onmessage' | 'onerror' | 'onclose';
type Members = Exclude<keyof Declared.ReseatSocket, Constants | Handlers>;

const made: new (...args: ConstructorParameters<typeof Declared.ReseatSocket>) => Pick<Declared.ReseatSocket, Members> =
  ReseatSocket;
const nothingElse: Record<Members, unknown> = {} as Record<Exclude<keyof ReseatSocket, Constants>, unknown>;
const nothingLess: Record<keyof ReseatSocket, unknown> = {} as Record<Members, unknown>;
const installed: typeof Declared.install = install;
const codes: typeof Declared.CloseCode = CloseCode as any as {
  [K in keyof typeof CloseCode]: (typeof Declared.CloseCode)[K];
};

export { codes, installed, made, nothingElse, nothingLess };
