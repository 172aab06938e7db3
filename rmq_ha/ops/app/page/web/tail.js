// The messages of a topic as they come. Nobody is asked while the page is hidden or the tail paused.

import { Away, NoEntry, ask } from "/page/api.js";
import { h } from "/page/dom.js";
import * as f from "/page/format.js";
import { empty, link, tone } from "/page/parts.js";
import { pretty } from "/page/search.js";

const EVERY_MS = 2000, MOST_KEPT = 200, FILTERS = ["tag", "key", "text"];

// Begins anew: another filter, or nothing shown yet.
export function begin(state, form) {
  for (const name of FILTERS) state[name] = form?.elements[name]?.value.trim() ?? state[name] ?? "";
  Object.assign(state, { cursor: "", messages: [], looked: 0, skipped: 0, since: Date.now(), paused: false, fault: "", turn: (state.turn || 0) + 1 });
}

async function step(state) {
  const { turn } = state;
  let answer;
  try {
    answer = await ask("tail", { topic: state.name, cursor: state.cursor, tag: state.tag, key: state.key, text: state.text });
  } catch (error) {
    if (turn === state.turn) state.fault = error instanceof Away ? "the server does not answer; this page keeps asking" : error.message;
    return error instanceof Away || error instanceof NoEntry;
  }
  if (turn !== state.turn) return true;
  state.looked += answer.looked;
  state.skipped += answer.skipped;
  state.messages = [...answer.messages.reverse(), ...state.messages].slice(0, MOST_KEPT);
  Object.assign(state, { cursor: answer.cursor, left: answer.left_out, fault: "" });
  return true;
}

// current: returns the state of the tail that is shown, or null; draw: draws it.
export function follower(current, draw) {
  let timer = 0, isAsking = false;
  return async function go() {
    clearTimeout(timer);
    const state = current();
    if (!state?.name || state.paused || isAsking) return;
    if (state.cursor === undefined) begin(state);
    isAsking = true;
    const goesOn = await step(state);
    isAsking = false;
    if (current()) draw();
    if (current() && (goesOn || current() !== state)) timer = setTimeout(go, EVERY_MS);
  };
}

const field = (label, name, value, more) => h("label", { class: "field" }, h("span", {}, label), h("input", { name, value: value || "", autocomplete: "off", spellcheck: "false", ...more }));

const form = (state) => h("form", { id: "tail", class: "card form", "data-key": `tail-${state.name}` }, h("div", { class: "fields" },
  field("Topic", "topic", state.name, { required: true }), field("Tag", "tag", state.tag), field("Key or id", "key", state.key), field("Text in the body", "text", state.text),
  h("button", { type: "submit", class: "main" }, "Follow")));

function row(item) {
  const line = item.body.replace(/\s+/g, " ").slice(0, 200) || "(empty)";
  const rest = item.body_size > item.body.length && item.body_kind === "text";
  return h("li", { "data-key": item.place_id }, h("details", {},
    h("summary", {}, h("time", { datetime: new Date(item.stored_ms).toISOString() }, f.clock(item.stored_ms, true)),
      h("span", { class: "place muted" }, `queue ${item.queue_id} at ${f.count(item.queue_offset)}`),
      item.tags ? h("span", { class: "chip" }, item.tags) : null, item.keys ? h("span", { class: "keys-of" }, item.keys) : null,
      h("code", {}, line)),
    h("pre", { tabindex: "0" }, pretty(item) || "(empty)"),
    h("p", { class: "muted" }, `${f.bytes(item.body_size)}${item.body_kind === "text" ? "" : `, ${item.body_kind}`}${rest ? "; its beginning is shown" : ""} · `,
      h("a", { href: `#/search?by=id&value=${f.inUrl(item.place_id)}` }, "the whole message and its life"))));
}

function told(state) {
  const { messages, looked, skipped, left } = state;
  const parts = [`${f.count(messages.length)} shown of ${f.count(looked)} that were looked at`];
  if (skipped) parts.push(`${f.count(skipped)} left out, since more came than a browser can show`);
  if (left) parts.push(`${f.count(left)} queues of the topic are not followed`);
  return parts.join("; ");
}

export function tail(state) {
  if (!state.name) return [h("h1", { class: "hidden" }, "Live tail"), form(state), empty("No topic is followed yet", "Name a topic. Nobody else notices: no group is joined, and no offset is committed.")];
  const { messages = [], paused } = state;
  return [h("h1", { class: "name" }, "Live tail of ", link("topic", state.name)), form(state),
    h("div", { class: "section" }, h("p", { class: "muted", role: "status", "aria-live": "off" }, state.messages ? told(state) : "Asking the server…"),
      h("button", { type: "button", id: "pause", "aria-pressed": String(Boolean(paused)) }, paused ? "Go on" : "Pause")),
    state.fault ? h("p", { class: "fault", role: "alert" }, tone("error", state.fault)) : null,
    messages.length ? h("ol", { class: "tail", "aria-label": "Messages, the newest first" }, messages.map(row))
      : empty("No message yet", `Messages that come from now on appear here${FILTERS.some((name) => state[name]) ? ", if the filter lets them through" : ""}.`)];
}
