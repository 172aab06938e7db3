// A message by its id, by a key, or by the time when it was stored.

import { h } from "/page/dom.js";
import * as f from "/page/format.js";
import { life } from "/page/life.js";
import { empty, facts, link, tone } from "/page/parts.js";

const WAYS = [["key", "by key"], ["id", "by id"], ["time", "by time"]];
const local = (ms) => { const at = new Date(ms - new Date(ms).getTimezoneOffset() * 60e3); return at.toISOString().slice(0, 16); };

export function questions(form) {
  const value = (name) => form.elements[name]?.value.trim() ?? "";
  const at = (name) => (value(name) ? new Date(value(name)).getTime() : "");
  const by = form.querySelector("[name=by]:checked").value;
  return { by, topic: value("topic"), value: value("value"), from: by === "time" ? at("from") : "", to: by === "time" ? at("to") : "" };
}

const field = (label, name, attributes, hint) => h("label", { class: "field" }, h("span", {}, label), h("input", { name, autocomplete: "off", spellcheck: "false", ...attributes }), hint ? h("small", { class: "muted" }, hint) : null);

export function form(state, view) {
  const by = state.by || "key";
  return h("form", { id: "search", class: "card form", role: "search", "data-key": `form-${by}` },
    h("fieldset", {}, h("legend", {}, "Look for a message"), h("div", { class: "ways" }, WAYS.map(([key, text]) => h("label", {}, h("input", { type: "radio", name: "by", value: key, checked: key === by }), h("span", {}, text))))),
    h("div", { class: "fields" },
      field("Topic", "topic", { value: state.topic || "", required: by !== "id" }, by === "id" ? "not needed for an offsetMsgId" : null),
      by === "time" ? [field("Stored since", "from", { type: "datetime-local", value: local(state.from ? Number(state.from) : view.now_ms - 3600e3), required: true }), field("Until", "to", { type: "datetime-local", value: local(state.to ? Number(state.to) : view.now_ms + 60e3), required: true })]
        : field(by === "id" ? "Message id" : "Key", "value", { value: state.value || "", required: true }),
      h("button", { type: "submit", class: "main" }, "Search")));
}

// A whole JSON body with line breaks; another body as it is.
export function pretty(item) {
  if (item.body_kind !== "text" || !/^\s*[[{]/.test(item.body)) return item.body;
  try {
    return unlessRounded(item.body, JSON.stringify(JSON.parse(item.body), null, 2));
  } catch {
    return item.body; // no JSON, or only the beginning of one
  }
}

// JSON.parse rounds long numbers and drops repeated names: then the body is shown as it is.
const unlessRounded = (body, text) => (body.replace(/\s/g, "") === text.replace(/\s/g, "") ? text : body);

function message(item, told, now) {
  const properties = Object.entries(item.properties).filter(([name]) => !["TAGS", "KEYS"].includes(name));
  return h("article", { class: "card message", "data-key": item.place_id },
    h("header", {}, h("h2", {}, h("code", {}, item.id)), h("time", { class: "muted", title: f.moment(item.stored_ms), datetime: new Date(item.stored_ms).toISOString() }, f.ago(item.stored_ms, now))),
    facts([["Topic", link("topic", item.topic)], ["Queue", `${item.queue_id} at ${f.count(item.queue_offset)}`], item.tags ? ["Tags", item.tags] : null, item.keys ? ["Keys", item.keys] : null,
      ["Stored", f.moment(item.stored_ms)], ["Born", `${f.moment(item.born_ms)} at ${item.born_host}`], ["Size", f.bytes(item.size)], item.reconsumed ? ["Given back", `${item.reconsumed} times`] : null, ["Place", h("code", {}, item.place_id)]]),
    h("h3", {}, "Its life"), told ? life(told) : h("button", { type: "button", "data-life": item.place_id }, "Look for its traces, retries and groups"),
    h("h3", {}, "Body", h("span", { class: "muted" }, ` ${f.bytes(item.body_size)}${item.body_kind === "text" ? "" : `, ${item.body_kind}`}`)),
    h("pre", { tabindex: "0" }, pretty(item) || "(empty)"),
    properties.length ? h("details", {}, h("summary", {}, `${properties.length} properties`), facts(properties)) : null);
}

export function results(state, view) {
  if (state.fault) return h("p", { class: "fault", role: "alert" }, tone("error", state.fault));
  if (state.isAsking) return h("p", { class: "wait" }, "Looking…");
  if (!state.answer) return empty("Nothing was searched yet", "A key or an id is found by the index; by time, the queues are read from the first message on. “Passed” means that the group’s offset is beyond the message.");
  const { answer: { found, note }, lives } = state;
  return [h("p", { class: "muted", role: "status" }, `${found.length} found: ${note}.`), found.length ? found.map((item) => message(item, lives?.[item.place_id], view.now_ms)) : empty("No such message", "The message may be on another broker, or deleted by now.")];
}

export const search = (state, view) => [h("h1", { class: "hidden" }, "Search"), form(state, view), h("div", { id: "results" }, results(state, view))];
