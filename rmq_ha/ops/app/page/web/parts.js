// Pieces that several views are made of.

import { h, s } from "/page/dom.js";
import { inUrl } from "/page/format.js";

const SIGNS = { good: "●", warn: "▲", error: "■", idle: "○", info: "○" };

export const tone = (kind, ...text) => h("span", { class: `tone ${kind}` }, h("i", { "aria-hidden": "true" }, SIGNS[kind] || "○"), h("span", {}, text));
export const link = (kind, name, text) => h("a", { href: `#/${kind}/${inUrl(name)}` }, text ?? name);
export const card = (title, note, ...children) => h("section", { class: "card" }, h("header", {}, h("h2", {}, title), note ? h("span", { class: "muted" }, note) : null), children);
export const empty = (title, hint) => h("div", { class: "empty" }, h("b", {}, title), hint ? h("p", {}, hint) : null);

export function bar(share, kind, label) {
  const width = Math.max(0, Math.min(100, 100 * share));
  return s("svg", { class: `bar ${kind}`, viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: "track", width: 100, height: 6 }), s("rect", { class: "level", width: width ? Math.max(1, width) : 0, height: 6 }));
}

// columns: [{ title, of, sort, number, wide }]; a table becomes a list of cards on a phone.
export function table({ label, columns, rows, sort, none }) {
  if (!rows.length) return none;
  return h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.number ? "number" : null,
      "aria-sort": column.sort && column.sort === sort ? (column.number ? "descending" : "ascending") : null },
    column.sort ? h("button", { type: "button", "data-sort": column.sort }, column.title) : column.title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((column, i) => h(i ? "td" : "th", {
      scope: i ? null : "row", class: [column.number ? "number" : "", column.wide ? "wide" : ""].join(" ").trim() || null, "data-title": column.title }, column.of(row))))))));
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, ...value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
