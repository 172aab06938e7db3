// The frame: what is shown, when it is asked for, keys, light and dark.

import { Away, NoEntry, ask, enter, leave } from "/page/api.js";
import { h, show } from "/page/dom.js";
import * as f from "/page/format.js";
import * as lists from "/page/lists.js";
import { overview } from "/page/overview.js";
import { tone } from "/page/parts.js";
import { SPANS, listen, noHistory } from "/page/plot.js";
import { questions, search } from "/page/search.js";
import * as sheets from "/page/sheets.js";
import { begin, follower, tail } from "/page/tail.js";
import { waiting } from "/page/waiting.js";

const SECTIONS = [["overview", "Overview", "o"], ["topics", "Topics", "t"], ["groups", "Groups", "g"], ["clients", "Clients", "c"], ["waiting", "Waiting", "w"], ["dead", "Dead letters", "l"], ["events", "Events", "e"], ["search", "Search", "s"], ["tail", "Live tail", "f"]];
const EVERYWHERE = new Set(["overview", "events"]);
const ASKED = { topics: lists.topics, groups: lists.groups, clients: lists.clients, dead: lists.dead, waiting, topic: sheets.topic, group: sheets.group };
const PARENT = { topic: "topics", group: "groups" };
const EVERY_MS = 5000, HISTORY_MS = 10000, SLOWEST_MS = 20000;

const place = (id) => document.getElementById(id);
const main = place("main");
const page = { view: null, events: [], hours: 1, states: {}, answers: {}, failures: 0, answeredAt: 0, historyAt: 0, groupsAt: 0, isIn: true,
  history: Object.fromEntries(Object.keys(SPANS).map((hours) => [hours, noHistory()])), groups: noHistory() };

function where() {
  const [path, query] = (location.hash.slice(2) || "overview").split("?");
  const [name, ...rest] = path.split("/");
  let item = "";
  try { item = decodeURIComponent(rest.join("/")); } catch { item = rest.join("/"); }
  return { name: ASKED[name] || EVERYWHERE.has(name) || name === "search" || name === "tail" ? name : "overview", item, query: new URLSearchParams(query || "") };
}

function state() {
  const { name, item } = where();
  const key = `${name}/${item}`;
  page.states[key] ??= { name: item };
  return page.states[key];
}

// ------------------------------------------------------------ asking

function grow(kept, more, hours) {
  const first = (more.at_ms.at(-1) ?? kept.at_ms.at(-1) ?? 0) - hours * 3600e3 - 60e3;
  const skipped = kept.at_ms.findIndex((at) => at > first), from = skipped < 0 ? kept.at_ms.length : skipped;
  const length = kept.at_ms.length - from, series = {};
  for (const name of new Set([...Object.keys(kept.series), ...Object.keys(more.series)])) {
    const before = kept.series[name] ? kept.series[name].slice(from) : Array(length).fill(null);
    series[name] = [...before, ...(more.series[name] || Array(more.at_ms.length).fill(null))];
  }
  return { step_s: more.step_s, at_ms: [...kept.at_ms.slice(from), ...more.at_ms], series };
}

async function refreshHistory(name) {
  const isDue = (at) => Date.now() - at >= HISTORY_MS - 500;
  if (isDue(page.historyAt)) {
    page.historyAt = Date.now();
    const kept = page.history[page.hours];
    page.history[page.hours] = grow(kept, await ask("history", { span: SPANS[page.hours][0], since: kept.at_ms.at(-1) || 0 }), page.hours);
  }
  if ((name === "groups" || name === "group") && isDue(page.groupsAt)) {
    page.groupsAt = Date.now();
    const last = page.groups;
    page.groups = grow(last, await ask("history", { of: "groups", since: last.at_ms.at(-1) || 0 }), 1);
  }
}

