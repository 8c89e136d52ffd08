// @ts-check
// Confirmation dialogs.
import { html } from './html.js';
import { useId, useLayoutEffect, useRef, useState } from './vendor/hooks.js';

/**
 * A confirmation dialog. If the action is refused it stays open and shows the reason.
 * @param {{title: string, does: string, keep?: string, danger?: boolean, act: () => Promise<unknown>, close: (done: boolean) => void, children: any}} props
 */
export function Ask({ title, does, keep = 'Cancel', danger, act, close, children }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [refusal, setRefusal] = useState('');
  const [busy, setBusy] = useState(false);
  const id = useId();
  useLayoutEffect(() => dialog.current?.showModal(), []);

  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await act();
      close(true);
    } catch (error) {
      setRefusal(/** @type {Error} */ (error).message);
      setBusy(false);
    }
  };

  return html`
    <dialog ref=${dialog} aria-labelledby=${id} onClose=${() => close(false)} data-testid="dialog">
      <form onSubmit=${submit}>
        <h2 id=${id}>${title}</h2>
        ${children}
        <p class="refusal" role="alert">${refusal}</p>
        <div class="buttons">
          <button type="button" onClick=${() => close(false)}>${keep}</button>
          <button type="submit" class=${danger ? 'danger' : 'primary'} disabled=${busy} data-testid="confirm">
            ${does}
          </button>
        </div>
      </form>
    </dialog>
  `;
}
