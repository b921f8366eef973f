// Follows changes: the page is fetched again when its stream says that something changed, or every few seconds where there is no
// stream, and its parts that differ are replaced. A hidden page asks for nothing, and a page in use waits: rows do not move while
// a dialog or a list is open, while runs are selected, and for a moment after a key or the selection of a text. While the server
// cannot be reached, a banner says so; the whole state is fetched after it is back, so nothing is lost or doubled.

const MESSAGES = ['events', 'end', 'execution', 'removed', 'reset'];
// The shortest time between two fetches, in milliseconds.
const PAUSE = 400;
// A page with a stream also shows what is not in it, such as child runs.
const SELDOM = 20_000;
// How long after a key or the selection of a text a page is in use.
const TYPING = 2000;

export function live(load) {
  const root = document.documentElement;
  const banner = document.querySelector('[data-away]');
  let failures = 0;
  let timer = 0;
  let source = null;
  let due = Infinity;
  let typed = -Infinity;
  const every = () => Number(root.dataset.poll) || 0;
  const plan = (after) => {
    clearTimeout(timer);
    due = performance.now() + after;
    timer = setTimeout(ask, after);
  };
  // What is planned earlier stays: a change during a fetch is fetched too, and so is a page that changes all the time.
  const atLatest = (after) => { if (due > performance.now() + after) plan(after); };
  const isUsed = () => document.querySelector('dialog[open], [data-hold]:not([hidden])') || performance.now() < typed + TYPING;
  async function ask() {
    due = Infinity;
    if (document.hidden || isUsed()) return plan(1000);
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
    else atLatest(source ? SELDOM : every());
  }
  function close() {
    source?.close();
    source = null;
  }
  function follow() {
    if (!root.dataset.stream || !every() || document.hidden || source) return;
    source = new EventSource(root.dataset.stream);
    for (const name of MESSAGES) source.addEventListener(name, () => atLatest(PAUSE));
    source.onopen = () => { if (failures) plan(0); };
    source.onerror = () => {
      // The browser connects again by itself, unless the server refused the stream.
      if (source?.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(follow, SELDOM);
      }
      if (!failures) atLatest(PAUSE);
    };
  }
  // Another part of the page was opened: the next fetch may wait.
  document.addEventListener('applied', () => { if (!failures) next(); });
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) close();
    else if (every()) { plan(0); follow(); }
  });
  document.addEventListener('input', () => { typed = performance.now(); });
  document.addEventListener('selectionchange', () => { if (!getSelection().isCollapsed) typed = performance.now(); });
  addEventListener('online', () => plan(0));
  if (every()) { plan(every()); follow(); }
}