async function refresh() {
  const { name } = where(), now = state();
  const view = await ask("overview");
  if (page.view && view.started_ms !== page.view.started_ms) forget();
  page.view = view;
  if (view.last_event !== (page.events[0]?.number ?? 0)) {
    const more = await ask("events", { since: page.events[0]?.number ?? 0 });
    const again = new Set(more.events.map((event) => `${event.kind} ${event.text}`));
    const kept = page.events.filter((event) => !(again.has(`${event.kind} ${event.text}`) && view.now_ms - event.at_ms < 240e3));
    page.events = [...more.events, ...kept].slice(0, 500);
  }
  if (!EVERYWHERE.has(name) || name === "overview") await refreshHistory(name);
  if (ASKED[name]) {
    const [question, values] = ASKED[name].ask(now);
    try {
      now.answer = await ask(question, values);
      now.fault = "";
    } catch (error) {
      if (error instanceof Away || error instanceof NoEntry) throw error;
      now.fault = error.message;
    }
  }
  page.who ??= (await ask("session")).who;
  page.failures = 0;
  page.answeredAt = Date.now();
}

// Another life of the server has another past.
function forget() {
  page.events = [];
  page.historyAt = page.groupsAt = 0;
  for (const hours of Object.keys(SPANS)) page.history[hours] = noHistory();
  page.groups = noHistory();
}

let timer = 0, isAsking = false, isWanted = false;

async function turn() {
  clearTimeout(timer);
  if (document.visibilityState === "hidden") return;
  if (isAsking) { isWanted = true; return; }
  isAsking = true;
  try {
    await refresh();
    page.isIn = true;
  } catch (error) {
    if (error instanceof NoEntry) page.isIn = false; else page.failures += 1;
  }
  isAsking = false;
  draw();
  timer = setTimeout(turn, isWanted ? 0 : page.isIn ? Math.min(SLOWEST_MS, EVERY_MS * Math.max(1, page.failures)) : 3600e3);
  isWanted = false;
}

// ------------------------------------------------------------ drawing

function drawHead() {
  const { view } = page, { name } = where(), shown = PARENT[name] || name;
  const isBroker = !view || view.server === "broker";
  show(place("nav"), h("ul", {}, SECTIONS.filter(([key]) => isBroker || EVERYWHERE.has(key)).map(([key, text, letter]) =>
    h("li", {}, h("a", { href: `#/${key}`, "aria-current": key === shown ? "page" : null, title: `${text} (g ${letter})` }, text,
      key === "dead" && view?.numbers.dead ? h("b", { class: "bubble" }, f.short(view.numbers.dead)) : null)))));
  if (!view) return;
  show(place("who"), h("strong", {}, view.name), h("span", {}, [view.cluster, f.words(view.role)].filter(Boolean).join(" · ")),
    tone(view.is_ready ? "good" : "error", view.is_ready ? "ready" : "not ready"));
  document.title = `${view.is_ready ? "" : "! "}${view.name} · ${f.words(view.role)}`;
}

function drawBanner() {
  const banner = place("banner"), isAway = page.failures > 1 || (page.failures && !page.view);
  banner.hidden = !isAway;
  main.classList.toggle("stale", Boolean(isAway && page.view));
  if (isAway) {
    show(banner, h("b", {}, page.view ? `${page.view.name} does not answer` : "The server does not answer"),
      h("span", {}, page.view ? ` What is below is from ${f.clock(page.answeredAt, true)}. This page keeps asking.` : " This page keeps asking."),
      h("button", { type: "button", "data-action": "again" }, "Ask now"));
  }
}

function drawFresh() {
  const age = page.answeredAt ? Math.round((Date.now() - page.answeredAt) / 1000) : null;
  place("fresh").textContent = age === null ? "" : age < 8 ? "live" : `${f.span(age)} old`;
  place("fresh").className = age !== null && age < 8 ? "live" : "old";
}

