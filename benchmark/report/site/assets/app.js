"use strict";
(() => {
const view = document.getElementById("view"), home = document.getElementById("home"), main = document.getElementById("main");
const said = document.getElementById("said"), root = document.documentElement;
const say = (text) => { said.textContent = ""; requestAnimationFrame(() => { said.textContent = text; }); };
const element = (tag, attributes, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// ---- the address: #view/part/…?state
function read() {
  const [address, query] = decodeURI(location.hash.slice(1)).split("?");
  return { address, state: new URLSearchParams(query ?? "") };
}
function keep(name, value) {
  const { address, state } = read();
  if (value) state.set(name, value); else state.delete(name);
  const place = address || document.getElementById("first")?.dataset.address || "";
  history.replaceState(null, "", `#${place}${String(state) ? `?${state}` : ""}`);
}

// ---- data files, each loaded once: a page from a file may load scripts, but fetch nothing
const loading = {};
function load(name) {
  return loading[name] ??= new Promise((done, failed) => {
    const script = element("script", { src: `data/${encodeURIComponent(name)}.js` });
    script.onload = done;
    script.onerror = failed;
    document.head.append(script);
  });
}
const DEPTH = { leaderboard: 5, cost: 5, check: 3 };
const fileOf = (address) => {
  const parts = address.split("/");
  return parts.slice(0, DEPTH[parts[0]] ?? 2).join(".");
};

let shown = null, focused = null;
async function show() {
  const { address, state } = read();
  const kind = address.split("/")[0];
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view.split(" ").includes(kind)) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  home.hidden = address !== "";
  let title = "", html = "";
  if (kind === "find") [title, html] = await found(state.get("q") ?? "");
  else if (address) {
    try {
      await load(fileOf(address));
      [title, html] = window.PAGES[address];
    } catch {
      [title, html] = ["Not found", "<h1>There is no page at this address</h1><p><a href=\"#\">Back to the start</a></p>"];
    }
  }
  if (read().address !== address) return;
  document.title = title ? `${title} · FedSub Bench` : "FedSub Bench";
  if (typeof html === "string") view.innerHTML = html; else view.replaceChildren(html);
  prepare(address ? view : home, state);
  if (shown !== null && shown !== address) {
    const again = focused && view.querySelector(`select[name="${focused}"]`);
    if (again) again.focus({ preventScroll: true }); else { main.focus({ preventScroll: true }); scrollTo(0, 0); }
  }
  focused = null;
  shown = address;
}
addEventListener("hashchange", show);
// The address of a view is not to become that of the link.
document.querySelector(".skip").onclick = (event) => { event.preventDefault(); main.focus(); };

// ---- what a view can do: choose, keep to a budget, sort, copy
function prepare(part, state) {
  for (const select of part.querySelectorAll("[data-state]")) {
    select.value = state.get(select.name) ?? select.options[0].value;
    select.onchange = () => {
      keep(select.name, select.selectedIndex ? select.value : "");
      keepTo(part, select.value);
    };
    keepTo(part, select.value);
  }
  for (const select of part.querySelectorAll("[data-go]")) {
    select.onchange = () => {
      const { state: now } = read();
      // Columns of another table have other places.
      now.delete("sort");
      focused = select.name;
      location.hash = select.value + (String(now) ? `?${now}` : "");
    };
  }
  const wanted = state.get("sort");
  for (const table of part.querySelectorAll("table[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      if (cell.querySelector("button") || cell.classList.contains("plain")) return;
      const button = element("button", { type: "button" });
      button.append(...cell.childNodes);
      cell.append(button);
      button.onclick = () => {
        const down = cell.getAttribute("aria-sort") !== "descending";
        sort(table, column, down);
        if (table === part.querySelector("table[data-sortable]")) keep("sort", `${down ? "-" : ""}${column}`);
      };
    });
    if (wanted && table === part.querySelector("table[data-sortable]")) sort(table, Math.abs(Number(wanted)), wanted.startsWith("-"));
  }
}
function keepTo(part, budget) {
  let left = 0, ranked = 0, best = null;
  const first = [];
  for (const row of part.querySelectorAll("tr[data-ranks]")) {
    const ranks = JSON.parse(row.dataset.ranks), aside = row.classList.contains("aside");
    row.hidden = budget !== "any" && !(budget in ranks);
    left += !row.hidden;
    if (aside || row.hidden) continue;
    ranked += 1;
    const cell = row.querySelector(".rank");
    cell.textContent = ranks[budget];
    cell.dataset.v = parseInt(ranks[budget], 10);
    if (ranks[budget].split("–")[0] === "1") first.push(row);
    if (!(best && Number(best.cells[2].dataset.v) >= Number(row.cells[2].dataset.v))) best = row;
  }
  const about = (row) => `${row.querySelector("th a").textContent} (${row.cells[2].textContent})`;
  part.querySelector(".tied").textContent = !best ? "No method within this budget has a rank." : ranked === 1
    ? `Only ${about(best)} has a rank within this budget: nothing is compared.` : first.length === 1
    ? `No method is surely above ${about(first[0])}; every other method has one surely above it.`
    : `${first.length} methods are tied for the first rank: none is surely better than another. Best mean: ${about(best)}.`;
  say(`${left} methods`);
}
function sort(table, column, down) {
  const value = (row) => {
    const cell = row.cells[column], text = cell.dataset.v ?? cell.textContent.trim();
    if (!text || text === "–") return null;
    const number = parseFloat(text.replace(/[,×]/g, "").replace("−", "-"));
    return Number.isNaN(number) || column === 0 ? text.toLowerCase() : number;
  };
  const rows = [...table.tBodies[0].rows].map((row) => [value(row), row]);
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : (down ? -1 : 1) * compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
  [...table.tHead.rows[0].cells].forEach((cell, place) => {
    if (place === column) cell.setAttribute("aria-sort", down ? "descending" : "ascending"); else cell.removeAttribute("aria-sort");
  });
}
const copy = (text) => Promise.resolve().then(() => navigator.clipboard.writeText(text)).then(() => say("Copied."), () => say("The browser does not allow this page to copy."));
const csv = (table) => [...table.rows].filter((row) => !row.hidden).map((row) => [...row.cells].map((cell) => {
  const text = cell.innerText.replace(/\s+/g, " ").trim();
  // A spreadsheet runs what begins like a formula; a number may begin with a sign.
  const safe = /^[=@+\-\t\r]/.test(text) && !/^[+\-]?[\d.,]+( |$)/.test(text) ? `'${text}` : text;
  return `"${safe.replaceAll('"', '""')}"`;
}).join(",")).join("\n");
main.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const part = home.hidden ? view : home;
  copy(button.dataset.copy === "table" ? csv(part.querySelector("table")) : button.parentElement.querySelector("code").textContent);
});

