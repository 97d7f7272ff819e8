"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const figures = [];
for (const [name, [values, places]] of Object.entries(data.figures)) {
  places.forEach((place, at) => { (figures[at] ??= {})[name] = values[place]; });
}
const root = document.documentElement;
const MOST = 8;
// Apart for the colour-blind too, and at least 3:1 on either ground.
const COLOURS = ["#2f7fc1", "#d1602b", "#1f9a72", "#b763a6", "#8f7f1c", "#7a72cf", "#c2414b", "#5f8a8b"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "solid", "dash", "dot"];
const SYMBOLS = ["circle", "square", "diamond", "cross", "x", "triangle-up", "star", "pentagon"];

// ---- libraries, unpacked when they are first needed
const loading = {};
async function unpacked(name) {
  const packed = document.getElementById(`library-${name}`).textContent.trim();
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return await new Response(stream).text();
}
function library(name, start) {
  loading[name] ??= unpacked(name).then(start);
  return loading[name];
}
const plotly = () => library("plotly", (text) => {
  const script = document.createElement("script");
  script.textContent = text;
  document.head.append(script);
  return window.Plotly;
});
const dataTables = () => library("datatables", async (text) =>
  (await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })))).default);

// ---- light and dark
const theme = document.getElementById("theme");
const wanted = matchMedia("(prefers-color-scheme: dark)");
function remembered() { try { return localStorage.getItem("theme"); } catch { return null; } }
function paint(name) {
  root.dataset.theme = name;
  theme.setAttribute("aria-pressed", String(name === "dark"));
  document.querySelectorAll(".plot[data-drawn]").forEach(draw);
}
theme.addEventListener("click", () => {
  const name = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", name); } catch { /* not kept: nothing else is lost */ }
  paint(name);
});
wanted.addEventListener("change", () => { if (!remembered()) paint(wanted.matches ? "dark" : "light"); });
paint(remembered() ?? (wanted.matches ? "dark" : "light"));

// ---- what is said to those who do not see it
const said = document.getElementById("said");
function say(text) { said.textContent = ""; requestAnimationFrame(() => { said.textContent = text; }); }

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page from a file may not be allowed that.
    const box = element("textarea", { class: "unseen" });
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  say("The command is copied.");
}

// What a name says has no meaning in HTML.
const tame = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");

// ---- every figure
const plain = (value, type) => type === "display" ? tame(value ?? "") : value;
const word = (value, type) => type === "display"
  ? element("span", { class: `word ${value.split(" ")[0]}` }, value) : value;
const numeric = (shown, sorted) => (_, type, row) => type === "sort" || type === "type"
  ? row[sorted] ?? -Infinity : tame(row[shown] ?? "");
const COLUMNS = [
  { title: "table", data: "table", className: "text", render: plain },
  { title: "graph", data: "graph", className: "text", render: plain },
  { title: "clients", data: "clients", className: "text", render: plain },
  { title: "method", data: "method", className: "text", render: method },
  { title: "score", data: "score", className: "text", render: plain },
  { title: "authors' code", data: "authors", className: "text", render: plain },
  { title: "measured", data: null, type: "num", render: numeric("measured", "measured_at") },
  { title: "printed", data: null, type: "num", render: numeric("printed", "printed_at") },
  { title: "difference", data: null, type: "num", render: numeric("difference", "difference_at") },
  { title: "90% interval", data: "interval", orderable: false, render: plain },
  { title: "verdict", data: "verdict", className: "text", render: word },
  { title: "gain", data: "gain", className: "text", render: word },
  { title: "seeds", data: null, type: "num", render: numeric("seeds", "seeds") },
  { title: "again", data: null, orderable: false, searchable: false, className: "text", render: again },
  { title: "more", data: null, orderable: false, className: "text", render: more },
  { title: "cause", data: "cause", className: "wide", render: plain },
];

function method(name, type, row) {
  return plain(row.backbone ? `${name} · ${row.backbone}` : name, type);
}

function again(_, type, row) {
  if (type !== "display" || !row.command) return "";
  return element("button", { type: "button", class: "copy", title: row.command,
    "aria-label": `Copy the command for ${row.method}, ${row.graph}, ${row.table}`,
    onclick: () => copy(row.command) }, "copy");
}

