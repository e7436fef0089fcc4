// Tables that a click on a head sorts: upwards, downwards, as it was. Without this script they are as they were written.

const UNITS = {"": 1, "%": 0.01, "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600,
  "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2 ** 10, "MiB": 2 ** 20, "GiB": 2 ** 30,
  "bit/s": 1, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12};
const QUANTITY = /^[<>≤≥~]?\s*([+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*([^\s\d,;]*)(?=$|[\s,;])/i;
const NEXT = {none: "ascending", ascending: "descending", descending: "none"};

/** The number that a cell begins with, in the unit's base; NaN where it begins with none. */
function quantity(text) {
  const [, digits, unit] = QUANTITY.exec(text) || [];
  return digits === undefined ? NaN : Number(digits.replaceAll(",", "")) * (UNITS[unit] ?? 1);
}

/** What a cell says, without the smaller notes below. */
function cellText(row, column) {
  const cell = row.cells[column];
  return cell ? [...cell.childNodes].filter((one) => one.nodeName !== "SMALL").map((one) => one.textContent).join("").trim() : "";
}

/** How to sort by a column: by number where all or, in a column of numbers, some are; what says nothing goes last. */
function sortedBy(rows, column, ofNumbers, way) {
  const read = rows.map((row) => {
    const text = cellText(row, column);
    return {row, text, number: quantity(text), empty: text === "" || text === "-"};
  });
  const told = read.filter((one) => !one.empty);
  const byNumber = ofNumbers || (told.length > 0 && told.every((one) => !Number.isNaN(one.number)));
  const last = (one) => one.empty || (byNumber && Number.isNaN(one.number));
  const turn = way === "descending" ? -1 : 1;
  return read.sort((one, other) => {
    if (last(one) || last(other)) return last(one) - last(other);
    return turn * (byNumber ? one.number - other.number : one.text.localeCompare(other.text, undefined, {numeric: true}));
  }).map((one) => one.row);
}

function sortable(table) {
  const body = table.tBodies[0];
  const written = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const way = NEXT[head.getAttribute("aria-sort") || "none"];
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      if (way === "none") {
        body.append(...written);
      } else {
        head.setAttribute("aria-sort", way);
        body.append(...sortedBy(written, heads.indexOf(head), head.classList.contains("n"), way));
      }
    });
  }
}

for (const table of document.querySelectorAll("table")) {
  if (table.tHead && table.tBodies[0].rows.length > 1) sortable(table);
}
