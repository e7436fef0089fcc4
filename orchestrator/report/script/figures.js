// Figures whose values can be pointed at, that zoom, and whose series can be hidden. There is one drawing, Matplotlib's
// SVG: to zoom is to move its coordinates, within the clips that it has. `report/explored.py` says what is where.

const SVG = "http://www.w3.org/2000/svg";
const PAIR = /(-?[\d.]+(?:e-?\d+)?) (-?[\d.]+(?:e-?\d+)?)/g; // of coordinates in a path
const LEAST_DRAG = 5; // in the drawing's coordinates: less is a click, and less along one axis zooms the other one alone
const NEAR = 8; // so near a value is meant, and not the bar behind it
const DEEPEST = 2000; // times
const TICKS = 6; // of a zoomed axis, about
const HINT = "Point at a figure for its values, drag to zoom, click on a name to hide it; a double click shows all again."
  + " Keys: arrows, +, - and 0.";

/** An element of SVG. */
function shape(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

const clamp = (value, [least, most]) => Math.min(most, Math.max(least, value));
const width = ([least, most]) => most - least;
const within = (value, [least, most]) => value >= least && value <= most;

/** The function that moves the coordinates `from` one interval `to` another. */
function mapping(from, to) {
  return (at) => to[0] + (at - from[0]) * (width(to) / width(from));
}

/** An interval about a centre that is `factor` times as wide, of at most `whole`. */
function scaled(view, centre, factor, whole) {
  const size = clamp(width(view) * factor, [width(whole) / DEEPEST, width(whole)]);
  const begin = clamp(centre - (centre - view[0]) * (size / width(view)), [whole[0], whole[1] - size]);
  return [begin, begin + size];
}

/** A number as text, with so many digits after the point where that is given. */
function written(value, digits = null) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) return String(Number(value.toPrecision(5)).toExponential());
  return digits === null ? String(Number(value.toPrecision(5))) : value.toFixed(digits);
}

/** Round values between two limits, and their texts; on a logarithmic axis powers of ten, where there are several. */
function ticks([one, other], log) {
  const [least, most] = [Math.min(one, other), Math.max(one, other)];
  const first = log ? Math.ceil(Math.log10(least)) : 0;
  const powers = log ? Math.floor(Math.log10(most)) - first + 1 : 0;
  if (powers > 1) return Array.from({length: powers}, (_, at) => [10 ** (first + at), written(10 ** (first + at))]);
  const rough = (most - least) / TICKS;
  const decade = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * decade).find((size) => size >= rough);
  const digits = clamp(-Math.floor(Math.log10(step) + 1e-9), [0, 12]);
  const begin = Math.ceil(least / step);
  return Array.from({length: Math.floor(most / step) - begin + 1}, (_, at) => (
    [(begin + at) * step, written((begin + at) * step, digits)]));
}

/** An attribute as Matplotlib wrote it. */
function original(element, name) {
  element.dataset[name] ??= element.getAttribute(name) ?? "";
  return element.dataset[name];
}

/** A panel of a figure: `box` is where data is drawn, `view` the part of it that fills the box now. */
class Panel {
  constructor(about, part) {
    const [left, top, right, bottom] = about.box;
    const parts = (numbers) => numbers.map(part).filter((one) => one !== null);
    Object.assign(this, {about, box: {x: [left, right], y: [top, bottom]}, view: {x: [left, right], y: [top, bottom]}});
    this.whole = part(about.part);
    this.moving = parts(about.moving);
    this.images = [...this.whole.querySelectorAll("image")];
    this.texts = parts(about.texts);
    this.axes = {x: part(about.x.part), y: part(about.y.part)};
    this.titles = [part(about.x.title), part(about.y.title)];
    this.ticks = this.whole.insertBefore(shape("g"), this.axes.x);
  }

  zoomed(way) {
    return width(this.view[way]) < width(this.box[way]);
  }

  holds({x, y}) {
    return within(x, this.box.x) && within(y, this.box.y);
  }

