// Histories: every point of a sweep or an experiment, night by night.

const CHARTS = 24;

function showHistory(store, wanted) {
  const place = byId("histories");
  if (!store.histories.length) {
    place.replaceChildren(h("p", {}, "No sweep or experiment has valid runs of two nights yet."));
    return;
  }
  const found = store.histories.find((one) => one.name === wanted.name) || store.histories[0];
  byId("of").replaceChildren(...store.histories.map((one) => (
    h("option", {value: one.name, selected: one === found}, one.name))));
  const points = found.points.filter((point) => !wanted.steps || point.steps.length);
  byId("steps").checked = Boolean(wanted.steps);
  const page = Math.min(Number(wanted.page) || 0, Math.max(0, Math.ceil(points.length / CHARTS) - 1));
  const [changed, short] = [(point) => point.steps.length, (point) => !point.steps.length && point.findable === null]
    .map((which) => found.points.filter(which).length);
  const told = [changed ? `${several(changed, "point")} moved to another level` : "", short
    ? `${several(short, "point")} with too few nights to tell` : ""].filter(Boolean).join(", ");
  place.replaceChildren(
    h("p", {role: "status"}, `${several(found.points.length, "point")} over ${several(found.days.length, "night")} `
      + `(days in UTC); ${told || "no point moved to another level"}.`),
    ...points.slice(page * CHARTS, (page + 1) * CHARTS).map((point) => pointHistory(store, found, point)),
    pager(page, Math.ceil(points.length / CHARTS), (target) => {
      location.hash = address("history", {...wanted, page: target || ""});
    }),
    h("p", {}, "The same in a terminal: ", command("orch", "history", found.name)));
}

function pointHistory(store, found, point) {
  const marks = found.folders.map((folders) => {
    const names = store.baselines.filter((one) => one.runs.some((run) => folders.includes(run))).map((one) => one.name);
    return names.length ? `, baseline ${names.join(", ")}` : "";
  });
  return h("figure", {},
    h("h3", {}, point.label),
    chart(point, found.days, marks),
    h("figcaption", {class: point.steps.length ? "stepped" : null}, stepsText(point, found.days)),
    h("details", {}, h("summary", {}, "Values"),
      table(`Median of each night: ${point.label}`, ["night (UTC)", ["median", "n"], "baseline"],
        found.days.map((day, night) => [day, ms(point.p50[night]), marks[night].replace(", baseline ", "")]))));
}
