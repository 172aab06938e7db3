// The cluster on one sheet.

import { h, s } from "/page/dom.js";
import * as f from "/page/format.js";
import { SPANS, plot, spark } from "/page/plot.js";
import { bar, card, empty, facts, table, tone } from "/page/parts.js";

const MASTERS = new Set(["master", "leader"]);

const lag = (member) => (member.lag_bytes === null ? null
  : `${f.bytes(member.lag_bytes)} behind${member.lag_seconds ? ` · ${f.span(member.lag_seconds)}` : ""}`);

function memberCard(member, now) {
  return h("li", { class: `member ${member.tone}`, "data-key": member.key },
    h("div", { class: "role" }, member.role, member.is_here ? h("em", {}, "this one") : null),
    h("div", { class: "name" }, member.name),
    tone(member.tone, member.state),
    h("div", { class: "muted" }, [lag(member), member.since_ms ? `for ${f.lasting(member.since_ms, now)}` : null].filter(Boolean).join(" · ")),
    member.note ? h("p", { class: "note" }, member.note) : null);
}

function pair(view) {
  const { members, now_ms: now } = view;
  if (!members.length) return null;
  const masters = members.filter((member) => MASTERS.has(member.role));
  const others = members.filter((member) => !MASTERS.has(member.role));
  const title = view.mode === "pair" ? "The pair" : "The group";
  return card(title, view.mode === "pair" ? null : view.mode, h("div", { class: "pair" },
    h("ul", {}, masters.length ? masters.map((member) => memberCard(member, now)) : h("li", { class: "member error" }, h("div", { class: "role" }, "master"), tone("error", "nobody"))),
    h("div", { class: "arrow", "aria-hidden": "true" }, "→"),
    h("ul", {}, others.length ? others.map((member) => memberCard(member, now)) : h("li", { class: "member idle" }, h("div", { class: "role" }, "slave"), tone("idle", "none connected"))))
    , timeline(view.lanes, now));
}

const KINDS = [[/not seen/, "idle"], [/gone|stranded|no puts|fault|diverged|unreadable/, "error"], [/caught up|takes messages|following|answers|decides|follows/, "good"], [/./, "warn"]];
const kindOf = (state) => KINDS.find(([pattern]) => pattern.test(state))[1];

function timeline(lanes, now) {
  const from = now - 6 * 3600e3;
  const first = Math.max(from, Math.min(now - 600e3, ...lanes.map((lane) => lane.spans[0]?.from_ms ?? now)));
  const shown = lanes.filter((lane) => lane.spans.length && (lane.spans.at(-1).from_ms > first || !/gone|not seen/.test(lane.spans.at(-1).state)));
  if (!shown.length) return null;
  const x = (ms) => (100 * (Math.max(ms, first) - first)) / (now - first);
  return h("div", { class: "lanes" },
    h("h3", {}, "Timeline"),
    shown.map((lane) => {
      const last = lane.spans.at(-1);
      return h("div", { class: "lane", "data-key": lane.name }, h("span", { class: "who" }, lane.name),
        s("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": `${lane.name}: ${lane.spans.slice(-6).map((span) => `${span.state} since ${f.clock(span.from_ms)}`).join(", then ")}` },
          lane.spans.map((span, i) => {
            const begin = x(span.from_ms), end = i + 1 < lane.spans.length ? x(lane.spans[i + 1].from_ms) : 100;
            return end <= 0 ? null : s("rect", { class: kindOf(span.state), x: begin, width: Math.max(0.15, end - begin), height: 10 }, s("title", {}, `${span.state}, since ${f.moment(span.from_ms)}`));
          })),
        h("span", { class: "muted last" }, last.state.replace(/^\w+: /, "")));
    }),
    h("div", { class: "x", "aria-hidden": "true" }, h("span", {}, f.clock(first)), h("span", {}, f.clock(first + (now - first) / 2)), h("span", {}, "now")));
}

function tile(title, value, hint, extra, href) {
  return h(href ? "a" : "div", { class: "tile", href, "data-key": title }, h("span", { class: "title" }, title), h("strong", {}, value), h("span", { class: "muted" }, hint || "\u00a0"), extra);
}