function more(_, type, row) {
  if (type !== "display") return [row.note, row.why, ...row.records].join(" ");
  return element("button", { type: "button", class: "more", "aria-expanded": "false",
    "aria-label": `Records and reasons for ${row.method}, ${row.graph}, ${row.table}` },
    `${row.records.length} records`);
}

function details(row) {
  const list = element("dl");
  const add = (name, ...content) => { if (content.some(Boolean)) list.append(element("dt", {}, name), element("dd", {}, ...content)); };
  add("reason", row.why);
  add("seeds to decide", row.seeds_to_decide ? String(row.seeds_to_decide) : "");
  add("cause", row.cause);
  if (row.gain) add(`gain over ${row.over}`, `${row.gain}: ${row.gain_shown}`);
  add("note in print", row.note);
  if (row.command) add("command", element("code", {}, row.command));
  if (row.protocol) {
    const known = document.getElementById(row.protocol);
    add("page", known ? element("a", { href: `#${row.protocol}` }, row.protocol) : row.protocol);
    if (row.records.length) add("records", element("code", {}, row.records.join(" ")), ` in ${row.files.map((file) => `runs/${file}.jsonl`).join(", ")}`);
  }
  return list;
}

const filters = document.getElementById("filters");
const selects = [...filters.querySelectorAll("select")];
const MEASURED = "measured", VERDICTS = ["matches", "differs", "needs more runs", "cannot be settled from print"];
const kindOf = (verdict) => verdict.split(" ")[0];
let table = null;

function fill(select) {
  const name = select.dataset.column;
  const values = [...new Set(figures.map((row) => row[name]).filter(Boolean))].sort(
    new Intl.Collator("en", { numeric: true }).compare);
  select.replaceChildren(new Option("all", ""), ...values.map((value) => new Option(value, value)));
  if (name === "verdict") select.options[0].after(new Option("all that are measured", MEASURED));
}

function keeps(row) {
  return selects.every((select) => {
    const value = select.value, own = row[select.dataset.column];
    return !value || own === value || (value === MEASURED && VERDICTS.includes(row.verdict));
  });
}

function shown() {
  const count = table.rows({ search: "applied" }).count();
  document.getElementById("shown").textContent = `${count} of ${figures.length} figures`;
}

async function startFigures() {
  const DataTable = await dataTables();
  selects.forEach(fill);
  const verdict = selects.find((select) => select.dataset.column === "verdict");
  const usual = figures.some((row) => row.measured_at !== null) ? MEASURED : "";
  verdict.value = usual;
  table = new DataTable("#all-figures", {
    data: figures, columns: COLUMNS, deferRender: true, pageLength: 25, autoWidth: false, order: [],
    layout: { topStart: null, topEnd: null, bottomStart: "pageLength", bottomEnd: "paging" },
    language: { emptyTable: "No figure is printed.", zeroRecords: "No figure matches.", lengthMenu: "_MENU_ a page" },
  });
  table.search.fixed("chosen", (_, row) => keeps(row));
  table.on("draw", shown);
  table.draw();
  filters.hidden = false;
  selects.forEach((select) => select.addEventListener("change", () => table.draw()));
  const search = document.getElementById("search");
  search.addEventListener("input", () => table.search(search.value).draw());
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => setTimeout(() => { table.search("").order([]).draw(); }));
  document.getElementById("all-figures").addEventListener("click", (event) => {
    const button = event.target.closest("button.more");
    if (!button) return;
    const row = table.row(button.closest("tr"));
    const open = !row.child.isShown();
    if (open) row.child(details(row.data())).show(); else row.child.hide();
    button.setAttribute("aria-expanded", String(open));
  });
  document.querySelectorAll("[data-filter]").forEach((link) => link.addEventListener("click", () => {
    filters.reset();
    selects.find((select) => select.dataset.column === link.dataset.filter).value = link.dataset.value;
  }));
}

// ---- plots
function look() {
  const style = getComputedStyle(root);
  const get = (name) => style.getPropertyValue(name).trim();
  return { text: get("--text"), faint: get("--faint"), line: get("--line"), matches: get("--matches"),
    needs: get("--needs"), cannot: get("--cannot"), differs: get("--differs") };
}

