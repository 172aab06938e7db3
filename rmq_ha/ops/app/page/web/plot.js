// Plots of the last hours: lines in SVG, labels in HTML, a cursor for pointer and arrow keys.

import { h, s } from "/page/dom.js";
import { clock, date } from "/page/format.js";

const NICE = [1, 2, 2.5, 5, 10];
export const SPANS = { 1: ["1h", "1 h", "the last hour"], 12: ["12h", "12 h", "the last 12 hours"], 168: ["7d", "7 d", "the last 7 days"], 720: ["30d", "30 d", "the last 30 days"] };
const STEPS_S = { 10: "points of 10 s", 60: "points of a minute", 900: "points of 15 min", 3600: "points of an hour" };
export const noHistory = () => ({ step_s: 10, at_ms: [], series: {} });

export function top(values, least) {
  const most = Math.max(least, ...values.filter((value) => value !== null && value !== undefined));
  const power = 10 ** Math.floor(Math.log10(most));
  return power * NICE.find((step) => step * power >= most * 0.999);
}

function path(times, values, from, to, high, step) {
  let text = "", last = null;
  values.forEach((value, i) => {
    if (value === null || value === undefined || times[i] < from) { last = null; return; }
    const x = (100 * (times[i] - from)) / (to - from), y = 100 - (100 * Math.min(value, high)) / high;
    text += `${last !== null && times[i] - last < 4 * step ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`;
    last = times[i];
  });
  return text;
}

function area(times, values, from, to, high, step) {
  const line = path(times, values, from, to, high, step);
  if (!line) return "";
  return line.split("M").filter(Boolean).map((part) => {
    const xs = part.split("L").map((point) => point.split(" ")[0]);
    return `M${part}L${xs.at(-1)} 100L${xs[0]} 100Z`;
  }).join("");
}

// lines: [{ name, key, className }], unit: a function from number to text
export function plot({ id, title, note, lines, history, hours, unit, least = 1 }) {
  const times = history.at_ms, series = lines.map((line) => history.series[line.key] || []);
  const to = times.at(-1) || Date.now(), from = to - hours * 3600e3, step = history.step_s * 1000;
  const seen = series.map((values) => values.filter((_, i) => times[i] >= from));
  const all = seen.flat(), high = top(all, least);
  const isEmpty = !all.some((value) => value !== null && value !== undefined);
  const now = series.map((values) => values.at(-1));
  const told = lines.map((line, i) => `${line.name}: now ${unit(now[i])}, at most ${unit(Math.max(0, ...seen[i].map((value) => value ?? 0)))}`).join("; ");
  const marks = [0, 1, 2, 3, 4].map((part) => from + ((to - from) * part) / 4), mark = hours > 24 ? date : clock;
  return h("figure", { class: "card plot", "data-key": id },
    h("figcaption", {}, h("h3", {}, title), h("span", { class: "muted" }, note || "")),
    h("ul", { class: "legend" }, lines.map((line, i) => h("li", {},
      h("i", { class: `key ${line.className}`, "aria-hidden": "true" }), h("span", {}, line.name), h("b", { class: "value", "data-line": i }, unit(now[i]))))),
    h("div", { class: "chart", tabindex: isEmpty ? null : "0", role: "img", "aria-label": `${title}, ${SPANS[hours][2]}, ${STEPS_S[history.step_s]}. ${isEmpty ? "Nothing was measured yet." : told}`,
      data: { times, series, from, to, unit, high, hours } },
      s("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" },
        [25, 50, 75].map((y) => s("path", { class: "grid", d: `M0 ${y}H100` })), s("path", { class: "base", d: "M0 100H100" }),
        lines.map((line, i) => (line.fill === false ? null : s("path", { class: `fill ${line.className}`, d: area(times, series[i], from, to, high, step) }))),
        lines.map((line, i) => s("path", { class: `line ${line.className}`, d: path(times, series[i], from, to, high, step) }))),
      h("span", { class: "y high" }, isEmpty ? "" : unit(high)), h("span", { class: "y half" }, isEmpty ? "" : unit(high / 2)),
      isEmpty ? h("p", { class: "none" }, "Nothing was measured yet") : h("i", { class: "cursor", hidden: true }), isEmpty ? null : h("span", { class: "when", hidden: true })),
    h("div", { class: "x", "aria-hidden": "true" }, marks.map((at) => h("span", {}, mark(at)))));
}

export function spark(values, className) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return h("span", { class: "spark" });
  const high = Math.max(...known) || 1, first = Math.max(0, values.length - 60), shown = values.slice(first);
  const points = shown.map((value, i) => (value === null ? null : `${((100 * i) / Math.max(1, shown.length - 1)).toFixed(1)} ${(29 - (27 * value) / high).toFixed(1)}`)).filter(Boolean);
  return s("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { class: `fill ${className}`, d: `M${points.join("L")}L${points.at(-1).split(" ")[0]} 30L${points[0].split(" ")[0]} 30Z` }),
    s("path", { class: `line ${className}`, d: `M${points.join("L")}` }));
}

function move(chart, share) {
  const { times, series, from, to, unit, hours } = chart.page;
  const wanted = from + share * (to - from);
  let best = -1;
  times.forEach((at, i) => { if (at >= from && (best < 0 || Math.abs(at - wanted) < Math.abs(times[best] - wanted))) best = i; });
  if (best < 0) return;
  chart.place = best;
  const x = (100 * (times[best] - from)) / (to - from);
  const cursor = chart.querySelector(".cursor"), when = chart.querySelector(".when");
  cursor.hidden = when.hidden = false;
  cursor.style.left = `${x}%`;
  when.style.left = `${Math.min(88, Math.max(12, x))}%`;
  const values = series.map((line) => unit(line[best]));
  when.textContent = `${hours > 24 ? `${date(times[best])} ${clock(times[best])}` : clock(times[best], true)} · ${values.join(" · ")}`;
}

function rest(chart) {
  chart.querySelectorAll(".cursor, .when").forEach((node) => { node.hidden = true; });
}

export function listen(root) {
  root.addEventListener("pointermove", (event) => {
    const chart = event.target.closest?.(".chart[tabindex]");
    if (!chart) return;
    const box = chart.getBoundingClientRect();
    move(chart, (event.clientX - box.left) / box.width);
  });
  root.addEventListener("pointerout", (event) => {
    const chart = event.target.closest?.(".chart[tabindex]");
    if (chart && !chart.contains(event.relatedTarget)) rest(chart);
  });
  root.addEventListener("keydown", (event) => {
    const chart = event.target.closest?.(".chart[tabindex]");
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!chart || !step) return;
    event.preventDefault();
    const { times, from, to } = chart.page;
    const place = Math.min(times.length - 1, Math.max(0, (chart.place ?? times.length - 1) + step));
    move(chart, (times[place] - from) / (to - from));
  });
  root.addEventListener("focusout", (event) => { if (event.target.matches?.(".chart")) rest(event.target); });
}