function tiles(view, history) {
  const { rates, numbers } = view, series = history.series;
  const line = (key, className) => spark(series[key] || [], className);
  const disk = view.disk;
  const slaves = view.members.filter((member) => member.lag_bytes !== null);
  const worst = slaves.length ? Math.max(...slaves.map((member) => member.lag_bytes)) : null;
  return h("div", { class: "tiles" },
    tile("Messages in", f.rate(rates.put_rate), `${f.short(numbers.puts)} since the start`, line("put_rate", "a")),
    tile("Messages out", f.rate(rates.get_rate), `${f.short(numbers.gets)} since the start`, line("get_rate", "b")),
    tile("Put, 99 %", rates.put_p99_ms === null || rates.put_p99_ms === undefined ? "–" : `≤ ${f.millis(rates.put_p99_ms)}`, "until it is answered", line("put_p99_ms", "c")),
    tile("Replication lag", worst === null ? "–" : f.bytes(worst), worst === null ? "nobody replicates from here" : "the slowest replica", line("replica_lag_bytes", "d")),
    tile("Consumer lag", f.short(numbers.consumer_lag), "messages, all groups", line("consumer_lag", "e"), "#/groups"),
    tile("Dead letters", f.short(numbers.dead), "messages, all groups", line("dead", "d"), "#/dead"),
    tile("Clients", f.count(numbers.connections), `${f.count(numbers.producer_groups)} producing, ${f.count(numbers.consumer_groups)} consuming groups`, line("connections", "b"), "#/clients"),
    disk ? tile("Disk", f.percent(disk.used), disk.free ? `${f.bytes(disk.free)} free` : "", bar(disk.used, disk.used >= disk.refuses_at ? "error" : disk.used > 0.75 ? "warn" : "good", `${f.percent(disk.used)} used`)) : null);
}

function simpleTiles(view, history) {
  return h("div", { class: "tiles" }, Object.entries(view.numbers).map(([name, value]) => tile(f.words(name), f.count(value), "", spark(history.series[name] || [], "a"))));
}

function plots(history, hours) {
  const common = { history, hours };
  return h("div", { class: "plots" },
    plot({ ...common, id: "rates", title: "Messages", unit: f.rate, lines: [{ name: "in", key: "put_rate", className: "a" }, { name: "out", key: "get_rate", className: "b", fill: false }] }),
    plot({ ...common, id: "replica", title: "Replication lag", unit: f.bytes, least: 1024, lines: [{ name: "slowest replica", key: "replica_lag_bytes", className: "d" }] }),
    plot({ ...common, id: "lag", title: "Consumer lag", unit: f.short, lines: [{ name: "all groups", key: "consumer_lag", className: "e" }] }),
    plot({ ...common, id: "latency", title: "Latency, 99 %", note: "upper limits", unit: f.millis, lines: [{ name: "put", key: "put_p99_ms", className: "c" }, { name: "reactor", key: "reactor_p99_ms", className: "f", fill: false }] }));
}

function machines(view) {
  const rows = view.machines, now = view.now_ms;
  const isOf = (name) => rows.some((row) => row[name] !== null);
  const columns = [
    { title: "Broker", of: (row) => [h("b", {}, row.set_name), h("span", { class: "muted" }, ` ${row.broker_id ?? ""}`), row.is_here ? h("em", { class: "here" }, "this one") : null] },
    { title: "Role", of: (row) => f.words(row.role) },
    { title: "State", of: (row) => tone(row.tone, row.note || (row.tone === "good" ? "answers" : row.tone === "idle" ? "known" : "silent")) },
    { title: "Address", of: (row) => (row.page && !row.is_here ? h("a", { href: row.page }, h("code", {}, row.address)) : h("code", {}, row.address)) },
    isOf("put_rate") ? { title: "In", number: true, of: (row) => f.rate(row.put_rate) } : null,
    isOf("get_rate") ? { title: "Out", number: true, of: (row) => f.rate(row.get_rate) } : null,
    isOf("log_end") ? { title: "Log end", number: true, of: (row) => f.bytes(row.log_end) } : null,
    isOf("behind_bytes") ? { title: "Behind", number: true, of: (row) => (row.behind_bytes === null ? "–" : f.bytes(row.behind_bytes)) } : null,
    isOf("disk_used") ? { title: "Disk", number: true, of: (row) => f.percent(row.disk_used) } : null,
    { title: "Heard", number: true, of: (row) => (row.seen_ms === null ? "–" : f.ago(row.seen_ms, now)) },
  ].filter(Boolean);
  return card("The cluster", view.cluster_note || `${rows.length} ${rows.length === 1 ? "broker" : "brokers"}`,
    table({ label: "Brokers of the cluster", columns, rows, none: empty("No broker is known yet", view.server === "namesrv" ? "Brokers register here when they start with this name server in namesrvAddr." : "This page asks a name server; it has not answered yet.") }));
}