  /** Where a point of the drawing is shown now. */
  shown({x, y}) {
    return {x: mapping(this.view.x, this.box.x)(x), y: mapping(this.view.y, this.box.y)(y)};
  }

  /** The point of the drawing that is shown at a place now. */
  drawn({x, y}) {
    return {x: mapping(this.box.x, this.view.x)(x), y: mapping(this.box.y, this.view.y)(y)};
  }

  /** An axis from its first limit to its last one, in the drawing's coordinates: y grows downwards there. */
  length(way) {
    return way === "x" ? this.box.x : [this.box.y[1], this.box.y[0]];
  }

  /** The value of an axis at a coordinate of the drawing. */
  value(way, at) {
    const {limits: [from, to], log} = this.about[way];
    const share = mapping(this.length(way), [0, 1])(at);
    return log ? from * (to / from) ** share : from + share * (to - from);
  }

  /** The coordinate of a value of an axis. */
  coordinate(way, value) {
    const {limits: [from, to], log} = this.about[way];
    return mapping([0, 1], this.length(way))(log ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from));
  }

  draw() {
    const to = {x: mapping(this.view.x, this.box.x), y: mapping(this.view.y, this.box.y)};
    for (const part of this.moving) {
      for (const path of part.querySelectorAll(":not(defs) > path")) {
        path.setAttribute("d", original(path, "d").replace(PAIR, (_, x, y) => `${to.x(+x).toFixed(3)} ${to.y(+y).toFixed(3)}`));
      }
      for (const marker of part.querySelectorAll("use")) {
        for (const way of ["x", "y"]) marker.setAttribute(way, to[way](Number(original(marker, way))));
      }
    }
    const moved = `matrix(${to.x(1) - to.x(0)} 0 0 ${to.y(1) - to.y(0)} ${to.x(0)} ${to.y(0)})`;
    for (const image of this.images) image.setAttribute("transform", `${moved} ${original(image, "transform")}`);
    this.texts.forEach((text) => this.drawText(text));
    this.ticks.replaceChildren();
    for (const way of ["x", "y"]) if (this.axes[way]) this.drawAxis(way, to[way]);
  }

  /** Move a text as it is; it has no clip, so it is hidden where its middle leaves the panel. */
  drawText(text) {
    text.removeAttribute("transform");
    const {x, y, width: wide, height} = text.getBBox();
    const middle = {x: x + wide / 2, y: y + height / 2};
    const to = this.shown(middle);
    text.setAttribute("transform", `translate(${to.x - middle.x} ${to.y - middle.y})`);
    text.classList.toggle("out", (this.zoomed("x") || this.zoomed("y")) && this.holds(middle) && !this.holds(to));
  }

  /** Ticks with words move; numbers are chosen anew. */
  drawAxis(way, to) {
    const own = [...this.axes[way].children].filter((one) => !this.titles.includes(one));
    for (const tick of this.about[way].words ? own : []) {
      const marker = tick.querySelector("use");
      const at = marker ? Number(marker.getAttribute(way)) : NaN;
      tick.setAttribute("transform", way === "x" ? `translate(${to(at) - at} 0)` : `translate(0 ${to(at) - at})`);
      tick.classList.toggle("out", !within(to(at), this.box[way]));
    }
    if (this.about[way].words) return;
    own.forEach((one) => one.classList.toggle("out", this.zoomed(way)));
    if (this.zoomed(way)) this.drawTicks(way, to);
  }

  drawTicks(way, to) {
    const {log, told, grid} = this.about[way];
    const [left, [top, bottom]] = [this.box.x[0], this.box.y];
    for (const [value, text] of ticks(this.view[way].map((at) => this.value(way, at)), log)) {
      const at = to(this.coordinate(way, value));
      const line = (look, begin, end) => shape("line", way === "x" ? {class: look, x1: at, x2: at, y1: begin, y2: end}
        : {class: look, x1: begin, x2: end, y1: at, y2: at});
      if (grid) this.ticks.append(line("tick grid", ...(way === "x" ? [top, bottom] : this.box.x)));
      this.ticks.append(line("tick", ...(way === "x" ? [bottom, bottom + 3.5] : [left - 3.5, left])));
      if (told) {
        this.ticks.append(shape("text", way === "x" ? {class: "tick", x: at, y: bottom + 13.5, "text-anchor": "middle"}
          : {class: "tick", x: left - 6.5, y: at + 3, "text-anchor": "end"}, text));
      }
    }
  }
}