// ---- search: every word of the query has to be found; whole words in the right places come first
const plain = (text) => text.toLowerCase().replace(/[^a-z0-9.+]/g, "");
const WEIGHTS = [1, 6, 5, 5, 5, 6];
// A whole word counts most, then a word's start, then another part of it.
const hit = (word, part) => part === word ? 3 : word.length > 2 && part.startsWith(word) ? 1.5 : word.length > 3 && part.includes(word) ? 0.5 : 0;
function score(words, fields) {
  let total = 0;
  for (const word of words) {
    const best = Math.max(0, ...fields.flatMap((field, place) => field.map((part) => WEIGHTS[place] * hit(word, part))));
    if (!best) return 0;
    total += best;
  }
  return total;
}
const split = (text) => [...text.split(/[\s,()·]+/), text].map(plain).filter(Boolean);
let index = null;
async function found(query) {
  await load("search");
  index ??= window.SEARCH.figures.map((line) => ({ line, fields: [split(line[1]).concat(split(line[2])), split(line[3]), split(line[4]), split(line[5]), [line[6]], [line[7]]] }));
  const words = query.split(/\s+/).map(plain).filter(Boolean);
  const pages = window.SEARCH.pages.map((line) => [score(words, [[line[0]], split(line[1]).concat(split(line[2])), [], [], [], []]), line]).filter(([points]) => points > 0);
  const hits = index.map(({ line, fields }, place) => [score(words, fields) + line[9] - plain(line[3]).length / 50 - place / 1e5, line, score(words, fields)]).filter(([, , points]) => points > 0);
  pages.sort((a, b) => b[0] - a[0]);
  hits.sort((a, b) => b[0] - a[0]);
  const list = element("ol", { class: "hits" });
  for (const [, [address, title, about, , , , , printed, word]] of hits.slice(0, 40)) {
    list.append(element("li", {}, element("a", { href: `#${address}` }, title), `: ${about}, printed ${printed}, ${word}`));
  }
  const other = element("p", {});
  pages.slice(0, 8).forEach(([, [kind, title, , address]], place) => other.append(place ? " · " : "", element("a", { href: (kind === "guide" ? "" : "#") + address }, title), ` (${kind})`));
  const made = element("div", {}, element("h1", {}, `“${query}”`), other,
    element("p", {}, hits.length ? `${hits.length} printed figures, the best match first${hits.length > 40 ? "; 40 are shown" : ""}.` : "No printed figure has all of these words."), list);
  say(`${hits.length} figures`);
  return [`Search: ${query}`, made];
}
const search = document.getElementById("search");
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = `find?${new URLSearchParams({ q: search.value })}`;
});

// ---- light and dark
const theme = document.getElementById("theme"), wanted = matchMedia("(prefers-color-scheme: dark)");
const remembered = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
const paint = (name) => { root.dataset.theme = name; theme.setAttribute("aria-pressed", String(name === "dark")); };
theme.onclick = () => {
  const name = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", name); } catch { /* not kept: nothing else is lost */ }
  paint(name);
};
wanted.addEventListener("change", () => { if (!remembered()) paint(wanted.matches ? "dark" : "light"); });
paint(remembered() ?? (wanted.matches ? "dark" : "light"));
show();
})();
