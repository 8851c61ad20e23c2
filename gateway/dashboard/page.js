"use strict";
// The books as charts. Names come from outside: they only ever become text nodes, never markup.

const SPENT = [["cost_nanousd", "spent", "Spent"], ["saved_by_cache_nanousd", "cache", "Saved by the cache"],
  ["saved_by_routing_nanousd", "routing", "Saved by routing"]];
const REFRESH_MS = 15000;
const $ = (id) => document.getElementById(id);
let books = null; // {day, model, tier}: the three reports that are on the page
let asked = 0; // a slow answer must not overwrite a later one
let knownTenants = new Set();

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const count = (number) => number.toLocaleString("en-US");
const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");
const saved = (row) => row.saved_by_cache_nanousd + row.saved_by_routing_nanousd;

function money(nanousd, step = nanousd) {
  // As many decimals as `step` needs for two digits, at least cents.
  const size = Math.abs(step) / 1e9;
  const decimals = size ? Math.min(9, Math.max(2, 1 - Math.floor(Math.log10(size)))) : 2;
  const text = (Math.abs(nanousd) / 1e9).toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return `${nanousd < 0 ? "−" : ""}$${text}`;
}

function describe(row) {
  const lines = SPENT.map(([field, , label]) => `${label}: ${money(row[field])}`);
  lines.push(`Requests: ${count(row.num_requests)}, from the cache: ${count(row.num_hits)} (${percent(row.num_hits, row.num_requests)})`);
  if (row.num_failed) lines.push(`Failed: ${count(row.num_failed)}`);
  return lines.join("\n");
}

// ---- sums ----

const SUMS = ["num_requests", "num_failed", "num_hits", "prompt_tokens", "cached_tokens", "completion_tokens", ...SPENT.map((s) => s[0])];
const empty = (name) => Object.fromEntries([["name", name], ...SUMS.map((field) => [field, 0])]);

function sumBy(rows, nameOf) {
  const sums = new Map();
  for (const row of rows) {
    const name = nameOf(row);
    if (!sums.has(name)) sums.set(name, empty(name));
    for (const field of SUMS) sums.get(name)[field] += row[field];
  }
  return [...sums.values()];
}

function everyDay(report) {
  // Days without a request are days too: a gap in the axis would lie.
  const found = new Map(sumBy(report.rows, (row) => row.group).map((row) => [row.name, row]));
  const names = [...found.keys()].sort();
  if (!names.length) return [];
  const today = new Date().toISOString().slice(0, 10);
  const first = report.since || names[0];
  const days = [];
  for (let day = new Date(`${first}T00:00:00Z`); ; day.setUTCDate(day.getUTCDate() + 1)) {
    const name = day.toISOString().slice(0, 10);
    if (name > today && name > names[names.length - 1]) return days;
    days.push(found.get(name) || empty(name));
  }
}

// ---- charts ----

