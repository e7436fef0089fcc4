// The list of runs: filters, order, pages, keys.

const PAGE = 100;
const ALARMS = 5; // sweeps above the list
const COLUMNS = [["run", "id"], ["name", "name"], ["began", "began"], ["verdict", "verdict"], ["cross traffic", "load"],
  ["median iteration", "p50"], ["report", ""]];
const FILTERS = ["q", "name", "verdict", "from", "to"];

/** The runs that all filters let through, in the wanted order (newest first unless said otherwise). */
function selected(runs, wanted) {
  const words = (wanted.q || "").toLowerCase().split(/\s+/).filter(Boolean);
  const found = runs.filter((run) => words.every((word) => run.text.includes(word))
    && (!wanted.name || run.name === wanted.name) && (!wanted.verdict || [run.verdict, run.against].includes(wanted.verdict))
    && (!wanted.from || run.day >= wanted.from) && (!wanted.to || run.day <= wanted.to));
  const by = wanted.sort || "began";
  if (by === "began") { return wanted.up ? found.reverse() : found; }
  const way = wanted.up ? 1 : -1;
  return found.sort((a, b) => (a[by] === b[by] ? 0 : a[by] === null || (b[by] !== null && a[by] < b[by]) ? -way : way));
}

/** Show the runs that the address asks for. */
function showRuns(store, wanted) {
  for (const name of FILTERS) { byId(name).value = wanted[name] || ""; }
  const found = selected(store.runs.slice(), wanted);
  const pages = Math.ceil(found.length / PAGE);
  const page = Math.min(Number(wanted.page) || 0, Math.max(0, pages - 1));
  const shown = found.slice(page * PAGE, (page + 1) * PAGE);
  const go = (more) => { location.hash = address("runs", {...wanted, ...more}); };
  const column = document.activeElement.dataset.column; // the button is made anew
  byId("count").textContent = found.length === store.runs.length ? several(found.length, "run")
    : `${found.length.toLocaleString("en")} of ${several(store.runs.length, "run")}`;
  byId("counts").replaceChildren(...counted(found));
  byId("alarms").replaceChildren(...alarms(store));
  byId("runs-table").replaceChildren(
    h("thead", {}, h("tr", {}, h("th", {scope: "col"}, h("span", {class: "hidden"}, "compare")),
      COLUMNS.map(([title, key]) => head(title, key, wanted, go)))),
    h("tbody", {}, shown.map((run) => row(store, run))));
  byId("runs-pager").replaceChildren(pager(page, pages, (target) => { go({page: target || ""}); focusRow(0); }));
  if (column) { document.querySelector(`#runs-table button[data-column="${column}"]`)?.focus(); }
  byId("none").hidden = found.length > 0;
  showPicked(store);
}

/** How many of the runs have which verdict, as links that narrow the list to them. */
function counted(runs) {
  const counts = new Map();
  for (const run of runs) {
    const verdict = run.against === "worse" ? "worse" : run.verdict;
    counts.set(verdict, (counts.get(verdict) || 0) + 1);
  }
  return [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).flatMap(([verdict, count]) => (
    [" ", badge(verdict), ` ${count.toLocaleString("en")}`]));
}

/** What the last comparison of each sweep said, and what the newest one lacks: the worst first. */
function alarms(store) {
  const newest = new Map();
  for (const sweep of store.sweeps) {
    if (!newest.has(sweep.name) && (Object.keys(sweep.verdict).length || sweep.missing)) { newest.set(sweep.name, sweep); }
  }
  const lines = [...newest.values()].sort((a, b) => (b.verdict.worse || 0) - (a.verdict.worse || 0)).slice(0, ALARMS);
  return lines.map((sweep) => h("p", {class: `verdict ${sweep.verdict.worse ? "alarm" : sweep.missing ? "doubt" : "fine"}`},
    h("strong", {}, sweep.name), ` ${timeOf(sweep.began)}: `, judged(sweep),
    sweep.missing ? `; ${sweep.missing} of ${sweep.planned} measurements have no valid window` : "", " ",
    h("a", {href: address("runs", {q: sweep.id})}, "its runs")));
}

function head(title, key, wanted, go) {
  if (!key) { return h("th", {scope: "col"}, title); }
  const mine = (wanted.sort || "began") === key;
  const up = mine ? !wanted.up : key !== "began";
  return h("th", {scope: "col", "aria-sort": mine ? (wanted.up ? "ascending" : "descending") : null,
    class: key === "load" || key === "p50" ? "n" : null},
  h("button", {type: "button", "data-column": key, click: () => go({sort: key, up: up ? "1" : "", page: ""})},
    title, mine ? (wanted.up ? " ▲" : " ▼") : ""));
}

function row(store, run) {
  const pick = h("input", {type: "checkbox", "aria-label": `compare ${run.id}`, checked: store.picked.includes(run),
    change: () => picked(store, run, pick.checked)});
  const cells = [pick, h("a", {href: address("run", {id: run.id}), class: "row"}, run.id), run.name, timeOf(run.began),
    verdictOf(run), loadOf(run), ms(run.p50), reportOf(run)];
  const labels = ["compare", ...COLUMNS.map(([title]) => title)];
  return h("tr", {}, cells.map((cell, place) => h("td", {"data-label": labels[place],
    class: place === 5 || place === 6 ? "n" : null}, cell)));
}

/** The largest load of a run's windows; of one that ended before a window, what it was to be. */
const loadOf = (run) => (run.windows.length || !run.load ? rate(run.load) : [rate(run.load), h("small", {}, "requested, not measured")]);

/** The link to a run's report, or that there is none. */
const reportOf = (run) => (run.report ? h("a", {href: run.report}, "report") : h("span", {class: "soft"}, "none"));

/** Choose a run for a comparison, or not any more; of three the one that was chosen first goes. */
function picked(store, run, yes) {
  store.picked = store.picked.filter((one) => one !== run);
  if (yes) { store.picked = [...store.picked, run].slice(-2); }
  for (const box of document.querySelectorAll("#runs-table input[type=checkbox]")) {
    box.checked = store.picked.some((one) => box.getAttribute("aria-label") === `compare ${one.id}`);
  }
  showPicked(store);
}

function showPicked(store) {
  const [a, b] = store.picked;
  byId("picked").hidden = !a;
  byId("picked").replaceChildren(...(b ? [h("a", {href: address("compare", {a: a.id, b: b.id})}, "Compare"), ` ${a.id} with ${b.id}`]
    : a ? [`${a.id}: choose a second run to compare it with`] : []));
}

const rowLinks = () => [...document.querySelectorAll("#runs-table a.row")];

function focusRow(place) {
  requestAnimationFrame(() => rowLinks()[place]?.focus());
}

/** Up and down, from the filter into the list and from run to run. */
function moveRow(event) {
  const links = rowLinks();
  const at = links.indexOf(document.activeElement);
  const to = event.key === "Home" ? 0 : event.key === "End" ? links.length - 1 : at + (event.key === "ArrowDown" ? 1 : -1);
  if (at < 0 && !(document.activeElement === byId("q") && event.key === "ArrowDown")) { return; }
  event.preventDefault();
  if (to < 0) { byId("q").focus(); } else { links[to]?.focus(); }
}
