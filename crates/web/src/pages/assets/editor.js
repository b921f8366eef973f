// The editor: checks while typing, drafts that are saved only over the draft that was opened, dry runs, publishing.
import { confirm, send } from './act.js';

const find = (selector) => document.querySelector(selector);
const editor = find('#editor');
const source = find('#source');
const { draft, publishTo, home } = editor.dataset;
const DOCUMENT = { 'content-type': 'application/yaml' };
// How long typing must rest before the source is checked, in milliseconds.
const REST = 300;

let saved = source.value;
let etag = editor.dataset.etag ?? '';
let latest = Number(editor.dataset.latest ?? 0);
let isLeaving = false;
const isDirty = () => source.value !== saved;

function say(text, isError = false) {
  find('#said').textContent = isError ? '' : text;
  find('#failed').textContent = isError ? text : '';
}

// Replaces the parts of the page that a response has.
function show(text) {
  const parts = new DOMParser().parseFromString(text, 'text/html');
  for (const part of parts.querySelectorAll('[id]')) {
    // Parts of parts come with them.
    if (part.parentElement.closest('[id]')) continue;
    document.getElementById(part.id)?.replaceChildren(...document.adoptNode(part).childNodes);
  }
  document.dispatchEvent(new Event('applied'));
}

let rest = 0;
let running = null;
async function check() {
  clearTimeout(rest);
  running?.abort();
  running = new AbortController();
  try {
    show((await send('/workflows/new', source.value, { headers: DOCUMENT, signal: running.signal })).text);
  } catch (problem) {
    if (problem.name !== 'AbortError') find('#problems').replaceChildren(paragraph(problem.message));
  }
  number();
}

function paragraph(text) {
  const element = document.createElement('p');
  element.className = 'pad error';
  element.textContent = text;
  return element;
}

// Line numbers, with a mark where a problem is.
function number() {
  const marked = new Set([...document.querySelectorAll('#problems [data-line]')].map((problem) => Number(problem.dataset.line)));
  const count = source.value.split('\n').length;
  find('#gutter').textContent = Array.from({ length: count }, (_, at) => (marked.has(at + 1) ? `! ${at + 1}` : at + 1)).join('\n');
  find('#gutter').scrollTop = source.scrollTop;
}

// The place of a line and a column. Columns are characters; in JavaScript some characters have two units.
function place(line, column) {
  const lines = source.value.split('\n');
  const before = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  return before + [...(lines[line - 1] ?? '')].slice(0, column - 1).join('').length;
}

function select(start, end) {
  source.focus();
  source.setSelectionRange(start, Math.max(start, end));
  const line = source.value.slice(0, start).split('\n').length;
  const height = parseFloat(getComputedStyle(source).lineHeight);
  source.scrollTop = (line - 1) * height - source.clientHeight / 3;
}

function changed() {
  number();
  say(isDirty() ? 'Unsaved changes' : '');
  clearTimeout(rest);
  rest = setTimeout(check, REST);
}

function leave(address) {
  isLeaving = true;
  location.href = address;
}

// Saves a draft of a new workflow, or over the draft that was opened. Rejects if there is another draft.
async function save() {
  const text = source.value;
  if (!draft) {
    const headers = { ...DOCUMENT, 'if-none-match': '*' };
    const { text: answer } = await send('/api/v1/workflows', text, { headers }).catch((problem) => {
      if (problem.status === 412) problem.message = 'There is a draft with this id already. Choose another id, or edit that workflow.';
      throw problem;
    });
    const { id, workflowId, workflow_id: name } = JSON.parse(answer);
    leave(`/workflows/${encodeURIComponent(id ?? workflowId ?? name)}/edit`);
    return;
  }
  const guard = etag ? { 'if-match': etag } : { 'if-none-match': '*' };
  try {
    const { text: answer, response } = await send(draft, text, { method: 'PUT', headers: { ...DOCUMENT, ...guard } });
    etag = response.headers.get('etag');
    saved = text;
    find('#conflict').hidden = true;
    find('#opened').textContent = 'draft';
    const newest = JSON.parse(answer).latestVersion ?? 0;
    if (newest > latest) {
      latest = newest;
      throw new Error(`The draft is saved. Version ${newest} was published while you edited: compare it with your draft before you publish.`);
    }
  } catch (problem) {
    if (problem.status === 412) conflict(problem.response.headers.get('etag'));
    throw problem;
  }
}

