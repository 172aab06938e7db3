// A message's life as a picture: a way for the message, and one for each group that it reached.

import { h } from "/page/dom.js";
import * as f from "/page/format.js";
import { link, tone } from "/page/parts.js";

function stop(step, before) {
  const hasTime = step.at_ms !== null, gap = hasTime && before !== null ? (step.at_ms - before) / 1000 : null;
  return h("li", { class: `${step.tone}${step.is_sure ? "" : " unsure"}` },
    tone(step.tone, step.what), hasTime ? h("time", { datetime: new Date(step.at_ms).toISOString(), title: f.moment(step.at_ms) }, f.moment(step.at_ms), gap === null || gap < 0 ? null : h("span", { class: "gap" }, ` +${f.span(gap)}`)) : step.what === "passed" ? h("span", { class: "muted" }, "when is not known") : null,
    step.text ? h("span", { class: "text" }, step.text) : null);
}

function way(lane) {
  let before = null;
  const stops = lane.steps.map((step) => {
    const node = stop(step, before);
    if (step.at_ms !== null) before = step.at_ms;
    return node;
  });
  return h("section", { class: "way" }, h("h4", {}, lane.group ? link("group", lane.group) : "the message"), h("ol", {}, stops));
}

export function life(told) {
  if (told.fault) return h("p", { class: "fault" }, tone("error", told.fault));
  return h("div", { class: "life" }, told.lanes.map(way), told.lanes.length > 1 ? null : h("p", { class: "muted" }, "No group has committed an offset of this topic."), told.note ? h("p", { class: "muted" }, `${told.note[0].toUpperCase()}${told.note.slice(1)}.`) : null);
}
