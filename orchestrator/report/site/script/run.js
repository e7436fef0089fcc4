// One run: its verdict, what was set, and what each window measured.

function showRun(store, wanted) {
  const run = store.byId.get(wanted.id);
  const place = byId("run");
  if (!run) {
    place.replaceChildren(h("h2", {}, "No such run"), h("p", {}, `${wanted.id || "?"} is not among the runs of this page.`));
    return;
  }
  place.replaceChildren(
    h("h2", {}, run.id, " ", verdictOf(run)),
    run.why.length ? h("ul", {class: "why"}, run.why.map((why) => h("li", {}, why))) : "",
    facts([
      ["name", h("a", {href: address("runs", {name: run.name})}, run.name)],
      ["began", `${timeOf(run.began)}${run.seconds === null ? "" : `, took ${several(run.seconds, "second")}`}`],
      ["trains", run.jobs || "nothing"],
      ["scale", run.scale === 1 ? "full size" : `1:${run.scale}; rates here are multiplied back`],
      ["commit", run.commit || "not known"],
      ["sweep", run.sweep ? h("a", {href: address("runs", {q: run.sweep})}, run.sweep) : "none"],
      ["against its baseline", run.against || "not judged"],
      ["baselines", keptIn(store, run)],
      ["files", h("a", {href: run.folder}, run.folder)],
      ["report", run.report ? h("a", {href: run.report}, "open the report")
        : ["none yet: ", command("orch", "report", run.id)]],
      ["history", historyLink(store, run)],
      ["all of it", command("orch", "show", run.id)],
    ]),
    run.windows.length ? table("What each window measured; intervals are within this run", windowHeads, windowRows(run))
      : h("p", {}, "No window was measured; cross traffic: ", loadOf(run), "."));
}

const windowHeads = ["window", "job", "valid", ["requested", "n"], ["received", "n"], ["iterations", "n"], ["mean", "n"],
  ["median", "n"], ["95 % interval", "n"], ["p99", "n"]];

function windowRows(run) {
  return run.windows.flatMap((window) => (window.jobs.length ? window.jobs : [null]).map((job) => [
    window.label, job ? job.job : "-", window.valid ? badge("valid") : [badge("invalid"), h("small", {}, window.why.join("; "))],
    rate(window.requested), rate(window.achieved), job ? String(job.iterations) : "-", ms(job && job.mean),
    ms(job && job.p50), job ? interval(job) : "-", ms(job && job.p99)]));
}

const interval = (job) => (job.low === null || job.high === null ? "unknown" : `${ms(job.low)} to ${ms(job.high)}`);

/** The baselines that hold a run. */
const keptIn = (store, run) => (
  store.baselines.filter((one) => one.runs.includes(`${run.name}/${run.id}`)).map((one) => one.name).join(", ") || "none");

/** A list of names with what each stands for. */
const facts = (pairs) => h("dl", {}, pairs.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

function historyLink(store, run) {
  return store.histories.some((one) => one.name === run.name)
    ? h("a", {href: address("history", {name: run.name})}, `of ${run.name}, night by night`) : "one night only";
}
