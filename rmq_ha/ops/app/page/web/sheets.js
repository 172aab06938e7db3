// One topic, one group.

import { h } from "/page/dom.js";
import * as f from "/page/format.js";
import { bar, card, empty, facts, link, table } from "/page/parts.js";
import { plot } from "/page/plot.js";

const back = (to, text) => h("a", { class: "back", href: `#/${to}` }, `← ${text}`);

export const topic = {
  ask: (state) => ["topic", { name: state.name }],
  draw: (sheet, state, view) => {
    const { topic: row, queues } = sheet;
    const most = Math.max(1, ...queues.map((queue) => queue.max_offset - queue.min_offset));
    return [
      back("topics", "topics"), h("h1", { class: "name" }, row.name),
      card("In all", row.kind, facts([["Messages", f.count(row.messages)], ["Ever", f.count(row.total)], ["In", f.rate(row.put_rate)], ["Bytes in", f.byteRate(row.put_bytes)], ["Queues", f.count(row.queues)],
        ["Look inside", h("a", { href: `#/search?by=time&topic=${f.inUrl(row.name)}` }, "messages of the last hour"), " · ", link("tail", row.name, "live tail")]])),
      card("Groups that read it", null, table({ label: "Groups", rows: sheet.groups, none: empty("No group has committed an offset"), columns: [
        { title: "Group", wide: true, of: (item) => link("group", item.name) }, { title: "Members", number: true, of: (item) => f.count(item.members) },
        { title: "Lag", number: true, of: (item) => h("b", { class: item.lag ? "much" : null }, f.count(item.lag)) }] })),
      card("Queues", sheet.left_out ? `${f.count(sheet.left_out)} more are not listed` : null, table({ label: "Queues", rows: queues, none: empty("No queue"), columns: [
        { title: "Queue", of: (queue) => queue.queue_id },
        { title: "Messages", number: true, of: (queue) => f.count(queue.max_offset - queue.min_offset) },
        { title: "Share", of: (queue) => bar((queue.max_offset - queue.min_offset) / most, "good", `${f.count(queue.max_offset - queue.min_offset)} messages`) },
        { title: "From", number: true, of: (queue) => f.count(queue.min_offset) }, { title: "To", number: true, of: (queue) => f.count(queue.max_offset) },
        { title: "Last message", number: true, of: (queue) => (queue.last_ms ? f.ago(queue.last_ms, view.now_ms) : "never") }] })),
    ];
  },
};

export const group = {
  ask: (state) => ["group", { name: state.name }],
  draw: (sheet, state, view, history) => {
    const { group: row, queues } = sheet;
    const most = Math.max(1, ...queues.map((queue) => queue.lag));
    const key = `group:${row.name}`;
    return [
      back("groups", "groups"), h("h1", { class: "name" }, row.name),
      card("In all", f.words(row.model), facts([["Lag", f.count(row.lag)], ["Out", f.rate(row.get_rate)], ["Members", f.count(row.members)], ["Retrying", f.count(row.retrying)], ["Dead letters", row.dead ? link("topic", `%DLQ%${row.name}`, f.count(row.dead)) : "0"]])),
      history.series[key] ? h("div", { class: "plots one" }, plot({ id: "group-lag", title: "Lag", unit: f.short, history, hours: 1, lines: [{ name: "messages", key, className: "e" }] })) : null,
      card("Members", null, table({ label: "Members", rows: sheet.members, none: empty("Nobody is connected", row.lag ? "Messages wait; start a consumer of this group." : ""), columns: [
        { title: "Client", wide: true, of: (item) => h("code", {}, item.client_id) }, { title: "Address", of: (item) => h("code", {}, item.address) },
        { title: "Language", of: (item) => `${f.words(item.language)} ${item.version}${item.protocol === "gRPC" ? " (gRPC)" : ""}` },
        { title: "Queues", number: true, of: (item) => (item.queues === null ? "did not say" : f.count(item.queues)) },
        { title: "Lag", number: true, of: (item) => (item.lag === null ? "–" : h("b", { class: item.lag ? "much" : null }, f.count(item.lag))) }] })),
      card("Queues", sheet.left_out ? `${f.count(sheet.left_out)} more are not listed` : null, table({ label: "Queues", rows: queues, none: empty("The group has committed no offset yet"), columns: [
        { title: "Topic", wide: true, of: (queue) => link("topic", queue.topic) }, { title: "Queue", number: true, of: (queue) => queue.queue_id },
        { title: "Lag", number: true, of: (queue) => h("b", { class: queue.lag ? "much" : null }, f.count(queue.lag)) },
        { title: "", of: (queue) => bar(queue.lag / most, queue.lag ? "warn" : "good", `lag ${f.count(queue.lag)}`) },
        { title: "In flight", number: true, of: (queue) => (queue.in_flight === null ? "–" : f.count(queue.in_flight)) },
        { title: "Behind", number: true, of: (queue) => (queue.lag ? f.span(queue.behind_s) : "–") },
        { title: "Committed", number: true, of: (queue) => f.count(queue.committed) }, { title: "End", number: true, of: (queue) => f.count(queue.end) },
        { title: "Member", wide: true, of: (queue) => (queue.member === null ? "–" : h("code", {}, queue.member)) }] })),
      card("Subscriptions", null, table({ label: "Subscriptions", rows: sheet.subscriptions, none: empty("No member has told its subscriptions"), columns: [
        { title: "Topic", wide: true, of: (item) => link("topic", item.topic) }, { title: "Kind", of: (item) => item.kind }, { title: "Expression", wide: true, of: (item) => h("code", {}, item.expression) }] })),
    ];
  },
};
