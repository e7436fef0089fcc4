// Two runs side by side. It judges nothing: that takes iterations, and `orch compare` reads them.

const SET = [["name", "name"], ["trains", "jobs"], ["scale", "scale"], ["commit", "commit"], ["sweep", "sweep"]];

function showCompare(store, wanted) {
  const [a, b] = [store.byId.get(wanted.a), store.byId.get(wanted.b)];
  byId("a").value = wanted.a || "";
  byId("b").value = wanted.b || "";
  const place = byId("compared");
  if (!a || !b) {
    const lacking = [["first", wanted.a, a], ["second", wanted.b, b]].filter(([, , run]) => !run)
      .map(([which, id]) => (id ? `${id} is not among the runs of this page` : `no ${which} run is named`));
    place.replaceChildren(h("p", {}, `${lacking.join("; ")}. Tick two runs in the list, or enter their names.`));
    return;
  }
  const apart = a.name !== b.name || a.jobs !== b.jobs || a.scale !== b.scale;
  place.replaceChildren(
    apart ? h("p", {class: "verdict doubt"}, h("strong", {}, "Set differently. "),
      "A change below is one of settings, not of the network or the machine.") : "",
    table("The two runs", ["", "A", "B", "differs"], [
      ["run", runLink(a), runLink(b), ""],
      ["began", timeOf(a.began), timeOf(b.began), ""],
      ["took", took(a), took(b), ""],
      ["verdict", verdictOf(a), verdictOf(b), differs(a.verdict, b.verdict)],
      ["reasons", a.why.join("; ") || "none", b.why.join("; ") || "none", ""],
      ...SET.map(([title, key]) => [title, String(a[key]) || "-", String(b[key]) || "-", differs(a[key], b[key])]),
      ["baselines", keptIn(store, a), keptIn(store, b), ""],
      ["files", filesOf(a), filesOf(b), ""],
      ["report", reportOf(a), reportOf(b), ""]]),
    table("Iteration times, window by window", ["window", "job", "", ["A", "n"], ["B", "n"], ["change", "n"]], times(a, b)),
    table("Under which load, and how many iterations count", ["window", "job", ["requested A, B", "n"],
      ["received A, B", "n"], ["iterations A, B", "n"], "valid A, B"], circumstances(a, b)),
    h("p", {}, "Intervals are within a run: they do not tell where the level of another run would lie. ",
      command("orch", "compare", a.id, b.id, ...(apart ? ["--settings"] : [])), " says whether a change counts."));
}

const runLink = (run) => h("a", {href: address("run", {id: run.id})}, run.id);
const differs = (a, b) => (a === b ? "" : h("span", {class: "bad"}, "≠ differs"));

const took = (run) => (run.seconds === null ? "-" : several(run.seconds, "second"));
const filesOf = (run) => h("a", {href: run.folder}, run.folder);

/** What both runs hold of each window and job: those with the same label and job stand beside each other. */
function pairsOf(a, b) {
  const [first, second] = [jobsOf(a), jobsOf(b)];
  return [...new Set([...first.keys(), ...second.keys()])].map((key) => [first.get(key), second.get(key)]);
}

/** Three rows for each window and job: median with its interval, mean, 99th percentile. */
function times(a, b) {
  const known = [["median", "p50", level], ["mean", "mean", alone("mean")], ["p99", "p99", alone("p99")]];
  return pairsOf(a, b).flatMap(([one, other]) => known.map(([title, key, shown]) => [
    (one || other).window.label, (one || other).job.job, title, shown(one), shown(other),
    change(one && other && one.job[key] ? other.job[key] / one.job[key] : NaN)]));
}

function circumstances(a, b) {
  const told = (sides, of) => {
    const [one, other] = sides.map((side) => (side ? of(side) : "-"));
    return one === other ? one : `${one}, ${other}`;
  };
  return pairsOf(a, b).map((sides) => {
    const known = sides[0] || sides[1];
    return [known.window.label, known.job.job, told(sides, (side) => rate(side.window.requested)),
      told(sides, (side) => rate(side.window.achieved)), told(sides, (side) => String(side.job.iterations)),
      told(sides, (side) => (side.window.valid ? "yes" : "NO"))];
  });
}

function jobsOf(run) {
  return new Map(run.windows.flatMap((window) => (
    window.jobs.map((job) => [`${window.label}\n${job.job}`, {window, job}]))));
}

const level = (side) => (side ? [ms(side.job.p50), h("small", {}, interval(side.job))] : "not measured");
const alone = (key) => (side) => (side ? ms(side.job[key]) : "not measured");