function draw() {
  drawHead();
  drawBanner();
  drawFresh();
  place("leave").hidden = !page.who;
  if (!page.isIn) { drawEntry(); return; }
  if (!page.view) {
    if (page.failures) show(main, h("div", { class: "wait" }, "No answer of the server has come yet."));
    return;
  }
  main.removeAttribute("aria-busy");
  const { name } = where(), now = state(), { view } = page;
  if (name === "overview") show(main, overview(view, page.history[page.hours], page.events, page.hours));
  else if (name === "events") show(main, lists.events(page.events, now, view));
  else if (name === "search") show(main, search(now, view));
  else if (name === "tail") show(main, tail(now));
  else if (now.fault) show(main, h("p", { class: "fault", role: "alert" }, tone("error", now.fault)));
  else if (now.answer) show(main, ASKED[name].draw(now.answer, now, view, page.groups));
  else show(main, h("div", { class: "wait" }, "Asking the server…"));
}

// ------------------------------------------------------------ who looks

async function drawEntry() {
  if (place("entry")) return;
  const session = await ask("session").catch((error) => ({ fault: error.message, ways: [] }));
  const has = (way) => session.ways.includes(way);
  show(main, h("form", { id: "entry", class: "card entry" }, h("h1", {}, "Who are you?"),
    session.ways.length ? h("p", { class: "muted" }, "The browser signs a challenge with the text that you type, and does not send the text.") : h("p", {}, session.fault || "Nobody can look at this page: neither pageToken nor aclEnable=true is set."),
    has("account") ? h("label", { class: "field" }, h("span", {}, has("token") ? "Access key (empty: with the token)" : "Access key of an administrator"), h("input", { name: "account", autocomplete: "username", spellcheck: "false" })) : null,
    session.ways.length ? [h("label", { class: "field" }, h("span", {}, has("account") ? (has("token") ? "Secret key, or token" : "Secret key") : "Token (pageToken)"), h("input", { name: "secret", type: "password", autocomplete: "current-password", required: true })),
      h("button", { type: "submit", class: "main" }, "Look"), h("p", { id: "entry-fault", class: "fault", role: "alert" })] : null));
  main.querySelector("input")?.focus();
}

async function onEntry(form) {
  const value = (name) => form.elements[name]?.value ?? "";
  try {
    const session = await enter(value("account").trim(), value("secret"));
    page.who = session.who;
    page.isIn = true;
    place("entry").id = "";
    turn().then(follow);
  } catch (error) {
    place("entry-fault").textContent = error.message;
  }
}

// ------------------------------------------------------------ what people do

const THEMES = ["auto", "light", "dark"];
function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
  place("theme").textContent = { auto: "Auto", light: "Light", dark: "Dark" }[name];
  place("theme").setAttribute("aria-label", `Theme: ${name}. Press for the next one`);
  try { localStorage.setItem("rmqha-theme", name); } catch { /* a browser may keep nothing */ }
}
function theme() { try { return localStorage.getItem("rmqha-theme") || "auto"; } catch { return "auto"; } }
const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % 3]);

function help() {
  const dialog = place("help");
  if (dialog.open) { dialog.close(); return; }
  const keys = [...SECTIONS.map(([, text, letter]) => [`g ${letter}`, text]), ["/", "Find in the list"], ["←  →", "Move in a plot that has the focus"], ["d", "Auto, light or dark"], ["r", "Ask now"], ["?", "This sheet"], ["Esc", "Close, or empty the field"]];
  show(dialog, h("h2", { id: "help-title" }, "Keyboard"), h("dl", { class: "keys" }, keys.map(([key, text]) => h("div", {}, h("dt", {}, key.split(" ").filter(Boolean).map((part) => h("kbd", {}, part))), h("dd", {}, text)))),
    h("form", { method: "dialog" }, h("button", { type: "submit", class: "main" }, "Close")));
  dialog.showModal();
}

let pending = 0;
const soon = () => { clearTimeout(pending); pending = setTimeout(turn, 200); };

