// Selecting runs in a list, and bulk jobs: a job is prepared, which counts its runs and does nothing; it acts on exactly these after
// it was started. Starting a job twice starts it once.
import { confirm, send } from './act.js';
import { body } from './edit.js';

const find = (selector) => document.querySelector(selector);
const picks = () => [...document.querySelectorAll('[data-pick]')];
const runs = (count) => `${count} ${count === 1 ? 'run' : 'runs'}`;

export function bulk() {
  const bar = find('#bulk');
  if (!bar) return;
  let all = false;

  function show() {
    const rows = picks();
    const chosen = rows.filter((pick) => pick.checked).length;
    bar.hidden = chosen === 0 && !all;
    bar.querySelector('[data-selected]').textContent = all ? 'All runs that match the filters' : `${runs(chosen)} selected`;
    const whole = find('[data-pick-all]');
    if (whole) {
      whole.checked = rows.length > 0 && chosen === rows.length;
      whole.indeterminate = chosen > 0 && chosen < rows.length;
    }
  }
  function select(what) {
    all = what === 'query';
    for (const pick of picks()) pick.checked = what !== 'none';
    show();
  }

  async function act(button) {
    const { bulk: action, verb, leftOut } = button.dataset;
    const ids = picks().filter((pick) => pick.checked).map((pick) => pick.dataset.pick);
    const base = { action, onlyFitting: true, ...(all ? { query: bar.dataset.query } : { ids }) };
    const isDanger = button.classList.contains('danger');
    const job = await confirm({
      title: `${verb} runs`,
      text: all ? `All runs that match: ${bar.dataset.query}` : `${runs(ids.length)} selected.`,
      yes: 'Preview',
      form: find(`#bulk-${action}`),
    }, async (slot) => JSON.parse((await send('/api/v1/bulk', body(base, slot))).text));
    const others = job.leftOut > 0 ? ` ${runs(job.leftOut)} ${job.leftOut === 1 ? 'is' : 'are'} left out. ${leftOut}` : '';
    const what = `${verb} ${runs(job.total)}`;
    const discard = () => send(`/api/v1/bulk/${job.id}/cancel`).catch(() => { /* It is removed after some days. */ });
    if (job.total === 0) {
      discard();
      confirm({ title: `No run to ${verb.toLowerCase()}`, text: `Nothing was done.${others}` });
      return;
    }
    await confirm({
      title: `${what}?`,
      text: `The job acts on exactly ${job.total === 1 ? 'this run' : `these ${job.total} runs`}.${others}`,
      yes: what,
      isDanger,
      repeat: action === 'delete' ? String(job.total) : undefined,
      back: discard,
    }, () => send(`/api/v1/bulk/${job.id}/start`));
    location.href = `/bulk/${job.id}`;
  }

  document.addEventListener('change', (event) => {
    if (event.target.matches('[data-pick]')) { all = false; show(); }
    if (event.target.matches('[data-pick-all]')) select(event.target.checked ? 'page' : 'none');
  });
  bar.addEventListener('click', (event) => {
    const button = event.target.closest('button');
    if (button?.dataset.select) select(button.dataset.select);
    if (button?.dataset.bulk) act(button);
  });
  // After new rows, and when the browser restores the boxes of a page that was left.
  document.addEventListener('applied', show);
  addEventListener('pageshow', show);
  show();
}