let other = '';
function conflict(theirs) {
  other = theirs ?? '';
  find('#conflict-text').textContent = other
    ? 'Someone saved another draft after you opened this one. Nothing of yours was saved.'
    : 'The draft was published or removed after you opened it. Nothing of yours was saved.';
  find('#conflict-difference').replaceChildren();
  find('#conflict').hidden = false;
}

// Runs while the button is disabled, and shows what went wrong.
async function act(button, work) {
  button.disabled = true;
  say('');
  try { await work(); } catch (problem) { say(problem.message, true); } finally { button.disabled = false; }
}

const saveNow = () => act(find('[data-save]'), async () => { await save(); if (draft) say('Draft saved'); });

function publish() {
  if (!isDirty() && !etag) { say('Nothing to publish: this is the published source.', true); return; }
  const question = { title: 'Publish?', yes: 'Publish', text: 'New runs use the new version. Runs that have started stay on their version.' };
  confirm(question, async () => {
    if (isDirty()) await save();
    await send(publishTo);
  }).then(() => leave(home));
}

async function dryRun(form) {
  const { trigger, mocks } = form.elements;
  const json = (field) => {
    const text = field.value.trim() || '{}';
    try { JSON.parse(text); } catch (error) { field.focus(); throw new Error(`${field.name} is not JSON: ${error.message}`); }
    return text;
  };
  // As text: numbers keep their digits.
  const body = `{"document": ${JSON.stringify(source.value)}, "trigger": ${json(trigger)}, "mocks": ${json(mocks)}}`;
  // A check that is due would draw the graph without the route.
  await check();
  show((await send('/workflows/new/dry-run', body)).text);
}

source.addEventListener('input', changed);
source.addEventListener('scroll', () => { find('#gutter').scrollTop = source.scrollTop; });
source.addEventListener('keydown', (event) => {
  // Escape leaves the field (app.js), so Tab is free for people who do not use a mouse.
  if (event.key !== 'Tab' || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  document.execCommand('insertText', false, '  ');
});
document.addEventListener('keydown', (event) => {
  if (event.key !== 's' || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  saveNow();
});
document.addEventListener('click', (event) => {
  const problem = event.target.closest('[data-line]');
  if (problem) {
    const { line, column, endLine, endColumn } = problem.dataset;
    select(place(Number(line), Number(column)), place(Number(endLine), Number(endColumn)));
    return;
  }
  const node = event.target.closest('#graph [data-node]')?.dataset.node;
  if (node) {
    const name = node.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
    const at = source.value.search(new RegExp(`\\bid["']?\\s*:\\s*["']?${name}["']?\\s*(,|\\}|$)`, 'm'));
    const start = source.value.indexOf(node, Math.max(0, at));
    if (start >= 0) select(start, start + node.length);
    return;
  }
  const button = event.target.closest('button');
  if (!button) return;
  if ('save' in button.dataset) saveNow();
  else if ('publish' in button.dataset) publish();
  else if ('compare' in button.dataset) {
    act(button, async () => show((await send(`${home}/edit`, source.value, { headers: DOCUMENT })).text));
  } else if ('overwrite' in button.dataset) {
    const question = { title: 'Replace the other draft?', yes: 'Replace it', isDanger: true, text: 'The draft of the other person is lost.' };
    confirm(question, async () => { etag = other; await save(); }).then(() => say('Draft saved'));
  }
});
find('#dry-run').addEventListener('submit', async (event) => {
  event.preventDefault();
  const [form, button] = [event.target, find('[data-dry-run]')];
  const error = form.querySelector('[data-error]');
  error.textContent = '';
  button.disabled = true;
  try { await dryRun(form); } catch (problem) { error.textContent = problem.message; } finally { button.disabled = false; }
});
addEventListener('beforeunload', (event) => { if (isDirty() && !isLeaving) event.preventDefault(); });
number();
