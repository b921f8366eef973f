// Theme, keys, copy, times, filters, and changing parts of a page without loading it again.
import { act } from './act.js';
import { forms } from './forms.js';
import { graph } from './graph.js';
import { live } from './live.js';

const root = document.documentElement;
const find = (selector) => document.querySelector(selector);

// The parts that change have the attribute data-live and an id. A page that was fetched again replaces those that differ, so
// scroll positions, selected texts and open menus elsewhere stay.
export function apply(text) {
  const fetched = new DOMParser().parseFromString(text, 'text/html');
  // A form is not replaced while it can be used, but it is when somebody else has answered.
  if (fetched.querySelector('[data-answered]')) find('#answer')?.setAttribute('data-live', '');
  for (const part of document.querySelectorAll('[data-live]')) {
    const other = fetched.getElementById(part.id);
    if (!other || other.innerHTML === part.innerHTML) continue;
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null;
    const opened = new Map([...part.querySelectorAll('details > summary')].map((summary) => [summary.textContent, summary.parentElement.open]));
    part.replaceChildren(...document.adoptNode(other).childNodes);
    for (const summary of part.querySelectorAll('details > summary')) {
      if (opened.has(summary.textContent)) summary.parentElement.open = opened.get(summary.textContent);
    }
    if (focused !== null) part.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
  const { now, poll } = fetched.documentElement.dataset;
  if (now) root.dataset.now = now;
  if (poll) root.dataset.poll = poll; else delete root.dataset.poll;
  began = performance.now();
  document.title = fetched.title;
  tick();
  filter();
  document.dispatchEvent(new Event('applied'));
}

let latest = 0;
export async function load(address) {
  const turn = ++latest;
  const response = await fetch(address, { headers: { accept: 'text/html' } });
  const text = await response.text();
  if (turn !== latest) return response;
  if (response.status === 401) location.reload();
  else if (response.ok) apply(text);
  return response;
}

async function swap(address, push = true) {
  try {
    const response = await load(address);
    if (!response.ok) { location.href = address; return; }
    if (push) history.pushState(null, '', address);
  } catch { location.href = address; }
}

// Times that go on, from the clock of the server.
let began = performance.now();
function tick() {
  const now = Number(root.dataset.now) + (performance.now() - began);
  if (!now) return;
  for (const element of document.querySelectorAll('[data-since]')) {
    element.textContent = duration(Math.max(0, Math.floor((now - Number(element.dataset.since)) / 1000)));
  }
  for (const element of document.querySelectorAll('[data-ago]')) {
    const seconds = Math.floor((now - Date.parse(element.dateTime)) / 1000);
    element.textContent = seconds >= 0 ? `${rough(seconds)} ago` : `in ${rough(-seconds)}`;
  }
}
const two = (large, a, small, b) => (small ? `${large} ${a} ${small} ${b}` : `${large} ${a}`);
function duration(s) {
  if (s < 60) return `${s} s`;
  if (s < 3600) return two(Math.floor(s / 60), 'min', s % 60, 's');
  if (s < 86400) return two(Math.floor(s / 3600), 'h', Math.floor((s % 3600) / 60), 'min');
  return two(Math.floor(s / 86400), 'd', Math.floor((s % 86400) / 3600), 'h');
}
function rough(s) {
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}
setInterval(tick, 1000);

function filter() {
  for (const input of document.querySelectorAll('[data-filter]')) {
    const wanted = input.value.trim().toLowerCase();
    for (const item of document.querySelectorAll(input.dataset.filter)) {
      item.hidden = wanted !== '' && !item.textContent.toLowerCase().includes(wanted);
    }
  }
}

function toggleTheme() {
  const isDark = getComputedStyle(root).colorScheme === 'dark'
    || (!root.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches);
  root.dataset.theme = isDark ? 'light' : 'dark';
  try { localStorage.setItem('theme', root.dataset.theme); } catch { /* It lasts until the page is left. */ }
}

async function copy(button, text) {
  try { await navigator.clipboard.writeText(text); } catch {
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  const before = button.textContent;
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = before; }, 1200);
}

document.addEventListener('click', (event) => {
  const element = event.target.closest('a, button');
  if (!element) return;
  const data = element.dataset;
  if ('themeToggle' in data) toggleTheme();
  else if ('shortcuts' in data) find('#shortcuts').showModal();
  else if ('copy' in data) copy(element, data.copy);
  else if ('copyNext' in data) copy(element, element.closest('section').querySelector('pre').textContent);
  else if ('signOut' in data) fetch('/sign-out', { method: 'POST' }).then(() => location.reload());
  else if ('swap' in data && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
    event.preventDefault();
    // In SVG, href is an object.
    const address = new URL(element.getAttribute('href'), location.href);
    swap(address.href).then(() => { if (address.searchParams.has('node')) find('.drawer .plain[data-close]')?.focus({ preventScroll: true }); });
  }
});
document.addEventListener('input', (event) => { if ('filter' in event.target.dataset) filter(); });
document.addEventListener('change', (event) => {
  if ('submit' in event.target.dataset) event.target.form.requestSubmit();
  if ('warnings' in event.target.dataset) document.body.classList.toggle('warnings-only', event.target.checked);
});
// Filters that are empty are not part of the address.
document.addEventListener('submit', (event) => {
  if (!event.target.matches('.filters')) return;
  for (const field of event.target.querySelectorAll('[name]')) field.disabled = field.value === '';
  setTimeout(() => { for (const field of event.target.querySelectorAll('[name]')) field.disabled = false; });
});
addEventListener('popstate', () => swap(location.href, false));

let pressed = '';
document.addEventListener('keydown', (event) => {
  const isTyping = event.target.matches('input, textarea, select');
  if (event.key === 'Escape') {
    if (isTyping) event.target.blur();
    else find('[data-close]')?.click();
    return;
  }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || find('dialog[open]')) return;
  const chord = pressed + event.key;
  pressed = event.key === 'g' ? 'g' : '';
  const places = { gr: '/', gw: '/workflows', gi: '/inbox', gs: '/system' };
  if (places[chord]) location.href = places[chord];
  else if (event.key === '/') { event.preventDefault(); (find('[data-query]') ?? find('[data-find-node]') ?? find('input[type=search]'))?.focus(); }
  else if (event.key === '?') find('#shortcuts')?.showModal();
  else if (event.key === 't') toggleTheme();
  else if (event.key === 'j' || event.key === 'k') move(event.key === 'j' ? 1 : -1);
});
function move(by) {
  const links = [...document.querySelectorAll('[data-row] a.main')];
  const at = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
}

act(load);
forms(load);
graph();
live(load);
