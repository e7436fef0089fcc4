// Sweeps, studies and baselines with what was made of them.

function showSweeps(store) {
  const sweeps = store.sweeps.map((sweep) => [
    h("a", {href: address("runs", {q: sweep.id})}, sweep.id), sweep.name, timeOf(sweep.began),
    `${several(sweep.points, "point")} × ${sweep.repetitions}`,
    sweep.missing ? `${sweep.planned - sweep.missing} of ${sweep.planned}` : `all ${sweep.planned}`,
    judged(sweep), historyOf(store, sweep.name)]);
  byId("sweeps-list").replaceChildren(
    h("h2", {}, "Sweeps"),
    sweeps.length ? table("Sweeps, newest first; measured: planned measurements with a valid window",
      ["sweep", "name", "began", "planned", ["measured", "n"], "against its baseline", "history"], sweeps)
      : h("p", {}, "No sweep in this store."),
    h("h2", {}, "Studies"),
    store.studies.length ? table("Pages of studies", ["study", "written", "beside the printed values"],
      store.studies.map((study) => [h("a", {href: study.page}, study.name), timeOf(study.made), study.verdict || "not said"]))
      : h("p", {}, "No study's page here. ", command("orch", "study"), " lists what can be measured."),
    h("h2", {}, "Baselines"),
    store.baselines.length ? table("Names under which runs are stored", ["baseline", "set", "of", ["runs", "n"]],
      store.baselines.map((one) => [one.name, timeOf(one.set), one.of.join(", "), String(one.runs.length)]))
      : h("p", {}, "No baseline. ", command("orch", "baseline", "set", "main", "RUN"), " sets one."));
}

/** What a sweep's comparison came to, with a link to its page. */
function judged(sweep) {
  const told = Object.entries(sweep.verdict).flatMap(([verdict, count], place) => (
    [place ? " " : "", badge(verdict), ` ${count}`]));
  const what = told.length ? h("span", {}, told) : "not judged";
  return sweep.page ? h("a", {href: sweep.page}, what) : what;
}

const historyOf = (store, name) => (store.histories.some((one) => one.name === name)
  ? h("a", {href: address("history", {name})}, "history") : "-");
