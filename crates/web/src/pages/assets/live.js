// Follows changes: the page is fetched again when its stream says that something changed, or every few seconds where there is no
// stream, and its parts that differ are replaced. A hidden page asks for nothing. While the server cannot be reached, a banner
// says so; the whole state is fetched after it is back, so nothing is lost or doubled.

const MESSAGES = ['events', 'end', 'execution', 'removed', 'reset'];
// The shortest time between two fetches, in milliseconds.
const PAUSE = 400;
// A page with a stream also shows what is not in it, such as child runs.
const SELDOM = 20_000;

export function live(load) {
  const root = document.documentElement;
  const banner = document.querySelector('[data-away]');
  let failures = 0;
  let timer = 0;
  let source = null;
  const every = () => Number(root.dataset.poll) || 0;
  const plan = (after) => {
    clearTimeout(timer);
    timer = setTimeout(ask, after);
  };
  async function ask() {
    if (document.hidden || document.querySelector('dialog[open]')) return plan(1000);
    try {
      const response = await load(location.href);
      if (response.status >= 500) throw new Error(response.status);
      failures = 0;
      banner.hidden = true;
      if (!response.ok) { close(); return; }
    } catch {
      failures += 1;
      banner.hidden = false;
    }
    next();
  }
  function next() {
    if (failures) plan(Math.min(10_000, 500 * 2 ** failures));
    else if (!every()) { clearTimeout(timer); close(); }
    else plan(source ? SELDOM : every());
  }
  function close() {
    source?.close();
    source = null;
  }
  function follow() {
    if (!root.dataset.stream || document.hidden || source) return;
    source = new EventSource(root.dataset.stream);
    for (const name of MESSAGES) source.addEventListener(name, () => plan(PAUSE));
    source.onopen = () => { if (failures) plan(0); };
    source.onerror = () => {
      // The browser connects again by itself, unless the server refused the stream.
      if (source?.readyState === EventSource.CLOSED) source = null;
      plan(PAUSE);
    };
  }
  // Another part of the page was opened: the next fetch may wait.
  document.addEventListener('applied', () => { if (!failures) next(); });
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) close();
    else if (every()) { plan(0); follow(); }
  });
  addEventListener('online', () => plan(0));
  if (every()) { plan(every()); follow(); }
}
