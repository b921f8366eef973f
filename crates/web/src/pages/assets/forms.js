// Forms that start runs and answer requests. The body is put together as text: a number keeps the digits that were typed.
import { confirm, send } from './act.js';

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

function problem(field, message) {
  field.setAttribute('aria-invalid', 'true');
  field.focus();
  throw new Error(message);
}

// The JSON text of the values in a form.
function values(form) {
  for (const field of form.querySelectorAll('[aria-invalid]')) field.removeAttribute('aria-invalid');
  const whole = form.querySelector('[data-whole]');
  if (whole) {
    const text = whole.value.trim() || '{}';
    try { JSON.parse(text); } catch (error) { problem(whole, `This is not JSON: ${error.message}`); }
    return text;
  }
  const members = [];
  for (const field of form.querySelectorAll('[data-field]')) {
    const { field: name, type } = field.dataset;
    const text = field.value;
    if (text.trim() === '' && !(type === 'string' && field.required)) continue;
    let value = text.trim();
    if (type === 'string') value = JSON.stringify(text);
    else if (type === 'number' && !NUMBER.test(value)) problem(field, `${name} must be a number`);
    else { try { JSON.parse(value); } catch (error) { problem(field, `${name} is not JSON: ${error.message}`); } }
    members.push(`${JSON.stringify(name)}: ${value}`);
  }
  return `{${members.join(', ')}}`;
}

async function start(form) {
  const button = form.querySelector('button');
  button.disabled = true;
  try {
    // The same id for a second click: it gets the same run.
    const { text } = await send(form.dataset.run, `{"requestId": ${JSON.stringify(form.dataset.requestId)}, "trigger": ${values(form)}}`);
    location.href = `/runs/${JSON.parse(text).executionId}`;
  } finally { button.disabled = false; }
}

async function answer(form, outcome, load) {
  const { shape } = form.dataset;
  const chosen = outcome === '' ? '' : `"outcome": ${JSON.stringify(outcome)}`;
  const hasFields = form.querySelector('[data-field], [data-whole]');
  const rest = hasFields ? `"${shape === 'task' ? 'state' : 'fields'}": ${values(form)}` : '';
  const body = `{${[chosen, rest].filter(Boolean).join(', ')}}`;
  const title = outcome === '' ? 'Send this answer?' : `Answer “${outcome}”?`;
  await confirm({ title, text: 'The run goes on with this answer. It cannot be changed.', yes: 'Send' }, async () => {
    try { return await send(form.dataset.answer, body); } catch (error) {
      if (error.status === 409) {
        await show(load);
        throw new Error(`It was already answered. ${error.message}`);
      }
      throw error;
    }
  });
  await show(load);
}

// Shows the answer in place of the form.
async function show(load) {
  await load(location.href);
}

export function forms(load) {
  document.addEventListener('submit', async (event) => {
    const form = event.target;
    const isRun = 'run' in form.dataset;
    if (!isRun && !('answer' in form.dataset)) return;
    event.preventDefault();
    const error = form.querySelector('[data-error]');
    error.textContent = '';
    try {
      if (isRun) await start(form);
      else await answer(form, event.submitter?.value ?? '', load);
    } catch (failed) { error.textContent = failed.message; }
  });
}