document.addEventListener("input", (event) => {
  if (event.target.id === "find") { state().text = event.target.value.trim(); if (where().name === "events") draw(); else soon(); }
});
document.addEventListener("change", (event) => {
  const { target } = event;
  if (target.dataset.choice) { state()[target.dataset.choice] = target.value; if (where().name === "events") draw(); else turn(); }
  if (target.name === "by") { const now = state(); Object.assign(now, questions(target.form), { from: "", to: "" }); draw(); document.querySelector(`[name=by][value=${target.value}]`)?.focus(); }
});
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.method === "dialog") return;
  event.preventDefault();
  if (form.id === "entry") { await onEntry(form); return; }
  if (form.id === "tail") {
    const topic = form.elements.topic.value.trim(), place = `#/tail/${f.inUrl(topic)}`;
    page.states[`tail/${topic}`] ??= { name: topic };
    begin(page.states[`tail/${topic}`], form);
    if (location.hash === place) { draw(); follow(); } else location.hash = place;
    return;
  }
  if (form.id !== "search") return;
  await find(Object.assign(state(), questions(form)));
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.sort) { state().sort = button.dataset.sort; turn(); }
  if (button.dataset.hours) { page.hours = Number(button.dataset.hours); page.historyAt = 0; turn(); }
  if (button.dataset.action === "again") turn();
  if (button.dataset.life) askLives(state(), [button.dataset.life]);
  if (button.id === "pause") { state().paused = !state().paused; draw(); follow(); }
  if (button.id === "theme") nextTheme();
  if (button.id === "keys") help();
  if (button.id === "leave") leave().catch(() => null).then(() => { page.who = ""; page.isIn = false; page.view = null; forget(); draw(); });
});

const follow = follower(() => (where().name === "tail" && document.visibilityState !== "hidden" && page.isIn && page.view ? state() : null), draw);

async function askLives(now, places) {
  for (const place of places) {
    now.lives[place] = await ask("life", { place }).catch((error) => ({ fault: error.message, lanes: [] }));
    draw();
  }
}

async function find(now) {
  Object.assign(now, { isAsking: true, fault: "", answer: null, lives: {} });
  draw();
  try { now.answer = await ask("search", { by: now.by, topic: now.topic, value: now.value, from: now.from, to: now.to }); } catch (error) { now.fault = error.message; }
  now.isAsking = false;
  draw();
  if (now.answer) await askLives(now, now.answer.found.slice(0, 3).map((item) => item.place_id));
}

// A search that an address names.
function fromAddress() {
  const { name, query } = where();
  if (name !== "search" || !(query.get("topic") || query.get("value"))) return;
  const now = state();
  Object.assign(now, { by: query.get("by") || "key", topic: query.get("topic") || "", value: query.get("value") || "", from: "", to: "", answer: null });
  history.replaceState(null, "", "#/search");
  if (now.value) find(now);
}

let before = "";
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches?.("input, select, textarea");
  if (event.key === "Escape" && event.target.id === "find") { event.target.value = ""; state().text = ""; if (where().name === "events") draw(); else turn(); return; }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const goes = before === "g" && SECTIONS.find(([, , letter]) => letter === event.key);
  before = event.key;
  if (goes) { event.preventDefault(); location.hash = `#/${goes[0]}`; before = ""; return; }
  if (event.key === "?") help();
  else if (event.key === "d") nextTheme();
  else if (event.key === "r") turn();
  else if (event.key === "/") {
    event.preventDefault();
    const field = place("find") || document.querySelector("#search input[name=value], #search input[name=topic]");
    if (field) field.focus(); else location.hash = "#/search";
  }
});

window.addEventListener("hashchange", () => {
  const { name, item } = where();
  for (const key of Object.keys(page.states)) if (key.startsWith("tail/") && key !== `${name}/${item}`) delete page.states[key]; // only one tail keeps messages
  fromAddress();
  draw();
  turn();
  follow();
  window.scrollTo(0, 0);
  main.focus({ preventScroll: true });
});
document.addEventListener("visibilitychange", () => { turn(); follow(); });
setInterval(() => { if (document.visibilityState === "visible") drawFresh(); }, 1000);

setTheme(theme());
listen(main);
drawHead();
fromAddress();
turn().then(follow);