function niceStep(span, parts) {
  const rough = span / parts;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

function columns(box, rows, parts, format, describeRow, least) {
  // Stacked columns, one a day; what is negative hangs below zero.
  if (!rows.some((row) => parts.some(([value]) => value(row)))) return nothing(box);
  const width = Math.max(280, box.clientWidth), height = 220, left = 74, bottom = 24, top = 8;
  const high = Math.max(...rows.map((row) => parts.reduce((sum, [value]) => sum + Math.max(0, value(row)), 0)));
  const low = Math.min(0, ...rows.map((row) => parts.reduce((sum, [value]) => sum + Math.min(0, value(row)), 0)));
  const step = Math.max(least, niceStep(high - low, 4));
  const ceiling = Math.ceil(high / step) * step, floor = Math.floor(low / step) * step;
  const y = (value) => top + ((ceiling - value) / (ceiling - floor)) * (height - top - bottom);
  const slot = (width - left) / rows.length, bar = Math.max(1, Math.min(34, slot * 0.72));
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group" });
  for (let value = floor; value <= ceiling + step / 2; value += step) {
    picture.append(shape("line", { x1: left, x2: width, y1: y(value), y2: y(value), class: Math.abs(value) < step / 2 ? "zero" : "grid" }));
    picture.append(shape("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, format(Math.abs(value) < step / 2 ? 0 : value, step)));
  }
  const every = Math.ceil(54 / slot);
  rows.forEach((row, index) => {
    const x = left + index * slot;
    const group = shape("g", { tabindex: index === rows.length - 1 ? 0 : -1, role: "img" });
    const text = `${row.name}\n${describeRow(row)}`;
    group.setAttribute("aria-label", text.replaceAll("\n", ", "));
    group.append(shape("rect", { x, y: top, width: slot, height: height - top - bottom, class: "target" }));
    let up = 0, down = 0;
    for (const [value, kind] of parts) {
      const amount = value(row);
      const from = amount >= 0 ? up : down;
      if (amount >= 0) up += amount; else down += amount;
      if (amount) group.append(shape("rect", { x: x + (slot - bar) / 2, width: bar, y: Math.min(y(from), y(from + amount)), height: Math.max(0.75, Math.abs(y(from) - y(from + amount))), class: kind }));
    }
    if ((rows.length - 1 - index) % every === 0) picture.append(shape("text", { x: x + slot / 2, y: height - 6, "text-anchor": "middle" }, row.name.slice(5)));
    withTip(group, text);
    picture.append(group);
  });
  withArrows(picture, "ArrowLeft", "ArrowRight");
  box.replaceChildren(picture);
}

function bars(box, rows) {
  // Horizontal stacked bars, dearest first; the amount stands at the end of each.
  const size = (row) => SPENT.reduce((sum, [field]) => sum + Math.max(0, row[field]), 0);
  rows.sort((a, b) => size(b) - size(a) || b.num_requests - a.num_requests);
  if (!rows.length) return nothing(box);
  const width = Math.max(280, box.clientWidth), line = 46;
  const longest = Math.max(...rows.map(size)) || 1;
  const picture = shape("svg", { viewBox: `0 0 ${width} ${rows.length * line}`, height: rows.length * line, role: "group" });
  rows.forEach((row, index) => {
    const y = index * line;
    const group = shape("g", { tabindex: index ? -1 : 0, role: "img" });
    const text = `${row.name || "(none)"}\n${describe(row)}`;
    group.setAttribute("aria-label", text.replaceAll("\n", ", "));
    group.append(shape("rect", { x: -6, y, width: width + 12, height: line - 4, rx: 6, class: "target" }));
    const amounts = `${money(row.cost_nanousd)} spent · ${money(saved(row))} saved`;
    const room = Math.max(8, Math.floor((width - amounts.length * 6.4 - 12) / 7));
    const name = row.name || "(none)";
    group.append(shape("text", { x: 0, y: y + 15, class: "name" }, name.length > room ? `${name.slice(0, room - 1)}…` : name));
    group.append(shape("text", { x: width, y: y + 15, "text-anchor": "end" }, amounts));
    let x = 0;
    for (const [field, kind] of SPENT) {
      const part = (Math.max(0, row[field]) / longest) * width;
      if (part) group.append(shape("rect", { x, y: y + 22, width: Math.max(0.75, part), height: 12, class: kind }));
      x += part;
    }
    if (!x) group.append(shape("rect", { x: 0, y: y + 22, width: 2, height: 12, class: "other" }));
    withTip(group, text);
    picture.append(group);
  });
  withArrows(picture, "ArrowUp", "ArrowDown");
  box.replaceChildren(picture);
}

function nothing(box) {
  box.replaceChildren(element("p", { class: "nothing" }, "Nothing in the books for this period yet."));
}

function withTip(group, text) {
  const show = () => {
    const tip = $("tip"), place = group.getBoundingClientRect();
    tip.textContent = text;
    tip.hidden = false;
    const x = place.left + place.width / 2 - tip.offsetWidth / 2;
    const above = place.top - tip.offsetHeight - 8;
    tip.style.left = `${Math.max(8, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${above > 8 ? above : Math.min(place.bottom + 8, innerHeight - tip.offsetHeight - 8)}px`;
  };
  const hide = () => { $("tip").hidden = true; };
  group.addEventListener("pointerenter", show);
  group.addEventListener("pointerleave", hide);
  group.addEventListener("focus", show);
  group.addEventListener("blur", hide);
}

function withArrows(picture, back, forth) {
  // One stop for the Tab key; the arrows move inside.
  picture.addEventListener("keydown", (event) => {
    const groups = [...picture.querySelectorAll("g[tabindex]")];
    const at = groups.indexOf(document.activeElement);
    const to = { [back]: at - 1, [forth]: at + 1, Home: 0, End: groups.length - 1 }[event.key];
    if (at < 0 || to === undefined || !groups[to]) return;
    event.preventDefault();
    groups[at].setAttribute("tabindex", -1);
    groups[to].setAttribute("tabindex", 0);
    groups[to].focus();
  });
}

// ---- the page ----

function legend(list, entries) {
  list.replaceChildren(...entries.map(([kind, label]) => element("li", { class: kind }, element("span", {}, label))));
}

function table(first, rows) {
  const names = [first, "Requests", "Cache hits", "Failed", "Tokens in", "Tokens out", "Spent", "Saved by the cache", "Saved by routing"];
  const cells = (row) => [row.name || "(none)", count(row.num_requests), `${count(row.num_hits)} (${percent(row.num_hits, row.num_requests)})`,
    count(row.num_failed), count(row.prompt_tokens), count(row.completion_tokens), ...SPENT.map(([field]) => money(row[field]))];
  return element("table", {},
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row).map((cell) => element("td", {}, cell))))));
}