/** The values at a pointer or a key, for all figures of the page: beside the value for eyes, in a sentence for ears. */
class Tip {
  constructor() {
    this.box = document.createElement("div");
    this.box.className = "tip";
    this.box.hidden = true;
    this.spoken = document.createElement("p");
    this.spoken.className = "hidden";
    this.spoken.setAttribute("aria-live", "polite");
    document.body.append(this.box, this.spoken);
  }

  /** Show a title and lines beside a place of the window. */
  show(title, lines, {x, y}) {
    const made = (name, text) => Object.assign(document.createElement(name), {textContent: text});
    this.box.replaceChildren(...[title].filter(Boolean).map((text) => made("strong", text)), ...lines.map((text) => made("span", text)));
    this.box.hidden = false;
    const {width: wide, height} = this.box.getBoundingClientRect();
    const left = x + 14 + wide > innerWidth ? x - 14 - wide : x + 14;
    this.box.style.left = `${Math.max(4, left)}px`;
    this.box.style.top = `${clamp(y - height - 10, [4, Math.max(4, innerHeight - height - 4)])}px`;
  }

  hide() {
    this.box.hidden = true;
  }
}

/** A figure in its frame: values at the pointer and by keys, boxes that zoom, and a legend that hides series. */
class Figure {
  constructor(frame, about, tip) {
    this.frame = frame;
    this.tip = tip;
    this.svg = frame.querySelector("svg");
    const part = (number) => this.svg.querySelector(`[data-part="${number}"]`);
    this.panels = about.panels.map((one) => new Panel(one, part));
    this.values = about.series.map((one) => one.at.map(([x, y], place) => (
      {x, y, series: one, panel: this.panels[one.panel], row: one.rows[place], bar: one.bars[place]})));
    this.grids = about.grids.map((one) => ({...one, panel: this.panels[one.panel]}));
    this.named = new Map(Object.entries(about.labels).flatMap(([label, parts]) => parts.map((one) => [one, label])));
    this.hiding = new Set();
    this.current = null; // the value that keys go on from
    this.mark = this.svg.appendChild(shape("circle", {class: "mark out", r: 4}));
    this.box = this.svg.appendChild(shape("rect", {class: "chosen out"}));
    this.listen();
    for (const [label, parts] of Object.entries(about.legend)) {
      if (about.labels[label]?.length) this.makeSwitch(label, parts.map(part), about.labels[label].map(part));
    }
  }

  listen() {
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("pointerdown", (event) => this.begin(event));
    this.svg.addEventListener("pointerup", (event) => this.end(event));
    this.svg.addEventListener("dblclick", () => this.reset());
    this.frame.addEventListener("keydown", (event) => this.key(event));
    this.frame.addEventListener("blur", () => this.leave());
  }

  /** An event's place in the drawing. */
  place(event) {
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
  }

  /** A place of the drawing in the window. */
  onScreen({x, y}) {
    return new DOMPoint(x, y).matrixTransform(this.svg.getScreenCTM());
  }

  leave() {
    this.tip.hide();
    this.mark.classList.add("out");
  }

  /** The values that are seen now, series by series. */
  seen() {
    const shown = this.values.filter(([first]) => !this.hiding.has(first.series.label));
    return shown.map((all) => all.filter((one) => one.panel.holds(one.panel.shown(one)))).filter((all) => all.length);
  }

  point(event) {
    const at = this.place(event);
    if (this.from) {
      this.choose(at);
      return;
    }
    const panel = this.panels.find((one) => one.holds(at));
    this.svg.classList.toggle("zoomable", panel !== undefined);
    if (!panel) {
      this.leave();
      return;
    }
    const over = Number(event.target.closest("[data-part]")?.dataset.part ?? NaN);
    const grid = this.grids.find((one) => one.panel === panel);
    const [value, distance] = this.nearest(panel, at, over);
    if (grid) {
      this.showCell(grid, at, event);
    } else if (this.named.has(over) && value?.bar !== over && distance > NEAR) {
      this.showPlace(panel, this.named.get(over), panel.drawn(at), event);
    } else if (value) {
      this.showValue(value);
    } else {
      this.leave();
    }
  }

