// The fields of a dialog as members of a JSON body. The body is put together as text: numbers keep the digits that were typed.

const SPACE = /[ \t\n\r]*/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const ATOM = /(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-])/y;

// The place of the first mistake in a JSON text, as { at, message }; null if there is none. `outer` gets the members of an object
// that is the whole text, each as it is written.
export function mistake(text, outer = new Map()) {
  let [at, depth] = [0, 0];
  const skip = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found) at = pattern.lastIndex;
    return found !== null;
  };
  const fail = (message) => { throw Object.assign(new Error(message), { at }); };
  const take = (character) => {
    skip(SPACE);
    if (text[at] !== character) return false;
    at += 1;
    return true;
  };
  const list = (end, item) => {
    if (take(end)) return;
    depth += 1;
    do item(); while (take(','));
    depth -= 1;
    if (!take(end)) fail(`“,” or “${end}” is expected`);
  };
  const value = () => {
    skip(SPACE);
    if (take('{')) list('}', member);
    else if (take('[')) list(']', value);
    else if (!skip(STRING) && !skip(ATOM)) fail(text[at] === '"' ? 'this text is not closed, or has a wrong character' : 'a value is expected');
  };
  const member = () => {
    skip(SPACE);
    const start = at;
    if (!skip(STRING)) fail('a name in quotation marks is expected');
    const name = text.slice(start, at);
    if (!take(':')) fail('“:” is expected');
    skip(SPACE);
    const begin = at;
    value();
    if (depth === 1) outer.set(name, text.slice(begin, at));
  };
  try {
    value();
    skip(SPACE);
    if (at < text.length) fail('the text goes on after the value');
    return null;
  } catch (error) {
    return { at: Math.min(error.at ?? 0, text.length), message: error.message };
  }
}

function refuse(field, message) {
  field.setAttribute('aria-invalid', 'true');
  field.closest('details')?.setAttribute('open', '');
  field.focus();
  throw new Error(message);
}

const label = (field) => field.closest('label')?.querySelector('span')?.textContent ?? field.name;

function json(field) {
  const text = field.value;
  const wrong = mistake(text);
  if (wrong) {
    const lines = text.slice(0, wrong.at).split('\n');
    field.setSelectionRange(wrong.at, Math.min(wrong.at + 1, text.length));
    refuse(field, `${label(field)}, line ${lines.length}, column ${lines.at(-1).length + 1}: ${wrong.message}`);
  }
  return text.trim();
}

// Name and JSON text of each field that was filled in or changed.
export function members(slot) {
  for (const field of slot.querySelectorAll('[aria-invalid]')) field.removeAttribute('aria-invalid');
  const found = [];
  const outcome = slot.querySelector('[data-outcome]');
  for (const field of slot.querySelectorAll('[name], [data-outcome]')) {
    if (field.required && field.value.trim() === '') refuse(field, `${label(field)} is missing`);
    if (field === outcome) continue;
    if (field.matches('[data-json]')) {
      const isOutputs = field.name === 'outputs' && outcome;
      if (field.value !== field.defaultValue || isOutputs) found.push([field.name, isOutputs ? withOutcome(field, outcome.value) : json(field)]);
    } else if (field.matches('[type=radio], [type=checkbox]')) {
      if (field.checked && field.value) found.push([field.name, field.value]);
    } else if (field.value.trim() !== '') found.push([field.name, JSON.stringify(field.value.trim())]);
  }
  const edits = [...slot.querySelectorAll('[data-node]')].flatMap((field) => {
    const text = changed(field);
    return text === null ? [] : [`${JSON.stringify(field.dataset.node)}: ${text}`];
  });
  if (edits.length) found.push(['parameters', `{${edits.join(', ')}}`]);
  return found;
}

// The parameters that differ from those of the document. The others are not sent: the new run may follow another version.
function changed(field) {
  const [before, after] = [new Map(), new Map()];
  if (!json(field).startsWith('{')) refuse(field, `${label(field)} must be an object`);
  mistake(field.defaultValue, before);
  mistake(field.value, after);
  for (const name of before.keys()) if (!after.has(name)) refuse(field, `${label(field)}: ${name} cannot be removed, only changed`);
  const rest = [...after].filter(([name, text]) => before.get(name) !== text);
  return rest.length ? `{${rest.map(([name, text]) => `${name}: ${text}`).join(', ')}}` : null;
}

function withOutcome(field, outcome) {
  const text = json(field);
  if (!text.startsWith('{')) refuse(field, 'Outputs must be an object');
  const rest = text.slice(1).trim();
  return `{"outcome": ${JSON.stringify(outcome)}${rest === '}' ? '' : ', '}${rest}`;
}

// A body with the members of `base` and of the fields.
export function body(base, slot) {
  const given = Object.entries(base).map(([name, value]) => [name, JSON.stringify(value)]);
  return `{${[...given, ...members(slot)].map(([name, text]) => `${JSON.stringify(name)}: ${text}`).join(', ')}}`;
}

// Adds a field with the parameters of the chosen node.
export function edits() {
  document.addEventListener('change', async (event) => {
    const select = event.target.closest('[data-edit-node]');
    if (!select?.value) return;
    const option = select.selectedOptions[0];
    option.disabled = true;
    select.value = '';
    const response = await fetch(`${select.dataset.source}/${option.dataset.part}/parameters`);
    if (!response.ok) { option.disabled = false; return; }
    const field = document.createElement('textarea');
    Object.assign(field, { rows: 6, spellcheck: false, defaultValue: await response.text() });
    field.dataset.node = option.value;
    const [around, name] = [document.createElement('label'), document.createElement('span')];
    around.className = 'stacked';
    name.textContent = `Parameters of ${option.value}`;
    around.append(name, field);
    select.closest('.edit').querySelector('[data-edits]').append(around);
    field.focus();
  });
}
