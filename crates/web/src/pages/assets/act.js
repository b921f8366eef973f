// Actions: requests to the API that change something. Each is confirmed, sent once, and its error is shown.
import { body } from './edit.js';

const find = (selector) => document.querySelector(selector);

export async function send(address, body, options = {}) {
  const headers = body === undefined ? {} : { 'content-type': 'application/json' };
  const response = await fetch(address, { method: 'POST', headers, body, ...options });
  const text = await response.text();
  if (response.ok) return { text, response };
  let message = `${response.status} ${response.statusText}`;
  try { message = JSON.parse(text).error.message; } catch { /* It is not an error of the API. */ }
  throw Object.assign(new Error(message), { status: response.status, response });
}

// Asks in a dialog, and sends while it is open. Resolves after a success. `form` is a template with fields, `repeat` a text that must be
// typed, and `back` is called if the dialog is closed without a success. Without `run`, there is only the way back.
export function confirm({ title, text, yes, isDanger, form, repeat, back }, run) {
  const dialog = find('#confirm');
  const [yesButton, noButton, error, slot] = ['[data-yes]', '[data-no]', '[data-error]', '[data-slot]'].map((part) => dialog.querySelector(part));
  dialog.querySelector('h2').textContent = title;
  dialog.querySelector('[data-text]').textContent = text ?? '';
  slot.replaceChildren(...(form ? [form.content.cloneNode(true)] : []), ...(repeat ? [repeated(repeat, yesButton)] : []));
  yesButton.textContent = yes ?? 'OK';
  yesButton.hidden = !run;
  yesButton.disabled = Boolean(repeat);
  yesButton.classList.toggle('danger', isDanger === true);
  error.textContent = '';
  return new Promise((resolve) => {
    let isDone = false;
    noButton.onclick = () => dialog.close();
    // The event of the dialog before this one comes late: then this one is open.
    dialog.onclose = () => { if (!isDone && !dialog.open) back?.(); };
    slot.onkeydown = (event) => {
      if (event.key !== 'Enter' || event.repeat || !event.target.matches('input')) return;
      event.preventDefault();
      yesButton.click();
    };
    yesButton.onclick = async (event) => {
      // The second click of a double click belongs to the question before this one.
      if (event.detail > 1) return;
      yesButton.disabled = true;
      error.textContent = '';
      try {
        const result = await run(slot);
        isDone = true;
        dialog.close();
        resolve(result);
      } catch (problem) {
        error.textContent = problem.message;
        yesButton.disabled = false;
      }
    };
    dialog.showModal();
    const first = [...slot.querySelectorAll('input, select, textarea')].find((field) => field.checkVisibility());
    (first ?? noButton).focus();
  });
}

// A field into which a text must be typed before the button works.
function repeated(wanted, button) {
  const [label, hint, input] = ['label', 'span', 'input'].map((name) => document.createElement(name));
  label.className = 'stacked';
  hint.textContent = `Type ${wanted} to confirm`;
  Object.assign(input, { autocomplete: 'off', inputMode: 'numeric' });
  input.oninput = () => { button.disabled = input.value.trim() !== wanted; };
  label.append(hint, input);
  return label;
}

const randomId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');

export function act(load) {
  document.addEventListener('click', (event) => {
    const button = event.target.closest('[data-post]');
    if (!button) return;
    const { post, title, text, yes, repeat } = button.dataset;
    const isNew = 'newRun' in button.dataset;
    const base = button.dataset.body ? JSON.parse(button.dataset.body) : null;
    const form = button.dataset.form ? document.getElementById(button.dataset.form) : null;
    // The same id for the same request: a second try gets the same run.
    const ids = new Map();
    const content = (slot) => {
      const plain = base || form ? body(base ?? {}, slot) : undefined;
      if (!isNew) return plain;
      if (!ids.has(plain)) ids.set(plain, randomId());
      return body({ ...base, requestId: ids.get(plain) }, slot);
    };
    const isDanger = button.classList.contains('danger');
    confirm({ title, text, yes, isDanger, form, repeat }, (slot) => send(post, content(slot))).then(({ text: response }) => {
      if (isNew) location.href = `/runs/${JSON.parse(response).executionId}`;
      else load(location.href);
    });
  });
  document.addEventListener('submit', async (event) => {
    const form = event.target;
    if (!('signIn' in form.dataset)) return;
    event.preventDefault();
    const button = form.querySelector('button');
    const error = form.querySelector('[data-error]');
    button.disabled = true;
    error.textContent = '';
    try {
      await send('/sign-in', JSON.stringify({ token: form.elements.token.value }));
      location.reload();
    } catch (problem) {
      error.textContent = problem.message;
      button.disabled = false;
    }
  });
}