function layout(colours, x, y, rest = {}) {
  const axis = { gridcolor: colours.line, linecolor: colours.faint, zerolinecolor: colours.faint, automargin: true };
  return {
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", showlegend: false, hovermode: "closest",
    font: { color: colours.text, family: "system-ui, sans-serif", size: 12 }, dragmode: false,
    margin: { l: 50, r: 12, t: 8, b: 44 }, xaxis: { ...axis, ...x }, yaxis: { ...axis, ...y }, ...rest };
}
const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false };
// Older records say what a run needs before its first round and what it spends in all of them: spread evenly.
function spent(line, axis, rounds) {
  if (axis === "rounds") return rounds;
  const name = axis === "seconds" ? "seconds" : "megabytes";
  if (line.spent) return line.spent[name];
  const [start, each] = line[name];
  return rounds.map((round) => start + each * round);
}

function chosen(figure, block) {
  figure.picked ??= {};
  figure.picked[block] ??= (() => {
    const listed = data.plots[figure.dataset.table].blocks[block].rows.map((line, place) => [line, place]);
    const best = listed.filter(([line]) => figure.dataset.kind === "costs" || line.mean)
      .sort(([a], [b]) => (b.rival - a.rival) || ((b.value ?? -1) - (a.value ?? -1)));
    const slots = new Array(MOST).fill(null);
    best.slice(0, MOST).forEach(([, place], slot) => { slots[slot] = place; });
    return slots;
  })();
  return figure.picked[block];
}

function pick(figure, block, place) {
  const slots = chosen(figure, block);
  const slot = slots.indexOf(place);
  figure.turn ??= 0;
  if (slot >= 0) slots[slot] = null;
  else {
    let free = slots.indexOf(null);
    // Eight at once: the ninth takes the place of the one that was picked longest ago.
    if (free < 0) { free = figure.turn % MOST; figure.turn += 1; }
    slots[free] = place;
  }
  draw(figure);
}

function legend(figure, block, lines) {
  const slots = chosen(figure, block);
  const list = figure.querySelector(".legend");
  const focused = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  list.replaceChildren(...lines.map((line, place) => {
    const slot = slots.indexOf(place);
    const button = element("button", { type: "button", "aria-pressed": String(slot >= 0),
      onclick: () => pick(figure, block, place) },
      line.value === null ? line.name : `${line.name} ${line.value.toFixed(1)}`);
    if (slot >= 0) button.style.setProperty("--colour", COLOURS[slot]);
    if (figure.dataset.kind === "curves" && !line.mean) button.disabled = true;
    return element("li", {}, button);
  }));
  if (focused >= 0) list.querySelectorAll("button")[focused].focus({ preventScroll: true });
}

function curves(figure, colours) {
  const block = Number(figure.querySelector(".block")?.value ?? 0), axis = figure.querySelector(".axis").value;
  const { rows, title, score } = data.plots[figure.dataset.table].blocks[block];
  const slots = chosen(figure, block);
  const grey = [], bright = [];
  rows.forEach((line, place) => {
    if (!line.mean) return;
    const slot = slots.indexOf(place), on = slot >= 0;
    const x = spent(line, axis, data.rounds[line.rounds]);
    const colour = on ? COLOURS[slot] : colours.line;
    const few = line.mean.length <= 12;
    if (on && line.spread.some(Boolean)) {
      const up = line.mean.map((mean, i) => mean + line.spread[i]), down = line.mean.map((mean, i) => mean - line.spread[i]);
      if (line.mean.length > 1) bright.unshift({ x: [...x, ...[...x].reverse()], y: [...up, ...down.reverse()], fill: "toself",
        fillcolor: `${colour}22`, line: { width: 0 }, mode: "lines", hoverinfo: "skip", meta: null });
    }
    (on ? bright : grey).push({ x, y: line.mean, name: tame(line.name), meta: place, mode: few ? "lines+markers" : "lines",
      line: { color: colour, width: on ? 2 : 1, dash: on ? DASHES[slot] : "solid" },
      marker: { color: colour, size: on ? 8 : 5, symbol: on ? SYMBOLS[slot] : "circle" },
      error_y: on && line.mean.length === 1 ? { type: "data", array: line.spread, color: colour } : undefined,
      hovertemplate: `${tame(line.name)}<br>%{x:.4~g}: %{y:.2f}<extra></extra>` });
  });
  legend(figure, block, rows);
  const drawn = rows.filter((line) => line.mean && line.value !== null).sort((a, b) => b.value - a.value);
  const even = axis !== "rounds" && rows.some((line) => line.mean && !line.spent) ? ", of older records spread evenly over rounds" : "";
  const ends = drawn.slice(0, 3).map((line) => `${line.name} ${line.value.toFixed(1)}`).join(", ");
  return { traces: [...grey, ...bright], layout: layout(colours,
    { title: { text: axis + even }, rangemode: "tozero" }, { title: { text: "test score, %" } }),
    words: `Test score against ${axis}${even} on ${title}: ${grey.length + rows.filter((line, place) => line.mean && slots.includes(place)).length} curves. ${ends ? `Highest ${score}: ${ends}.` : "No curve is recorded."}` };
}