  /** The value nearest to a place and how far it is; that of a bar where the pointer is over it. */
  nearest(panel, at, over) {
    let [found, least] = [null, Infinity];
    for (const value of this.seen().flat()) {
      if (value.panel !== panel) continue;
      const {x, y} = panel.shown(value);
      const distance = value.bar === over ? 0 : Math.hypot(x - at.x, y - at.y);
      if (distance < least) [found, least] = [value, distance];
    }
    return [found, least];
  }

  showValue(value) {
    const [x, y, low, high] = value.row;
    const to = value.panel.shown(value);
    const lines = [`${value.panel.about.x.name}: ${x}`, `${value.panel.about.y.name}: ${y}`];
    if (low || high) lines.push(`interval: ${low} to ${high}`);
    this.current = value;
    this.mark.setAttribute("cx", to.x);
    this.mark.setAttribute("cy", to.y);
    this.mark.classList.remove("out");
    this.tip.show(value.series.label, lines, this.onScreen(to));
    return [value.series.label, ...lines].filter(Boolean).join(", ");
  }

  /** The cell of a heatmap at a place. */
  showCell(grid, at, {clientX, clientY}) {
    const [left, top, right, bottom] = grid.box;
    const {x, y} = grid.panel.drawn(at);
    const row = Math.floor(mapping([top, bottom], [0, grid.rows.length])(y));
    const column = Math.floor(mapping([left, right], [0, grid.columns.length])(x));
    const cell = grid.cells[row]?.[column];
    this.mark.classList.add("out");
    if (cell === undefined) {
      this.tip.hide();
    } else {
      const names = [[grid.panel.about.y.name, grid.rows[row]], [grid.panel.about.x.name, grid.columns[column]]];
      this.tip.show(grid.title, [...names.map((one) => one.filter(Boolean).join(": ")), cell || "nothing"], {x: clientX, y: clientY});
    }
  }

  /** The name of what is drawn at a place, and the values of the axes there. */
  showPlace(panel, label, at, {clientX, clientY}) {
    const ways = ["x", "y"].filter((way) => !panel.about[way].words);
    this.mark.classList.add("out");
    this.tip.show(label, ways.map((way) => `${panel.about[way].name}: ${written(panel.value(way, at[way]))}`), {x: clientX, y: clientY});
  }

  begin(event) {
    const at = this.place(event);
    const panel = this.panels.find((one) => one.holds(at));
    if (!panel || event.button !== 0 || event.pointerType === "touch" || event.target.closest("[role=button]")) return;
    event.preventDefault();
    this.frame.focus({preventScroll: true});
    this.svg.setPointerCapture(event.pointerId);
    this.from = {panel, at};
  }

  /** The box from where the pointer went down to a place: whole panels along an axis that it hardly moved on. */
  chosen(at) {
    const {panel, at: from} = this.from;
    const ends = (way) => [from[way], clamp(at[way], panel.box[way])].sort((one, other) => one - other);
    const found = {x: ends("x"), y: ends("y")};
    const moved = {x: width(found.x) >= LEAST_DRAG, y: width(found.y) >= LEAST_DRAG};
    for (const way of ["x", "y"]) if (!moved[way]) found[way] = panel.box[way];
    return moved.x || moved.y ? found : null;
  }

  choose(at) {
    const found = this.chosen(at);
    this.tip.hide();
    this.mark.classList.add("out");
    this.box.classList.toggle("out", !found);
    if (!found) return;
    const {x, y} = found;
    for (const [name, value] of Object.entries({x: x[0], y: y[0], width: width(x), height: width(y)})) this.box.setAttribute(name, value);
  }

