// Views by address, the theme, and the keys.

const VIEWS = {runs: showRuns, run: showRun, compare: showCompare, history: showHistory, sweeps: showSweeps};
const THEMES = ["auto", "light", "dark"];

function wantedView() {
  const [view, query] = location.hash.slice(1).split("?");
  return [VIEWS[view] ? view : "runs", Object.fromEntries(new URLSearchParams(query || ""))];
}

function show(store) {
  const [view, wanted] = wantedView();
  for (const section of document.querySelectorAll("main > section")) { section.hidden = section.id !== `view-${view}`; }
  for (const link of document.querySelectorAll("header nav a")) {
    const mine = link.getAttribute("href") === `#${view === "run" ? "runs" : view}`;
    if (mine) { link.setAttribute("aria-current", "page"); } else { link.removeAttribute("aria-current"); }
  }
  if (view === "runs") { byId("back").href = address(view, wanted); }
  VIEWS[view](store, wanted);
}

/** Change what the list is filtered by; the address keeps it, without a step back for every letter. */
function filter(store) {
  const [, wanted] = wantedView();
  const now = {...wanted, page: "", focus: ""};
  for (const name of FILTERS) { now[name] = byId(name).value; }
  history.replaceState(null, "", address("runs", now));
  show(store);
}

function themed(theme) {
  byId("theme").value = theme;
  if (theme === "auto") { delete document.documentElement.dataset.theme; } else { document.documentElement.dataset.theme = theme; }
}

/** What the browser keeps of the theme; pages from disk may be kept off its storage. */
function storedTheme(chosen) {
  try {
    if (chosen) { localStorage.setItem("orch-theme", chosen); }
    return localStorage.getItem("orch-theme");
  } catch {
    return null;
  }
}

function keys(event) {
  const typing = event.target.matches("input:not([type=checkbox]), select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey) { return; }
  if (event.key === "/" && !typing) {
    event.preventDefault();
    if (wantedView()[0] === "runs") { byId("q").focus(); } else { location.hash = "#runs?focus=q"; }
  } else if (event.key === "Escape" && event.target.id === "q") {
    event.target.value = "";
    event.target.dispatchEvent(new Event("input"));
  } else if (["ArrowUp", "ArrowDown", "Home", "End"].includes(event.key) && (!typing || event.target.id === "q")) {
    if (!(event.target.id === "q" && event.key !== "ArrowDown")) { moveRow(event); }
  }
}

function begin(store) {
  store.runs = store.runs.map((values) => runOf(store.fields, values));
  store.byId = new Map(store.runs.map((run) => [run.id, run]));
  store.picked = [];
  byId("made").textContent = `${several(store.runs.length, "run")}, as of ${timeOf(store.made)}`;
  const names = [...new Set(store.runs.map((run) => run.name))].sort();
  byId("name").append(...names.map((name) => h("option", {value: name}, name)));
  byId("verdict").append(...[...new Set(store.runs.flatMap((run) => [run.verdict, run.against]).filter(Boolean))].sort().map((one) => h("option", {value: one}, one)));
  byId("problems").append(...store.problems.map((problem) => h("li", {}, problem)));
  byId("problems-note").hidden = !store.problems.length;
  byId("filters").addEventListener("input", () => filter(store));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", () => { location.hash = "#runs"; byId("q").focus(); });
  byId("pair").addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = address("compare", {a: byId("a").value.trim(), b: byId("b").value.trim()});
  });
  const histories = () => { location.hash = address("history", {name: byId("of").value, steps: byId("steps").checked ? "1" : ""}); };
  byId("of").addEventListener("change", histories);
  byId("steps").addEventListener("change", histories);
  let before = wantedView()[0];
  addEventListener("hashchange", () => {
    const [view, wanted] = wantedView();
    show(store);
    if (view !== before) {
      scrollTo(0, 0);
      byId(wanted.focus === "q" ? "q" : "content").focus({preventScroll: true});
    }
    before = view;
  });
  addEventListener("keydown", keys);
  show(store);
  document.documentElement.dataset.ready = "yes";
}

themed(THEMES.includes(storedTheme()) ? storedTheme() : "auto");
byId("theme").addEventListener("change", () => { storedTheme(byId("theme").value); themed(byId("theme").value); });
begin(await unpacked(byId("data").textContent));
