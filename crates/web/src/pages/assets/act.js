// Actions: requests to the API that change something. Each is confirmed, sent once, and its error is shown.

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

// Asks in a dialog, and sends while it is open. Resolves after a success.
export function confirm({ title, text, yes, isDanger }, run) {
  const dialog = find('#confirm');
  const [yesButton, noButton, error] = ['[data-yes]', '[data-no]', '[data-error]'].map((part) => dialog.querySelector(part));
  dialog.querySelector('h2').textContent = title;
  dialog.querySelector('[data-text]').textContent = text ?? '';
  yesButton.textContent = yes ?? 'OK';
  yesButton.disabled = false;
  yesButton.classList.toggle('danger', isDanger === true);
  error.textContent = '';
  return new Promise((resolve) => {
    noButton.onclick = () => dialog.close();
    yesButton.onclick = async () => {
      yesButton.disabled = true;
      try {
        const result = await run();
        dialog.close();
        resolve(result);
      } catch (problem) {
        error.textContent = problem.message;
        yesButton.disabled = false;
      }
    };
    dialog.showModal();
    noButton.focus();
  });
}

const randomId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');

export function act(load) {
  document.addEventListener('click', (event) => {
    const button = event.target.closest('[data-post]');
    if (!button) return;
    const { post, body, title, text, yes } = button.dataset;
    const isNew = 'newRun' in button.dataset;
    // The same id for a second try: it gets the same run.
    const sent = isNew ? JSON.stringify({ ...JSON.parse(body), requestId: randomId() }) : body;
    const isDanger = button.classList.contains('danger');
    confirm({ title, text, yes, isDanger }, () => send(post, sent)).then(({ text: response }) => {
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
