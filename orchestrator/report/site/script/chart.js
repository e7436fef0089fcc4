// The history of a point as a line over nights, with the levels before and after each step.

const CHART = {width: 640, height: 150, left: 88, right: 10, top: 12, bottom: 24};

/** A drawing of a point's history; `marks` are texts by night (the baselines that hold its runs). */
function chart(point, days, marks) {
  const known = point.p50.map((value, night) => [night, value]).filter(([, value]) => value !== null);
  const [low, high] = bounds(known.map(([, value]) => value));
  const x = (night) => CHART.left + (CHART.width - CHART.left - CHART.right) * (night / Math.max(1, days.length - 1));
  const y = (value) => CHART.height - CHART.bottom
    - (CHART.height - CHART.top - CHART.bottom) * ((value - low) / (high - low));
  const line = known.map(([night, value], place) => `${place ? "L" : "M"}${x(night).toFixed(1)} ${y(value).toFixed(1)}`);
  return svg("svg", {viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img", class: "chart",
    "aria-label": `${point.label}: ${several(known.length, "night")}, ${ms(low)} to ${ms(high)}; ${stepsText(point, days)}`},
    [low, (low + high) / 2, high].map((value) => svg("g", {},
      svg("line", {class: "grid", x1: CHART.left, x2: CHART.width - CHART.right, y1: y(value), y2: y(value)}),
      svg("text", {x: CHART.left - 6, y: y(value) + 4, "text-anchor": "end"}, ms(value)))),
    svg("text", {x: CHART.left, y: CHART.height - 6}, days[0]),
    svg("text", {x: CHART.width - CHART.right, y: CHART.height - 6, "text-anchor": "end"}, days[days.length - 1]),
    svg("path", {class: "line", d: line.join("")}),
    levels(point, days.length).map(([from, to, value]) => (
      svg("line", {class: "level", x1: x(from), x2: x(to), y1: y(value), y2: y(value)}))),
    known.map(([night, value]) => svg("circle", {class: marks[night] ? "marked" : "", cx: x(night), cy: y(value),
      r: marks[night] ? 5 : 3}, svg("title", {}, `${days[night]}: ${ms(value)}${marks[night] || ""}`))));
}

/** What the values lie between, with some room. */
function bounds(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = Math.max(0.1 * (high - low), 0.01 * high);
  return [Math.max(0, low - room), high + room];
}

/** First and last night of each level of the median and the level, where there is a step. */
function levels(point, nights) {
  return point.steps.filter((step) => step[4] === "p50").flatMap(([night, before, after], place, steps) => {
    const begin = place ? steps[place - 1][0] : 0;
    const end = place + 1 < steps.length ? steps[place + 1][0] : nights;
    const first = place ? [] : [[begin, night - 1, before]];
    return [...first, [night, end - 1, after]];
  });
}

/** The steps of a point in words. */
function stepsText(point, days) {
  if (point.steps.length) {
    return point.steps.map(([night, before, after, p, statistic]) => (
      `since ${days[night]} ${statistic} ${change(after / before)} (${ms(before)} to ${ms(after)}, p = ${p.toPrecision(2)})`
    )).join("; ");
  }
  return point.findable === null
    ? "too few nights to tell whether it moved"
    : `mean and median did not move; ${change(1 + point.findable)} in the middle of the nights would have been noticed`;
}
