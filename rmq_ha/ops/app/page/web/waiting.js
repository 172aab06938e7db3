// What waits: delay levels, timer messages, half messages that no producer has ended.

import { h } from "/page/dom.js";
import * as f from "/page/format.js";
import { bar, card, empty, facts, link, table, tone } from "/page/parts.js";

const OLD_S = 300;
const WORK = { delivering: ["good", "delivered as they become due"], off: ["idle", "off: timerWheelEnable is false"], slave: ["idle", "its master delivers them"], scanning: ["warn", "the broker looks which messages wait"],
  held: ["warn", "held: timerStopDequeue is true"], refused: ["error", "the store takes no puts"], behind: ["warn", "first the queues catch up with the log"] };

const due = (ms, now) => (ms === null ? "–" : h("time", { datetime: new Date(ms).toISOString(), title: f.moment(ms) }, f.ago(ms, now)));

function levels(rows, now) {
  const most = Math.max(1, ...rows.map((row) => row.waiting));
  return card("By delay level", null, table({ label: "Delay levels", rows, none: empty("No message with a delay level waits", "Retries of consumers wait here, too."), columns: [
    { title: "Level", of: (row) => [`${row.level} `, h("span", { class: "muted" }, row.delay || "no such level any more")] },
    { title: "Waiting", number: true, of: (row) => f.count(row.waiting) }, { title: "", of: (row) => bar(row.waiting / most, "good", `${f.count(row.waiting)} messages`) },
    { title: "First due", number: true, of: (row) => due(row.next_due_ms, now) }, { title: "Last due", number: true, of: (row) => due(row.last_due_ms, now) }] }));
}

function timers(told, now) {
  const [kind, text] = WORK[told.work] || ["idle", told.work];
  const bounds = told.due.map((item, i) => ({ ...item, more: item.waiting - (i ? told.due[i - 1].waiting : 0) }));
  const last = told.due.at(-1), later = last ? Math.max(0, told.waiting - last.waiting) : 0, most = Math.max(1, later, ...bounds.map((item) => item.more));
  const rows = [...bounds.filter((item) => item.more).map((item) => [item.within_s ? `within ${f.span(item.within_s)}` : "now", item.more]), ...(later ? [["later", later]] : [])];
  return card("By time", null, facts([["Timer messages", f.count(told.waiting)], ["State", tone(kind, text)], told.waiting ? ["First due", due(told.next_due_ms, now)] : null,
    told.late_s > 10 ? ["Late by", tone("error", f.span(told.late_s))] : null, told.recalled ? ["Recalled", f.count(told.recalled)] : null]),
    rows.length ? table({ label: "Timer messages by time", rows, columns: [{ title: "Due", of: ([name]) => name }, { title: "Waiting", number: true, of: ([, number]) => f.count(number) }, { title: "", of: ([, number]) => bar(number / most, "good", `${f.count(number)} messages`) }] }) : null,
    told.topics.length ? table({ label: "Timer messages by topic", rows: told.topics, columns: [{ title: "Topic", wide: true, of: (item) => link("topic", item.topic) }, { title: "Waiting", number: true, of: (item) => f.count(item.waiting) }] })
      : told.waiting && told.work !== "off" ? h("p", { class: "muted foot" }, "By topic: rmqha-admin timer topics, as there are many.") : null);
}

function halves(told, now) {
  if (told.number === null) return card("Half messages in doubt", null, empty("Not known here", `${told.note}.`));
  const age = (row) => (now - row.born_ms) / 1000;
  return card("Half messages in doubt", told.number ? `${f.count(told.number)} open` : null, told.number ? h("p", { class: "muted" }, "Their producers have neither committed them nor rolled them back. The broker asks a producer of the group.") : null,
    table({ label: "Open half messages", rows: told.rows, none: empty("No half message is open", "Each transaction was committed or rolled back."), columns: [
      { title: "Message", wide: true, of: (row) => h("a", { href: `#/search?by=id&value=${f.inUrl(row.place_id)}` }, h("code", {}, row.id)) },
      { title: "Producer group", wide: true, of: (row) => row.group || "(no group)" }, { title: "For topic", wide: true, of: (row) => link("topic", row.topic) },
      { title: "Age", number: true, of: (row) => (age(row) > OLD_S ? tone("warn", f.span(age(row))) : f.span(age(row))) },
      { title: "Asked", number: true, of: (row) => `${f.count(row.checks)} times` }] }),
    told.number > told.rows.length ? h("p", { class: "muted foot" }, `${f.count(told.number - told.rows.length)} more are not listed.`) : null);
}

export const waiting = {
  ask: () => ["waiting", {}],
  draw: (answer, state, view) => [h("h1", {}, "What waits"), halves(answer.halves, view.now_ms), h("div", { class: "two" }, levels(answer.levels, view.now_ms), timers(answer.timers, view.now_ms))],
};
