// Suggestions for the word before the cursor of the query box: a combobox with a list, used with the keys or the mouse.

const PAUSE = 120;

export function query() {
  const input = document.querySelector('[role=combobox]');
  if (!input) return;
  const list = document.getElementById(input.getAttribute('aria-controls'));
  let [timer, latest, active] = [0, 0, -1];
  const before = () => input.value.slice(0, input.selectionStart ?? input.value.length);

  function close() {
    latest += 1;
    clearTimeout(timer);
    list.hidden = true;
    active = -1;
    input.setAttribute('aria-expanded', 'false');
    input.removeAttribute('aria-activedescendant');
  }
  function mark(at) {
    const options = [...list.children];
    active = (at + options.length) % options.length;
    options.forEach((option, n) => option.setAttribute('aria-selected', n === active));
    input.setAttribute('aria-activedescendant', options[active].id);
    options[active].scrollIntoView({ block: 'nearest' });
  }
  function take(option) {
    const start = before();
    const kept = start.slice(0, start.length - start.split(/\s/).at(-1).length);
    const text = option.dataset.text;
    const rest = input.value.slice(start.length);
    // A key is followed by its value, so its suggestions come next.
    const isKey = text.endsWith(':');
    input.value = `${kept}${text}${isKey || rest.startsWith(' ') ? '' : ' '}${rest}`;
    const cursor = kept.length + text.length + (isKey ? 0 : 1);
    input.setSelectionRange(cursor, cursor);
    input.focus();
    close();
    if (isKey) ask();
  }
  async function ask() {
    const turn = ++latest;
    try {
      const response = await fetch(`/suggest?text=${encodeURIComponent(before())}`);
      const found = response.ok ? await response.json() : [];
      if (turn === latest && document.activeElement === input) show(found);
    } catch { /* Without the server there are no suggestions. */ }
  }
  function show(found) {
    const word = before().split(/\s/).at(-1);
    const options = found.filter(({ text }) => text !== word).map(({ text, about }, n) => {
      const [option, code, hint] = ['li', 'code', 'span'].map((name) => document.createElement(name));
      Object.assign(option, { id: `suggestion-${n}`, role: 'option' });
      option.dataset.text = text;
      option.setAttribute('aria-selected', 'false');
      code.textContent = text;
      hint.textContent = about;
      option.append(code, hint);
      return option;
    });
    list.replaceChildren(...options);
    active = -1;
    input.removeAttribute('aria-activedescendant');
    list.hidden = options.length === 0;
    input.setAttribute('aria-expanded', String(!list.hidden));
  }

  input.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(ask, PAUSE); });
  input.addEventListener('click', () => { if (list.hidden) ask(); });
  input.addEventListener('blur', close);
  input.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown' && list.hidden) { event.preventDefault(); ask(); return; }
    if (list.hidden) return;
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') mark(event.key === 'ArrowDown' ? active + 1 : Math.max(active, 0) - 1);
    else if ((event.key === 'Enter' || event.key === 'Tab') && active >= 0) take(list.children[active]);
    else if (event.key === 'Escape') { event.stopPropagation(); close(); } else return;
    event.preventDefault();
  });
  // The box keeps the focus, so that it does not close before the click.
  list.addEventListener('mousedown', (event) => event.preventDefault());
  list.addEventListener('click', (event) => {
    const option = event.target.closest('[role=option]');
    if (option) take(option);
  });
}
