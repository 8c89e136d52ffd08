// @ts-check
// The actions on a session, each with a confirmation.
import { Ask } from './dialog.js';
import { brief, duration, period } from './format.js';
import { html } from './html.js';
import { useState } from './vendor/hooks.js';

/** @typedef {import('./api.js').Session} Session */
/** @typedef {{api: import('./api.js').Api, session: Session, close: (said: string) => void}} Props */

/**
 * The buttons for a session, and the open dialog of one of them.
 * @param {{api: import('./api.js').Api, session: Session, done: (said: string) => void}} props
 */
export function Actions({ api, session, done }) {
  const [asked, setAsked] = useState(/** @type {'' | 'disconnect' | 'grace' | 'end'} */ (''));
  const close = (/** @type {string} */ said) => {
    setAsked('');
    if (said) done(said);
  };
  const ended = session.state === 'ended';
  const Question = { disconnect: Disconnect, grace: Grace, end: End, '': null }[asked];
  return html`
    <div class="actions" role="group" aria-label="Actions">
      <button
        type="button"
        disabled=${session.state !== 'attached'}
        onClick=${() => setAsked('disconnect')}
        data-testid="disconnect"
      >
        Disconnect…
      </button>
      <button type="button" disabled=${ended} onClick=${() => setAsked('grace')} data-testid="set-grace">
        Change grace…
      </button>
      <button type="button" class="danger" disabled=${ended} onClick=${() => setAsked('end')} data-testid="end">
        End…
      </button>
      ${Question && html`<${Question} api=${api} session=${session} close=${close} />`}
    </div>
  `;
}

/** Whom it concerns. @param {Session} session */
function who({ player, id }) {
  return player ? `${player}’s session` : `session ${brief(id)}`;
}

/** @param {Props} props */
function Disconnect({ api, session, close }) {
  const act = () => api.disconnect(session.id);
  const after = session.resumable
    ? `The session is kept for ${period(session.grace)}; a client that resumes continues where it was.`
    : 'A plain client cannot resume: its session ends.';
  return html`
    <${Ask}
      title=${`Disconnect the client of ${who(session)}?`}
      does="Disconnect"
      act=${act}
      close=${(/** @type {boolean} */ done) => close(done ? 'Disconnected.' : '')}
    >
      <p>Drops the client's connection without a Close frame, like a failing network. ${after}</p>
    <//>
  `;
}

/** @param {Props} props */
function Grace({ api, session, close }) {
  const [grace, setGrace] = useState(session.grace);
  const good = !Number.isNaN(duration(grace));
  const act = () =>
    good ? api.setGrace(session.id, grace) : Promise.reject(new Error('Enter a duration such as 45s, 5m or 1h30m.'));
  const running =
    session.state === 'detached'
      ? 'The client is disconnected: the remaining time changes at once.'
      : 'The client is notified; it applies from the next disconnect on.';
  return html`
    <${Ask}
      title=${`Change the grace period of ${who(session)}?`}
      does="Change"
      act=${act}
      close=${(/** @type {boolean} */ done) => close(done ? `The grace period is ${period(grace)} now.` : '')}
    >
      <label
        >Grace period<input
          value=${grace}
          maxlength="20"
          required
          aria-invalid=${!good}
          onInput=${(/** @type {any} */ event) => setGrace(event.target.value.trim())}
          data-testid="grace-input"
      /></label>
      <p>${running}</p>
    <//>
  `;
}

/** The max length of a reason in bytes: RFC 6455 section 5.5.1. */
const MOST_REASON = 123;

/** @param {Props} props */
function End({ api, session, close }) {
  const [reason, setReason] = useState('');
  const fits = new TextEncoder().encode(reason).length <= MOST_REASON;
  const act = () =>
    fits ? api.end(session.id, reason) : Promise.reject(new Error(`The reason can have at most ${MOST_REASON} bytes.`));
  return html`
    <${Ask}
      title=${`End ${who(session)}?`}
      does="End session"
      danger
      act=${act}
      close=${(/** @type {boolean} */ done) => close(done ? 'Ended.' : '')}
    >
      <p>
        Closes the game server's connection with 1000. The client gets 4410 and cannot resume. This cannot be undone.
      </p>
      <label
        >Reason, for both<input
          value=${reason}
          maxlength=${MOST_REASON}
          placeholder="optional"
          onInput=${(/** @type {any} */ event) => setReason(event.target.value)}
          data-testid="reason"
      /></label>
    <//>
  `;
}