function draw() {
  if (!books) return;
  const total = books.day.total, days = everyDay(books.day);
  const baseline = total.cost_nanousd + saved(total);
  const tiles = [[money(total.cost_nanousd), "spent"],
    [money(saved(total)), baseline > 0 ? `saved, ${percent(saved(total), baseline)} of the baseline` : "saved"],
    [count(total.num_requests), "requests"], [percent(total.num_hits, total.num_requests), "answered by the cache"],
    [count(total.num_failed), "failed or cancelled"]];
  $("tiles").replaceChildren(...tiles.map(([value, label]) => element("div", { class: "tile" }, element("b", {}, value), element("span", {}, label))));
  columns($("by-day"), days, SPENT.map(([field, kind]) => [(row) => row[field], kind]), money, describe, 1);
  columns($("requests"), days, [[(row) => row.num_hits, "cache"], [(row) => row.num_requests - row.num_hits, "other"]], count, describe, 1);
  bars($("by-model"), sumBy(books.model.rows, (row) => row.group));
  bars($("by-tier"), sumBy(books.tier.rows, (row) => row.group));
  $("day-table").replaceChildren(table("Day", days.filter((row) => row.num_requests).reverse()));
  const tenants = sumBy(books.day.rows, (row) => row.tenant_name);
  if (tenants.length) $("tenants").replaceChildren(table("Tenant", tenants)); else nothing($("tenants"));
}

async function ask(by) {
  const query = new URLSearchParams({ tenant: $("tenant").value, since: document.querySelector("[name=since]:checked").value, by });
  const answer = await fetch(`dashboard/data?${query}`, { headers: { authorization: `Bearer ${sessionStorage.getItem("key")}` } });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(body.error ? body.error.message : `HTTP ${answer.status}`), { status: answer.status });
  return body;
}

async function load() {
  const turn = ++asked;
  try {
    const [day, model, tier] = await Promise.all(["day", "model", "tier"].map(ask));
    if (turn !== asked) return;
    books = { day: day.report, model: model.report, tier: tier.report };
    for (const row of day.report.rows) knownTenants.add(row.tenant_name);
    offerTenants(day.tenant);
    show("books");
    $("trouble").hidden = true;
    $("stamp").textContent = `As of ${new Date().toLocaleTimeString()}.`;
    draw();
  } catch (error) {
    if (turn !== asked) return;
    if (error.status === 401 || error.status === 403) return leave(error.message);
    $("trouble").textContent = `The numbers could not be read: ${error.message}`;
    $("trouble").hidden = false;
    if ($("books").hidden && $("login").hidden) show("books");
  }
}

function offerTenants(only) {
  const select = $("tenant"), chosen = select.value;
  const mayChoose = chosen !== "" || only === null;
  $("tenant-choice").hidden = !mayChoose;
  if (!mayChoose) return;
  select.replaceChildren(new Option("all", ""), ...[...knownTenants].sort().map((name) => new Option(name, name)));
  select.value = chosen;
}

function show(what) {
  $("books").hidden = what !== "books";
  $("controls").hidden = what !== "books";
  $("login").hidden = what !== "login";
}

function leave(message = "") {
  asked++;
  sessionStorage.removeItem("key");
  books = null;
  knownTenants = new Set();
  $("tenant").replaceChildren(new Option("all", ""));
  $("key-error").textContent = message;
  show("login");
  $("key").focus();
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value.trim());
  $("key").value = "";
  $("key-error").textContent = "";
  load();
});
$("leave").addEventListener("click", () => leave());
$("tenant").addEventListener("change", load);
$("since").addEventListener("change", load);
addEventListener("resize", draw);
addEventListener("scroll", () => { $("tip").hidden = true; }, { passive: true });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") $("tip").hidden = true; });
setInterval(() => {
  const reading = document.activeElement.closest("svg"); // a redraw would take the focus away
  if (sessionStorage.getItem("key") && document.visibilityState === "visible" && !reading) load();
}, REFRESH_MS);
legend($("money-legend"), SPENT.map(([, kind, label]) => [kind, label]));
legend($("request-legend"), [["cache", "From the cache"], ["other", "From a model"]]);
$("tenant").replaceChildren(new Option("all", ""));
if (sessionStorage.getItem("key")) load(); else show("login");