function front(points) {
  let best = -Infinity;
  return [...points].sort((a, b) => a.x - b.x || b.y - a.y).filter((point) => point.y > best && (best = point.y, true));
}

function costs(figure, colours) {
  const block = Number(figure.querySelector(".block")?.value ?? 0), axis = figure.querySelector(".axis").value;
  const { rows, title, score } = data.plots[figure.dataset.table].blocks[block];
  const slots = chosen(figure, block);
  const cost = (line) => line[axis === "seconds" ? "seconds" : "megabytes"][2];
  const points = rows.map((line, place) => ({ x: cost(line), y: line.value, line, place })).filter((point) => point.y !== null);
  const some = points.map((point) => point.x).filter((x) => x > 0);
  // Nothing has no place on a logarithmic axis: it stands left of the least, and the axis says so.
  const least = Math.min(...some), nothing = some.length ? least / 4 : 1;
  points.forEach((point) => { point.at = point.x > 0 ? point.x : nothing; });
  const best = front(points.filter((point) => point.line.rival));
  const traces = [{ x: best.map((point) => point.at), y: best.map((point) => point.y), mode: "lines", line: { color: colours.faint, shape: "hv", width: 1.5 }, hoverinfo: "skip" }];
  for (const point of points) {
    const slot = slots.indexOf(point.place), on = slot >= 0;
    traces.push({ x: [point.at], y: [point.y], mode: best.includes(point) ? "markers+text" : "markers", meta: point.place, cliponaxis: false,
      text: [tame(point.line.name)], textposition: "top center", textfont: { size: 10 },
      marker: { color: on ? COLOURS[slot] : colours.line, size: on ? 11 : 7, opacity: on ? 0.85 : 1, symbol: on ? SYMBOLS[slot] : "circle", line: { width: 1, color: colours.faint } },
      hovertemplate: `${tame(point.line.name)}<br>${point.x.toPrecision(3)} ${axis}: ${point.y.toFixed(2)}<extra></extra>` });
  }
  legend(figure, block, rows);
  const x = { title: { text: axis === "seconds" ? "seconds of a run" : "megabytes sent in a run, both ways" }, type: "log" };
  if (points.some((point) => point.x <= 0)) {
    const top = Math.max(...some, nothing), ticks = [];
    const steps = top / least > 30 ? [1] : [1, 2, 5];
    for (let power = Math.floor(Math.log10(least || 1)); 10 ** power <= top; power += 1) {
      ticks.push(...steps.map((step) => step * 10 ** power).filter((tick) => tick >= 0.9 * least && tick <= 1.1 * top));
    }
    Object.assign(x, { tickvals: [nothing, ...ticks], ticktext: ["0", ...ticks.map((tick) => String(Number(tick.toPrecision(1))))] });
  }
  const names = best.map((point) => `${point.line.name} (${point.x.toPrecision(3)}, ${point.y.toFixed(1)})`).join("; ");
  return { traces, layout: layout(colours, x, { title: { text: score } }),
    words: `${score} against ${axis} on ${title}: ${points.length} methods. ${names ? `Not beaten on both: ${names}.` : ""}` };
}

