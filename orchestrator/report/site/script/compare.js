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
      ["verdict", badge(a.verdict), badge(b.verdict), differs(a.verdict, b.verdict)],
      ...SET.map(([title, key]) => [title, String(a[key]) || "-", String(b[key]) || "-", differs(a[key], b[key])]),
      ["report", reportOf(a), reportOf(b), ""]]),
    table("Median of the iteration time, window by window", ["window", "job", ["requested A, B", "n"], ["A", "n"], ["B", "n"],
      ["change", "n"], "valid A, B"], windowPairs(a, b)),
    h("p", {}, "Intervals are within a run; where another run would come out they do not say. Whether a change counts is what ",
      command("orch", "compare", a.id, b.id, ...(apart ? ["--settings"] : [])), " says."));
}

const runLink = (run) => h("a", {href: address("run", {id: run.id})}, run.id);
const differs = (a, b) => (a === b ? "" : h("span", {class: "bad"}, "≠ differs"));

/** A row for each window and job of either run: those with the same label and job stand beside each other. */
function windowPairs(a, b) {
  const [first, second] = [jobsOf(a), jobsOf(b)];
  return [...new Set([...first.keys(), ...second.keys()])].map((key) => {
    const [one, other] = [first.get(key), second.get(key)];
    const known = one || other;
    const requested = [one, other].map((side) => (side ? rate(side.window.requested) : "-"));
    return [known.window.label, known.job.job, requested[0] === requested[1] ? requested[0] : requested.join(", "),
      level(one), level(other), change(one && other ? other.job.p50 / one.job.p50 : NaN),
      [one, other].map((side) => (side ? (side.window.valid ? "yes" : "NO") : "-")).join(", ")];
  });
}

function jobsOf(run) {
  return new Map(run.windows.flatMap((window) => (
    window.jobs.map((job) => [`${window.label}\n${job.job}`, {window, job}]))));
}

const level = (side) => (side ? [ms(side.job.p50), h("small", {}, interval(side.job))] : "not measured");