export function eventList(events, now) {
  return h("ol", { class: "events" }, events.map((event) => h("li", { "data-key": event.number },
    h("time", { datetime: new Date(event.at_ms).toISOString(), title: f.moment(event.at_ms) }, f.ago(event.at_ms, now)),
    tone(event.severity, event.kind), h("span", { class: "text" }, event.text, event.times > 1 ? h("em", {}, ` × ${f.count(event.times)}`) : null))));
}

const waits = (number) => (number ? h("a", { href: "#/waiting" }, f.count(number)) : f.count(number));

function details(view) {
  const { log, certificates, now_ms: now } = view;
  const ends = (item) => {
    const days = (item.ends_ms - now) / 86400e3;
    return tone(days < 0 ? "error" : days < 14 ? "warn" : "good", days < 0 ? `ended ${f.ago(item.ends_ms, now)}` : f.ago(item.ends_ms, now));
  };
  return h("div", { class: "two" },
    log ? card("The log", null, facts([
      ["Holds", f.bytes(log.size)], ["Ends at", f.count(log.end)],
      log.oldest_ms === null ? null : ["Oldest message", f.ago(log.oldest_ms, now)],
      ["Not yet on the disk", f.bytes(log.unflushed)], ["Not yet in the queues", f.bytes(log.undispatched)],
      view.numbers.popped_out === undefined ? null : ["Popped, not acknowledged", f.count(view.numbers.popped_out)],
      ["Held pulls", f.count(view.numbers.held_pulls)], view.numbers.timers === undefined ? null : ["Timer messages", waits(view.numbers.timers)], view.numbers.delayed ? ["Delayed messages", waits(view.numbers.delayed)] : null, view.numbers.half === undefined ? null : ["Open half messages", waits(view.numbers.half)], view.name_servers.length ? ["Name servers", view.name_servers.join(", ")] : null])) : null,
    card("Certificates", null, certificates.length
      ? facts(certificates.map((item) => [item.who, h("span", { class: "muted" }, item.setting, " "), ends(item)]))
      : empty("None in use", "Set tls.server.mode and tls.server.certPath to have clients come by TLS.")));
}

export function overview(view, history, events, hours) {
  const isBroker = view.server === "broker";
  const happened = card("What happened", h("a", { href: "#/events" }, "all events"), events.length ? eventList(events.slice(0, 8), view.now_ms) : empty("Nothing yet"));
  const isRed = view.notices.some((notice) => notice.tone === "error") || view.members.some((member) => member.tone === "error"); // then its cause comes before the plots
  return [
    h("h1", { class: "hidden" }, "Overview"),
    view.notices.length ? h("ul", { class: "notices", "aria-label": "What needs a look" }, view.notices.map((notice) => h("li", { class: notice.tone }, tone(notice.tone, notice.text), notice.hint ? h("span", { class: "muted" }, notice.hint) : null))) : null,
    pair(view),
    isRed ? happened : null,
    isBroker ? tiles(view, history) : simpleTiles(view, history),
    isBroker ? h("div", { class: "section" }, h("h2", {}, SPANS[hours][2].replace("the", "The")), h("div", { class: "switch", role: "group", "aria-label": "Time shown" },
      Object.keys(SPANS).map(Number).map((number) => h("button", { type: "button", "data-hours": number, "aria-pressed": String(number === hours) }, SPANS[number][1])))) : null,
    isBroker ? plots(history, hours) : null,
    machines(view),
    isRed ? null : happened,
    details(view),
    h("footer", { class: "foot muted" }, `rmq-ha ${view.version}, started ${f.ago(view.started_ms, view.now_ms)} · `, h("a", { href: "/metrics" }, "/metrics"), " · ", h("a", { href: "/healthz" }, "/healthz")),
  ];
}