function forest(figure, colours) {
  const { delta, points, lines } = data.plots[figure.dataset.table].forest;
  const narrow = figure.clientWidth < 640, step = narrow ? 34 : 20;
  const rows = lines.map(([label, low, middle, high, verdict, text], place) => ({ label, low, middle, high, verdict, text, y: -place }));
  const ends = rows.flatMap((row) => [row.low ?? row.middle, row.high ?? row.middle]);
  // One interval without bounds in sight must not flatten the others: beyond this it runs off the plot.
  const middles = rows.map((row) => Math.abs(row.middle)), limit = Math.max(3 * delta, 1.5 * Math.max(...middles));
  const left = Math.max(Math.min(...ends, -delta), -limit), right = Math.min(Math.max(...ends, delta), limit);
  const traces = VERDICTS.map((verdict, kind) => {
    const own = rows.filter((row) => row.verdict === verdict);
    return { x: own.map((row) => row.middle), y: own.map((row) => row.y), mode: "markers", meta: null,
      marker: { color: colours[kindOf(verdict)], size: 9, symbol: ["circle", "diamond", "circle-open", "square-open"][kind] },
      error_x: { type: "data", symmetric: false, color: colours[kindOf(verdict)], width: 3, thickness: 1.5,
        array: own.map((row) => (row.high ?? row.middle) - row.middle), arrayminus: own.map((row) => row.middle - (row.low ?? row.middle)) },
      customdata: own.map((row) => [tame(row.label), row.verdict, row.text]),
      hovertemplate: "%{customdata[0]}<br>%{customdata[2]}<br>%{customdata[1]}<extra></extra>" };
  });
  const margin = 0.05 * (right - left);
  const edges = [["triangle-left", left - margin, (row) => row.low < left - margin], ["triangle-right", right + margin, (row) => row.high > right + margin]];
  for (const [symbol, x, leaves] of edges) {
    const own = rows.filter(leaves);
    traces.push({ x: own.map(() => x), y: own.map((row) => row.y), mode: "markers", meta: null, hoverinfo: "skip", cliponaxis: false,
      marker: { symbol, size: 9, color: own.map((row) => colours[kindOf(row.verdict)]) } });
  }
  const annotations = narrow ? rows.map((row) => ({ x: 0, xref: "paper", y: row.y + 0.42, yref: "y", text: tame(row.label), showarrow: false, xanchor: "left", font: { size: 10 } })) : [];
  const count = (verdict) => rows.filter((row) => row.verdict === verdict).length;
  const made = layout(colours, { title: { text: points ? "measured − printed" : "difference in units of δ" }, range: [left - margin, right + margin], zeroline: true },
    narrow ? { showticklabels: false, showgrid: false } : { tickvals: rows.map((row) => row.y), ticktext: rows.map((row) => tame(row.label)) },
    { annotations, height: step * rows.length + 70, shapes: [{ type: "rect", xref: "x", yref: "paper", x0: -delta, x1: delta, y0: 0, y1: 1, fillcolor: colours.matches, opacity: 0.12, line: { width: 0 }, layer: "below" }] });
  made.yaxis.range = [-rows.length + 0.3, 0.9];
  made.yaxis.zeroline = false;
  return { traces, layout: made, words: `Differences of ${rows.length} figures with their 90% intervals: ${VERDICTS.map((verdict) => `${count(verdict)} ${verdict}`).join(", ")}.` };
}

async function draw(figure) {
  const Plotly = await plotly();
  const picture = figure.querySelector(".picture");
  const made = { curves, costs, forest }[figure.dataset.kind](figure, look());
  picture.setAttribute("aria-label", made.words);
  await Plotly.react(picture, made.traces, made.layout, CONFIG);
  if (figure.dataset.drawn) return;
  figure.dataset.drawn = "yes";
  picture.on("plotly_click", (event) => {
    const place = event.points[0].data.meta;
    if (typeof place === "number") pick(figure, Number(figure.querySelector(".block")?.value ?? 0), place);
  });
  figure.querySelectorAll("select").forEach((select) => select.addEventListener("change", () => draw(figure)));
}

const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
  if (!entry.isIntersecting) return;
  seen.unobserve(entry.target);
  draw(entry.target);
}), { rootMargin: "300px" });
document.querySelectorAll(".plot").forEach((figure) => seen.observe(figure));
startFigures();
})();