  end(event) {
    if (!this.from) return;
    const found = this.chosen(this.place(event));
    const {panel} = this.from;
    this.from = null;
    this.box.classList.add("out");
    if (!found) return;
    const [first, last] = [{x: found.x[0], y: found.y[0]}, {x: found.x[1], y: found.y[1]}].map((at) => panel.drawn(at));
    for (const way of ["x", "y"]) {
      const middle = (first[way] + last[way]) / 2;
      this.zoom(panel, way, scaled([first[way], last[way]], middle, 1, panel.box[way]));
    }
    this.draw();
  }

  /** Have a panel show a part of an axis, and all panels that share the axis with it. */
  zoom(panel, way, view) {
    for (const other of this.panels) {
      if (other.about[way].group === panel.about[way].group) other.view[way] = view.map(mapping(panel.box[way], other.box[way]));
    }
  }

  draw() {
    this.panels.forEach((panel) => panel.draw());
  }

  reset() {
    this.panels.forEach((panel) => { panel.view = {x: [...panel.box.x], y: [...panel.box.y]}; });
    this.draw();
    this.leave();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
    if (steps[event.key]) {
      this.step(...steps[event.key]);
    } else if (["+", "=", "-"].includes(event.key)) {
      this.zoomAbout(event.key === "-" ? 2 : 0.5);
    } else if (["0", "Escape"].includes(event.key)) {
      this.reset();
    } else {
      return;
    }
    event.preventDefault();
  }

  /** Go to another value of the series, or to the value of another series nearest along x. */
  step(ofSeries, ofValues) {
    const series = this.seen();
    if (!series.length) return;
    const now = series.findIndex((all) => all.includes(this.current));
    let next = series[0][0];
    if (now >= 0) {
      const all = series[(now + ofSeries + series.length) % series.length];
      const place = series[now].indexOf(this.current);
      const far = (one) => Math.abs(one.x - this.current.x);
      next = ofSeries ? all.reduce((best, one) => (far(one) < far(best) ? one : best)) : all[clamp(place + ofValues, [0, all.length - 1])];
    }
    this.svg.parentElement.scrollLeft += this.onScreen(next.panel.shown(next)).x - innerWidth / 2;
    this.tip.spoken.textContent = this.showValue(next);
  }

  /** Zoom about the current value, or the middle of the first panel. */
  zoomAbout(factor) {
    const panel = this.current?.panel ?? this.panels[0];
    for (const way of panel ? ["x", "y"] : []) {
      const centre = this.current?.[way] ?? panel.box[way][0] + width(panel.box[way]) / 2;
      this.zoom(panel, way, scaled(panel.view[way], centre, factor, panel.box[way]));
    }
    this.draw();
    if (this.current) this.showValue(this.current);
  }

  /** Let an entry of the legend hide and show what it names. */
  makeSwitch(label, [text, ...drawn], parts) {
    const entry = [text, ...drawn].filter((one) => one !== null);
    for (const [name, value] of Object.entries({role: "button", tabindex: "0", "aria-pressed": "true"})) text.setAttribute(name, value);
    const turn = () => this.hide(label, !this.hiding.has(label), entry, parts);
    text.addEventListener("click", turn);
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      turn();
    });
    text.addEventListener("dblclick", (event) => event.stopPropagation());
  }

  hide(label, hidden, [text, ...drawn], parts) {
    if (hidden) this.hiding.add(label); else this.hiding.delete(label);
    text.setAttribute("aria-pressed", String(!hidden));
    for (const one of [text, ...drawn]) one.classList.toggle("off", hidden);
    for (const one of parts) one?.classList.toggle("out", hidden);
    this.leave();
  }
}

const tip = new Tip();
const frames = [...document.querySelectorAll("[data-explored]")];
const figures = await Promise.all(frames.map(async (frame) => new Figure(frame, await unpacked(frame.dataset.explored), tip)));
document.querySelector("figcaption")?.append(Object.assign(document.createElement("span"), {className: "hint", textContent: HINT}));
addEventListener("beforeprint", () => figures.forEach((figure) => figure.reset()));
document.documentElement.dataset.ready = "";
