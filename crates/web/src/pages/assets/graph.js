// Zoom and search of graphs.

const view = () => document.querySelector('.graph-view');
let scale = 0; // 0: fit

function size() {
  const svg = view()?.querySelector('svg.graph');
  if (!svg) return;
  const { width, height } = svg.viewBox.baseVal;
  const fit = Math.min(1, view().clientWidth / width, Math.max(0.35, 520 / height));
  const factor = scale || fit;
  svg.setAttribute('width', width * factor);
  svg.setAttribute('height', height * factor);
}

function zoom(by) {
  const svg = view()?.querySelector('svg.graph');
  if (!svg) return;
  const now = svg.width.baseVal.value / svg.viewBox.baseVal.width;
  scale = by === 0 ? 0 : Math.min(3, Math.max(0.1, now * by));
  size();
}

function search(text) {
  const wanted = text.trim().toLowerCase();
  let first = null;
  for (const node of document.querySelectorAll('svg.graph .node')) {
    const hit = wanted !== '' && `${node.dataset.node} ${node.textContent}`.toLowerCase().includes(wanted);
    node.classList.toggle('hit', hit);
    if (hit) first ??= node;
  }
  view()?.classList.toggle('searching', wanted !== '');
  if (first) {
    if (!scale) { scale = 1; size(); }
    const box = first.getBoundingClientRect();
    const frame = view().getBoundingClientRect();
    view().scrollBy(box.x - frame.x - frame.width / 2 + box.width / 2, box.y - frame.y - frame.height / 2 + box.height / 2);
  }
  return first;
}

export function graph() {
  if (!view()) return;
  size();
  addEventListener('resize', size);
  document.addEventListener('applied', () => { size(); search(document.querySelector('[data-find-node]').value); });
  document.addEventListener('click', (event) => {
    const by = event.target.closest('[data-zoom]')?.dataset.zoom;
    if (by) zoom({ in: 1.3, out: 1 / 1.3, fit: 0 }[by]);
  });
  view().addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15);
  }, { passive: false });
  const input = document.querySelector('[data-find-node]');
  input.addEventListener('input', () => search(input.value));
  input.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    search(input.value)?.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }));
  });
}
