// Elements. Whatever the data says becomes text nodes and attribute values, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes (a function is a listener; false, null: left out) and children (text, elements, lists). */
function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same of SVG. */
function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(key, value);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== false));
  return element;
}

const byId = (id) => document.getElementById(id);

/** A run's verdict, by its word and colour. */
const badge = (verdict) => h("span", {class: `badge ${verdict.replace(" ", "-")}`}, verdict);

/** A run's verdict: what its sweep's comparison says of it stands before whether its numbers count. */
const verdictOf = (run) => (run.against === "worse"
  ? [badge("worse"), h("small", {}, run.verdict === "valid" ? "than its baseline; the numbers count" : run.verdict)]
  : badge(run.verdict));

/** The address of a view of this page with what it shows. */
function address(view, values = {}) {
  const kept = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(kept).toString();
  return `#${view}${query ? `?${query}` : ""}`;
}

/** A command to be run in a terminal, with a button that copies it. */
function command(...words) {
  const text = words.map(quoted).join(" ");
  const code = h("code", {}, text);
  const copy = h("button", {type: "button", class: "copy", "aria-label": `Copy: ${text}`, click: async () => {
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "copied";
    } catch {
      copy.textContent = "selected"; // a browser may keep pages from disk off the clipboard
    }
  }}, "copy");
  return h("span", {class: "command"}, code, " ", copy);
}

/** A table: heads are texts or [text, "n"] where numbers stand below; a row is a list of cells (text, elements). */
function table(caption, heads, rows) {
  const names = heads.map((head) => (Array.isArray(head) ? head : [head, ""]));
  return h("div", {class: "wide", tabindex: "0", role: "region", "aria-label": caption},
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, names.map(([name, kind]) => h("th", {scope: "col", class: kind || null}, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, place) => (
        h("td", {"data-label": names[place][0], class: names[place][1] || null}, cell))))))));
}

/** Buttons for the pages of a list: `show` is called with the page to go to. */
function pager(page, pages, show) {
  if (pages < 2) { return h("span"); }
  const to = (name, target) => h("button", {type: "button", disabled: target < 0 || target >= pages || target === page,
    click: () => show(target)}, name);
  return h("nav", {class: "pager", "aria-label": "Pages"}, to("First", 0), to("Previous", page - 1),
    h("span", {}, `page ${page + 1} of ${pages}`), to("Next", page + 1), to("Last", pages - 1));
}
