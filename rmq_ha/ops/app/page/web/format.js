// Numbers with units, and moments as people say them.

const NONE = "–";
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const is = (value) => typeof value === "number" && Number.isFinite(value);

export const count = (value) => (is(value) ? whole.format(value) : NONE);

export function short(value) {
  if (!is(value)) return NONE;
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= limit) return `${trim(value / (unit === "k" ? 1e3 : limit))} ${unit}`;
  }
  return Math.abs(value) >= 100 || Number.isInteger(value) ? whole.format(value) : trim(value);
}

function trim(value) {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return String(Number(value.toFixed(digits)));
}

export function bytes(value) {
  if (!is(value)) return NONE;
  let power = 0, rest = value;
  while (Math.abs(rest) >= 1024 && power < SIZES.length - 1) { rest /= 1024; power += 1; }
  return `${power ? trim(rest) : Math.round(rest)} ${SIZES[power]}`;
}

export const rate = (value) => (is(value) ? `${short(value)}/s` : NONE);
export const byteRate = (value) => (is(value) ? `${bytes(value)}/s` : NONE);
export const millis = (value) => (is(value) ? (value >= 1000 ? span(value / 1000) : `${trim(value)} ms`) : NONE);
export const percent = (value) => (is(value) ? `${trim(value * 100)} %` : NONE);

export function span(seconds) {
  if (!is(seconds)) return NONE;
  if (seconds < 1) return seconds <= 0 ? "0 s" : `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${trim(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${trim(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function ago(ms, now) {
  if (!is(ms)) return NONE;
  const seconds = Math.round((now - ms) / 1000);
  if (seconds < -1) return `in ${span(-seconds)}`;
  return seconds < 2 ? "just now" : `${span(seconds)} ago`;
}

export const lasting = (ms, now) => (is(ms) ? span(Math.max(0, Math.round((now - ms) / 1000))) : NONE);

const two = (value) => String(value).padStart(2, "0");
export function clock(ms, withSeconds = false) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}${withSeconds ? `:${two(at.getSeconds())}` : ""}`;
}
export function date(ms) {
  const at = new Date(ms);
  return `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}
export function moment(ms) {
  if (!is(ms) || ms <= 0) return NONE;
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms, true)}`;
}
// A name may end in half a character, which no address can hold.
const HALVES = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
export const inUrl = (text) => encodeURIComponent(text.replace(HALVES, "\ufffd"));
export const words = (text) => text.replaceAll("_", " ").toLowerCase();
