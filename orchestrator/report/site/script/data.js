// The data of the page, and how values are written.

/** A list of values as an object with these names. */
function record(names, values) {
  const found = {};
  names.forEach((name, place) => { found[name] = values[place]; });
  return found;
}

/** A run with its windows and their jobs, and the text that filters look at. */
function runOf(fields, values) {
  const run = record(fields.run, values);
  run.windows = run.windows.map((one) => {
    const window = record(fields.window, one);
    window.jobs = window.jobs.map((job) => record(fields.job, job));
    return window;
  });
  run.day = dayOf(run.began);
  run.load = run.windows.length ? Math.max(...run.windows.map((window) => window.requested || 0)) : run.asked;
  run.p50 = median(run.windows.flatMap((window) => window.jobs.map((job) => job.p50)));
  const labels = run.windows.flatMap((window) => [window.label, window.name]);
  run.text = [run.id, run.name, run.verdict, run.against, run.jobs, run.commit, run.sweep, ...run.why, ...labels]
    .join("\n").toLowerCase();
  return run;
}

/** The middle one of the values that are known; null of none. */
function median(values) {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  return known.length ? known[known.length >> 1] : null;
}

const pad = (number) => String(number).padStart(2, "0");

/** The day of an instant (seconds since the epoch), local time. */
function dayOf(seconds) {
  const at = new Date(1000 * seconds);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
}

/** Day and minute of an instant, local time. */
function timeOf(seconds) {
  const at = new Date(1000 * seconds);
  return `${dayOf(seconds)} ${pad(at.getHours())}:${pad(at.getMinutes())}`;
}

const digits = (value) => String(Number(value.toPrecision(4)));

/** Seconds in milliseconds; a dash for what is not known. */
const ms = (value) => (value === null || value === undefined ? "-" : `${digits(1e3 * value)} ms`);

/** Bits a second; a dash for what is not known. */
function rate(value) {
  if (value === null) { return "-"; }
  const [factor, unit] = [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]].find(([one]) => value >= one)
    || [1, "bit/s"];
  return value === 0 ? "none" : `${digits(value / factor)} ${unit}`;
}

/** A ratio as a change, with its sign; a dash for what is not known. */
function change(ratio) {
  return Number.isFinite(ratio) ? `${ratio < 1 ? "-" : "+"}${Math.abs(100 * (ratio - 1)).toFixed(1)} %` : "-";
}

const several = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

/** An argument of a command as a shell takes it. */
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
