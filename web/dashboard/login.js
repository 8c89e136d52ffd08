// @ts-check
// Asks for a token.
import { html } from './html.js';
import { useLayoutEffect, useRef } from './vendor/hooks.js';

/** @param {{model: import('./model.js').Model}} props */
export function Login({ model }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useLayoutEffect(() => input.current?.focus(), []);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const token = input.current?.value.trim();
    if (token) model.unlock(token);
  };
  const refused = model.api.hasToken;
  return html`
    <main class="login">
      <form class="panel" onSubmit=${submit}>
        <h2>This gateway requires a token</h2>
        <p>
          One from <code>--admin-token-file</code> may do everything, one from <code>--viewer-token-file</code> may
          look. It is kept in this tab until that is closed.
        </p>
        <label
          >Token<input
            type="password"
            ref=${input}
            required
            autocomplete="off"
            spellcheck="false"
            aria-invalid=${refused}
            aria-describedby="login-refusal"
            data-testid="token"
        /></label>
        <p class="refusal" role="alert" id="login-refusal">${refused ? 'Unknown token.' : ''}</p>
        <div class="buttons"><button type="submit" class="primary" data-testid="unlock">Open</button></div>
      </form>
    </main>
  `;
}
