// Topics, groups, clients, dead letters and events.

import { h } from "/page/dom.js";
import * as f from "/page/format.js";
import { eventList } from "/page/overview.js";
import { card, empty, link, table, tone } from "/page/parts.js";
import { spark } from "/page/plot.js";

const PERMS = { 6: "read, write", 4: "read only", 2: "write only", 0: "closed", 7: "read, write" };

function head(title, state, placeholder, answer, more) {
  return h("div", { class: "list-head" }, h("h1", {}, title),
    placeholder ? h("label", { class: "find" }, h("span", { class: "hidden" }, placeholder), h("input", { type: "search", id: "find", placeholder, autocomplete: "off", spellcheck: "false", value: state.text || "" })) : null,
    more, answer ? h("span", { class: "muted count" }, answer.rows.length < answer.total ? `${f.count(answer.rows.length)} of ${f.count(answer.total)}` : f.count(answer.total)) : null);
}

const choice = (name, label, options, value) => h("label", { class: "pick" }, h("span", { class: "hidden" }, label),
  h("select", { "data-choice": name }, options.map(([key, text]) => h("option", { value: key, selected: key === value }, text))));

const nothing = (state, title, hint) => (state.text ? empty(`Nothing has “${state.text}” in it`, "Press Escape in the field to see all.") : empty(title, hint));

export const topics = {
  ask: (state) => ["topics", { text: state.text, kind: state.kind || "", sort: state.sort || "put_rate", limit: 200 }],
  draw: (answer, state) => [
    head("Topics", state, "Find a topic", answer, choice("kind", "Kind of topic", [["", "all kinds"], ["normal", "of users"], ["retry", "retry"], ["dlq", "dead letters"], ["system", "RocketMQ's own"]], state.kind || "")),
    table({ label: "Topics", rows: answer.rows, sort: state.sort || "put_rate", none: nothing(state, "No topic yet", "rmqha-admin topic create NAME makes one; producers do, too, with autoCreateTopicEnable."), columns: [
      { title: "Topic", sort: "name", wide: true, of: (row) => link("topic", row.name) },
      { title: "Kind", of: (row) => row.kind },
      { title: "Message type", of: (row) => row.message_type },
      { title: "Queues", sort: "queues", number: true, of: (row) => f.count(row.queues) },
      { title: "In", sort: "put_rate", number: true, of: (row) => f.rate(row.put_rate) },
      { title: "Bytes in", sort: "put_bytes", number: true, of: (row) => f.byteRate(row.put_bytes) },
      { title: "Messages", sort: "messages", number: true, of: (row) => f.count(row.messages) },
      { title: "Clients may", of: (row) => PERMS[row.perm] ?? `perm ${row.perm}` }] })],
};

export const groups = {
  ask: (state) => ["groups", { text: state.text, sort: state.sort || "lag", limit: 200 }],
  draw: (answer, state, view, history) => [
    head("Consumer groups", state, "Find a group", answer),
    table({ label: "Consumer groups", rows: answer.rows, sort: state.sort || "lag", none: nothing(state, "No group yet", "A group appears when its first consumer connects."), columns: [
      { title: "Group", sort: "name", wide: true, of: (row) => link("group", row.name) },
      { title: "Members", sort: "members", number: true, of: (row) => (row.members ? f.count(row.members) : tone(row.lag ? "warn" : "idle", "none")) },
      { title: "Lag", sort: "lag", number: true, of: (row) => h("b", { class: row.lag ? "much" : null }, f.count(row.lag)) },
      { title: "Last hour", of: (row) => spark(history.series[`group:${row.name}`] || [], "e") },
      { title: "Out", sort: "get_rate", number: true, of: (row) => f.rate(row.get_rate) },
      { title: "Retrying", sort: "retrying", number: true, of: (row) => f.count(row.retrying) },
      { title: "Dead", sort: "dead", number: true, of: (row) => (row.dead ? link("topic", `%DLQ%${row.name}`, f.count(row.dead)) : "0") },
      { title: "Model", of: (row) => f.words(row.model) || "–" }] })],
};

export const clients = {
  ask: (state) => ["clients", { text: state.text, limit: 300 }],
  draw: (answer, state, view) => [
    head("Clients", state, "Find a client, address or group", answer),
    answer.kinds.length ? card("In all", null, table({ label: "Kinds of clients", rows: answer.kinds, columns: [
      { title: "Protocol", of: (kind) => kind.protocol }, { title: "Language", of: (kind) => f.words(kind.language) },
      { title: "Version", wide: true, of: (kind) => kind.version }, { title: "Clients", number: true, of: (kind) => f.count(kind.count) }] })) : null,
    table({ label: "Clients", rows: answer.rows, none: nothing(state, "Nobody is connected", "Producers and consumers appear with their first heartbeat."), columns: [
      { title: "Client", wide: true, of: (row) => h("code", {}, row.client_id) },
      { title: "Group", wide: true, of: (row) => (row.kind === "consumer" ? link("group", row.group) : row.group) },
      { title: "Does", of: (row) => row.kind },
      { title: "Address", of: (row) => h("code", {}, row.address) },
      { title: "Language", of: (row) => f.words(row.language) },
      { title: "Version", of: (row) => row.version },
      { title: "Protocol", of: (row) => row.protocol },
      { title: "Heartbeat", number: true, of: (row) => f.ago(row.seen_ms, view.now_ms) }] })],
};

export const dead = {
  ask: (state) => ["topics", { text: state.text, kind: "dlq", sort: state.sort || "messages", limit: 200 }],
  draw: (answer, state) => [
    head("Dead letters", state, "Find a group", answer),
    table({ label: "Dead letter queues", rows: answer.rows, sort: state.sort || "messages", none: nothing(state, "No dead letters", "A message comes here when a group has given up on it (maxReconsumeTimes)."), columns: [
      { title: "Group", sort: "name", wide: true, of: (row) => link("group", row.name.slice(5)) },
      { title: "Messages", sort: "messages", number: true, of: (row) => h("b", { class: row.messages ? "much" : null }, f.count(row.messages)) },
      { title: "In the last minute", sort: "put_rate", number: true, of: (row) => f.rate(row.put_rate) },
      { title: "Ever", sort: "total", number: true, of: (row) => f.count(row.total) },
      { title: "", of: (row) => h("a", { href: `#/search?by=time&topic=${f.inUrl(row.name)}` }, "look inside", h("span", { class: "hidden" }, ` ${row.name}`)) }] })],
};

const KINDS = [["", "all kinds"], ["role", "roles"], ["replication", "replication"], ["registration", "registration"], ["refusal", "refusals"], ["change", "changes"], ["health", "health"], ["log", "log"]];

export function events(all, state, view) {
  const text = (state.text || "").toLowerCase();
  const shown = all.filter((event) => (!state.kind || event.kind === state.kind) && event.text.toLowerCase().includes(text));
  return [
    head("What happened", state, "Find an event", { rows: shown, total: shown.length }, choice("kind", "Kind of event", KINDS, state.kind || "")),
    h("p", { class: "muted" }, "The last 500 events since this server was started; the log has all of them."),
    shown.length ? eventList(shown, view.now_ms) : nothing(state, "Nothing of this kind", ""),
  ];
}
